package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// registerSoak adds the handlers of the soak. They are told apart by name, so
// that the worker's file can give each its own guards. All of them do the same:
// they note when they begin, wait, have their effect, and note when they end.
func registerSoak(reg *tasks.Registry) error {
	var errs []error
	for _, name := range []string{"plain", "guarded", "lane", "retry", "hold"} {
		errs = append(errs, tasks.Register(reg, "soak."+name, soak))
	}
	return errors.Join(errs...)
}

type soakIn struct {
	ID string `json:"id"`
	// Key is what the record is kept under.
	Key string `json:"key"`
	// Lane is the lock that several messages share.
	Lane string `json:"lane"`
	// MS is for how long a run waits before its effect, in milliseconds.
	MS int `json:"ms"`
	// Retries is how many runs ask for another one before the effect.
	Retries int `json:"retries"`
}

func soak(ctx context.Context, in soakIn) (string, error) {
	t, ok := tasks.FromContext(ctx)
	if !ok {
		return "", errors.New("no task in the context")
	}
	if err := witness("begin", in, t.Attempt, in.Lane); err != nil {
		return "", err
	}
	timer := time.NewTimer(time.Duration(in.MS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), witness("cancelled", in, t.Attempt, context.Cause(ctx).Error()))
	}
	if t.Attempt <= in.Retries {
		if err := witness("retry", in, t.Attempt, in.Lane); err != nil {
			return "", err
		}
		return "", tasks.Retry(errors.New("not yet"), 300*time.Millisecond, in.Retries)
	}
	return in.ID, witness("effect", in, t.Attempt, in.Lane)
}

// witness appends one line to the file TEST_WITNESS, which no Redis and no
// other process can take back: kind, id, key, pid, attempt, microseconds, and
// the rest.
func witness(kind string, in soakIn, attempt int, rest string) error {
	f, err := os.OpenFile(os.Getenv("TEST_WITNESS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	key := in.Key
	if key == "" {
		key = "-"
	}
	_, err = fmt.Fprintf(f, "%s %s %s %d %d %d %s\n", kind, in.ID, key, os.Getpid(), attempt, time.Now().UnixMicro(), strings.ReplaceAll(rest, "\n", " "))
	return err
}
