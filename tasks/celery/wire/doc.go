// Package wire is the codec of what Celery puts on Redis: task messages of
// protocol 2, entries of kombu's unacked hash, results, worker events, and the
// names of queue keys. It touches no network and depends on the standard
// library alone.
//
// # Messages
//
//	Decode(raw []byte) (*Message, error)         a kombu envelope; the error is an *Error
//	DecodeText(m *Message, raw string) error     the same without a copy of what is text already
//	(*Message).Unsupported() string              the field that asks for what is not built, "" if none
//	(*Message).HeaderInt(name string) (int, bool)
//	Encode(m *Message) ([]byte, error)           the bytes Celery 5.7 would send
//	NewID() string                               a random uuid4, for task ids and delivery tags
//	Origin() string                              gen<pid>@<host>
//	ReprArgs, ReprKwargs                         Python repr text for argsrepr and kwargsrepr
//
// # Changing a raw envelope, everything foreign in it kept
//
//	SetHeaders(raw, map[string]json.RawMessage) ([]byte, error)    a nil or null value deletes
//	Redeliver(raw, deliveries int) ([]byte, error)                 redelivered in both places, and the count
//	Retry(raw, retries int, eta time.Time, headers) ([]byte, error)
//
// # Entries of the unacked hash
//
//	UnackedSuffix(exchange, routingKey) string   what follows raw: entry = "[" + raw + suffix
//	ParseUnacked(value) (raw []byte, exchange, routingKey string, err error)
//
// # Results
//
//	EncodeResult(*Result) ([]byte, error)
//	DecodeResult([]byte) (*Result, error)
//	ExceptionOf(err error) Exception             how a Go error appears to a Python client
//	NewException(name string, args ...any) Exception
//	NotRegistered, ContentDisallowed, WorkerLost, TaskRevoked, MaxRetriesExceeded
//	Finite(raw) json.RawMessage                  NaN and Infinity replaced by null
//	Ready(state) bool                            whether a state is final
//
// # Events
//
//	EncodeEvent(WorkerEvent) ([]byte, error)
//	EventChannel(db int, eventType string) string      such as /0.celeryev/worker.heartbeat
//
// # Names
//
//	QueueKey(queue, priority) string             PriorityKeys(queue) []string
//	SplitQueueKey(key) (queue string, step int)  PriorityStep(priority) int
//	BindingKeys(exchange) (key, permanent string)
//	BindingMember(routingKey, pattern, queue) string
//	ResultKey(taskID) string                     also the name of its channel
//
// All times are read as instants in UTC. A time without an offset is taken as
// UTC and flagged. A Message shares no memory with the bytes given to Decode.
package wire
