package wire

import (
	"encoding/json"
	"strconv"
	"time"
)

// Names of our own headers.
const (
	// HeaderPrefix starts the name of every header of ours.
	HeaderPrefix = "solobeat-"
	// HeaderGuard holds the guards of a job: JSON, versioned.
	HeaderGuard = "solobeat-guard"
	// HeaderDeliveries counts the replicas that died with the message.
	HeaderDeliveries = "solobeat-deliveries"
	// HeaderLosses counts the runs that ended because lock or record was lost.
	HeaderLosses = "solobeat-losses"
)

// MaxInflated is the most bytes a compressed body may have when inflated.
const MaxInflated = 64 << 20

// Tri is a flag of a header that may also be absent or null.
type Tri uint8

// The three values of a Tri.
const (
	Unset Tri = iota
	False
	True
)

// Or gives the flag, or def if it is unset.
func (t Tri) Or(def bool) bool {
	if t == Unset {
		return def
	}
	return t == True
}

// Message is a task message of protocol 2.
type Message struct {
	ID       string // task id, never empty
	Task     string // task name, never empty
	Lang     string // "py", "go"; informative
	Shadow   string // alternative name for logs
	RootID   string // first task of the workflow; "" if absent
	ParentID string // "" if absent
	Group    string // "" if absent
	// GroupIndex is the position in the group, nil if absent.
	GroupIndex *int
	// Retries is the number of retries so far, at least 0.
	Retries int
	// ETA is the earliest instant of the run in UTC, zero if there is none.
	ETA time.Time
	// ETANaive says that ETA was written without an offset and read as UTC.
	ETANaive bool
	// Expires is the instant after which the task must not start, in UTC; zero
	// if there is none.
	Expires time.Time
	// ExpiresNaive says that Expires was written without an offset and read as UTC.
	ExpiresNaive bool
	// Timelimit is the raw [hard, soft] pair in seconds, nil if absent or both null.
	Timelimit json.RawMessage
	// IgnoreResult is Unset where the task's own setting applies.
	IgnoreResult        Tri
	Origin              string // gen<pid>@<host>
	ArgsRepr            string // for display only
	KwargsRepr          string // for display only
	ReplacedTaskNesting int
	StampedHeaders      json.RawMessage // nil if absent, null or empty
	Stamps              json.RawMessage // nil if absent, null or empty
	// Headers are all others: an application's own, trace headers, and ours
	// ([HeaderPrefix]). Values keep their text.
	Headers map[string]json.RawMessage

	CorrelationID string
	ReplyTo       string
	Priority      int // 0 (first) to 9
	DeliveryTag   string
	Exchange      string
	RoutingKey    string
	Redelivered   bool // from the headers or from the delivery info

	// Args and Kwargs hold each value as its own JSON text, so numbers stay
	// exact. Kwargs may be nil.
	Args   []json.RawMessage
	Kwargs map[string]json.RawMessage
	Embed  Embed

	inArgs uint8 // what Unsupported reports about the arguments
}

// Embed is the third element of the body; each is nil if absent, null or empty.
type Embed struct {
	Callbacks, Errbacks, Chain, Chord json.RawMessage
}

const (
	typedInArgs = 1 << iota
	nonFiniteInArgs
)

// Unsupported names the field by which a message that decodes asks for
// something that is not built, "" if there is none: "chain", "chord",
// "callbacks", "errbacks", "timelimit", "__type__" (a typed JSON value among
// the arguments) or "NaN" (NaN or an infinity among the arguments, which JSON
// does not know).
func (m *Message) Unsupported() string {
	switch {
	case m.Embed.Chord != nil:
		return "chord"
	case m.Embed.Chain != nil:
		return "chain"
	case m.Embed.Callbacks != nil:
		return "callbacks"
	case m.Embed.Errbacks != nil:
		return "errbacks"
	case m.Timelimit != nil:
		return "timelimit"
	case m.inArgs&typedInArgs != 0:
		return "__type__"
	case m.inArgs&nonFiniteInArgs != 0:
		return "NaN"
	}
	return ""
}

// HeaderInt reads one of Headers as an integer; false if it is absent or none.
func (m *Message) HeaderInt(name string) (int, bool) {
	v, ok := m.Headers[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(v))
	return n, err == nil
}
