package idemredis

import (
	_ "embed" // the scripts
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/redisconn"
)

var (
	//go:embed claim.lua
	claimSource string
	//go:embed renew.lua
	renewSource string
	//go:embed complete.lua
	completeSource string
	//go:embed release.lua
	releaseSource string
	//go:embed forget.lua
	forgetSource string
	//go:embed peek.lua
	peekSource string

	claimScript    = redisconn.NewJointScript(claimSource)
	renewScript    = redisconn.NewScript(renewSource, "allow-oom")
	completeScript = redisconn.NewJointScript(completeSource, "allow-oom")
	releaseScript  = redisconn.NewScript(releaseSource, "allow-oom")
	forgetScript   = redisconn.NewScript(forgetSource, "allow-oom")
	peekScript     = redisconn.NewScript(peekSource)
)

var verdicts = map[string]idempotency.Verdict{
	"run":      idempotency.Run,
	"replay":   idempotency.Replay,
	"busy":     idempotency.Busy,
	"backoff":  idempotency.Backoff,
	"failed":   idempotency.PermanentlyFailed,
	"mismatch": idempotency.Mismatch,
}

var states = map[string]idempotency.State{
	"in_progress": idempotency.InProgress,
	"completed":   idempotency.Completed,
	"released":    idempotency.Released,
	"failed":      idempotency.Failed,
}

// maxInline is the largest result that is a field of the record: one value
// above 64 bytes turns a hash from 270 bytes of memory into 670.
const maxInline = 64

func storedKind(r idempotency.Result) string {
	switch {
	case r.Kind == idempotency.ResultOmitted:
		return "omitted"
	case r.Kind == idempotency.ResultNone:
		return "none"
	case len(r.Data) > maxInline:
		return "big"
	default:
		return "inline"
	}
}

// decode reads the answer {code, now, time to live, result, field, value, ...}
// of claim, forget and peek.
func decode(reply any) (string, idempotency.Record, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < 4 || len(list)%2 != 0 {
		return "", idempotency.Record{}, fmt.Errorf("idemredis: unknown answer %v", reply)
	}
	code, _ := list[0].(string)
	now, _ := list[1].(int64)
	ttl, _ := list[2].(int64)
	f := make(fields, len(list)/2)
	for i := 4; i < len(list); i += 2 {
		name, _ := list[i].(string)
		f[name], _ = list[i+1].(string)
	}
	if len(f) == 0 {
		return code, idempotency.Record{}, nil
	}
	rec := idempotency.Record{
		Key:         idempotency.Key{Namespace: f["kn"], Text: f["kt"]},
		State:       states[f["s"]],
		Fence:       uint64(f.int("f")),
		Attempt:     int(f.int("a")),
		TaskID:      f["t"],
		Instance:    f["i"],
		Takeover:    f["k"] == "1",
		Lost:        f["x"] == "1",
		ErrCode:     f["ec"],
		ErrMsg:      f["em"],
		Fingerprint: f["p"],
		Created:     f.time("c"),
		Done:        f.time("d"),
		LeaseLeft:   f.left("l", now),
		BackoffLeft: f.left("b", now),
		Result:      f.result(list[3]),
	}
	if code == "listed" {
		rec.Result = f.listed()
	}
	if owner, err := hex.DecodeString(f["o"]); err == nil {
		copy(rec.Owner[:], owner)
	}
	if ttl >= 0 {
		rec.Expires = time.UnixMilli(now + ttl)
	}
	if rec.State == 0 {
		return code, rec, fmt.Errorf("idemredis: record %s has the unknown state %q", rec.Key, f["s"])
	}
	return code, rec, nil
}

// fields are a record as it is stored:
//
//	s   state                   o   owner, hex          f  fence
//	a   attempt                 l   lease until, ms     b  not before, ms
//	kn  key's namespace         kt  key's text          p  fingerprint
//	t   task id                 i   instance            k  1: taken over
//	rk  kind of the result      r   result, short       x  1: had vanished
//	ec  error code              em  error text
//	c   made, ms                d   ended, ms
type fields map[string]string

func (f fields) int(name string) int64 {
	n, _ := strconv.ParseInt(f[name], 10, 64)
	return n
}

func (f fields) time(name string) time.Time {
	if f[name] == "" {
		return time.Time{}
	}
	return time.UnixMilli(f.int(name))
}

func (f fields) left(name string, now int64) time.Duration {
	if f[name] == "" {
		return 0
	}
	return time.Duration(max(0, f.int(name)-now)) * time.Millisecond
}

// listed is the result as lists tell it: its kind, not its data.
func (f fields) listed() idempotency.Result {
	if f["rk"] == "big" || f["rk"] == "inline" {
		return idempotency.Result{Kind: idempotency.ResultInline}
	}
	return f.result(nil)
}

func (f fields) result(big any) idempotency.Result {
	switch f["rk"] {
	case "inline":
		return idempotency.Result{Kind: idempotency.ResultInline, Data: json.RawMessage(f["r"])}
	case "big":
		if text, ok := big.(string); ok {
			return idempotency.Result{Kind: idempotency.ResultInline, Data: json.RawMessage(text)}
		}
		return idempotency.Result{Kind: idempotency.ResultOmitted}
	case "omitted":
		return idempotency.Result{Kind: idempotency.ResultOmitted}
	default:
		return idempotency.Result{}
	}
}
