package asynqengine

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

//go:embed result.lua
var resultSource string

// newResultScript may run on a full server: it completes what was taken.
func newResultScript() *redisconn.Script { return redisconn.NewScript(resultSource, "allow-oom") }

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

// writeResult stores what an outcome leaves. ctx ends when asynq gives the run
// up.
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
	key := e.cfg.ResultsKeyPrefix + wire.ResultKey(id)
	return e.persist(ctx, "result", id, func(ctx context.Context) error {
		_, err := e.results.Run(ctx, e.script, []string{key}, b, e.cfg.expirySeconds()).Int()
		if err != nil {
			return fmt.Errorf("result of %s: %w", id, err)
		}
		return nil
	})
}
