package asynqengine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// resultOf is the result that an outcome leaves, nil for none.
func resultOf(id string, out tasks.Outcome) *wire.Result {
	r := &wire.Result{TaskID: id, Traceback: out.Traceback}
	exc := wire.ExceptionOfRun(out.Err)
	switch out.Kind {
	case tasks.Succeeded:
		r.State, r.Value, r.Traceback = wire.StateSuccess, out.Result, ""
		if out.Note != nil {
			r.Solobeat, _ = json.Marshal(out.Note) // texts always encode
		}
	case tasks.Failed:
		r.State, r.Exception = wire.StateFailure, &exc
	case tasks.Retried:
		r.State = wire.StateRetry
		if out.Err != nil {
			r.Exception = &exc
		}
	case tasks.Revoked:
		revoked := wire.TaskRevoked(string(out.Reason))
		r.State, r.Exception = wire.StateRevoked, &revoked
	case tasks.Parked, tasks.Returned:
		return nil
	}
	if wire.Ready(r.State) {
		r.DateDone = time.Now().UTC()
	}
	return r
}

// encodeResult encodes a result; arguments of an exception that are no JSON
// are replaced by their text.
func encodeResult(r *wire.Result) ([]byte, error) {
	b, err := wire.EncodeResult(r)
	if err != nil && r.Exception != nil {
		plain := wire.NewException(r.Exception.Type, r.Exception.Text())
		r.Exception = &plain
		b, err = wire.EncodeResult(r)
	}
	return b, err
}

// writeResult stores what an outcome leaves. A server that is away is asked
// until ctx ends, when asynq gives the run up, or the process does; one that
// refuses it, no longer than for the patience of a write.
func (e *Engine) writeResult(ctx context.Context, id string, out tasks.Outcome) error {
	r := resultOf(id, out)
	if r == nil {
		return nil
	}
	b, err := encodeResult(r)
	if err != nil {
		e.log.Error("result cannot be encoded", "task_id", id, "error", err)
		return nil
	}
	entry := resultstore.Entry{Key: e.cfg.ResultsKeyPrefix + wire.ResultKey(id), Value: b}
	began := time.Now()
	for n := 1; ; n++ {
		call, cancel := context.WithTimeout(ctx, e.tune.call)
		err := e.results.Write(call, e.cfg.expirySeconds(), entry)[0]
		cancel()
		switch {
		case err == nil:
			return nil
		case n == 1:
			e.log.Warn("a write is tried on", "what", "result", "task_id", id, "error", err)
		case e.cancelled.Err() != nil, !away(err) && time.Since(began) >= e.tune.patience:
			return err
		}
		if !pause(ctx, backoff(n)) {
			return err
		}
	}
}

// away tells a server that does not answer, or not yet, from one that refuses.
func away(err error) bool { return !redisconn.Answered(err) || redisconn.Transient(err) }
