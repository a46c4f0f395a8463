// Command testworker is the stock program with the handlers that the
// end-to-end tests call. Its effects go to a ledger, a Redis of its own that
// TEST_LEDGER names, so that tests count outside the product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
)

type ledger struct{ client *redis.Client }

func openLedger() (*ledger, error) {
	url := os.Getenv("TEST_LEDGER")
	if url == "" {
		return &ledger{}, nil
	}
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opt.ReadTimeout = time.Minute // the ledger may stand still with the server: that is not the run's failure
	return &ledger{redis.NewClient(opt)}, nil
}

// note appends to a list of the ledger, whatever the run's context says: an
// effect that has begun is not undone.
func (l *ledger) note(list, text string) error {
	if l.client == nil {
		return errors.New("TEST_LEDGER is not set")
	}
	return l.client.RPush(context.Background(), list, text).Err()
}

func main() {
	l, err := openLedger()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var reg tasks.Registry
	if err := l.register(&reg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	solobeat.Main(&reg)
}

type addIn struct {
	X int64 `json:"x"`
	Y int64 `json:"y"`
}

type idIn struct {
	ID string `json:"id"`
}

type sleepIn struct {
	ID      string  `json:"id"`
	Seconds float64 `json:"seconds"`
	// Deaf ignores the run's context.
	Deaf bool `json:"deaf"`
}

type failIn struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type retryIn struct {
	Times     int     `json:"times"`
	Countdown float64 `json:"countdown"`
	Value     any     `json:"value"`
}

func (l *ledger) register(reg *tasks.Registry) error {
	return errors.Join(
		tasks.Register(reg, "tests.add", func(_ context.Context, in addIn) (int64, error) { return in.X + in.Y, nil }),
		tasks.Register(reg, "tests.echo", l.echo),
		tasks.Register(reg, "tests.headers", func(_ context.Context, t *tasks.Task) (map[string]json.RawMessage, error) { return t.Headers, nil }),
		tasks.Register(reg, "tests.sleep", l.sleep),
		tasks.Register(reg, "tests.fail", func(_ context.Context, in failIn) (any, error) {
			if in.Type == "" {
				return nil, errors.New(in.Message)
			}
			return nil, &tasks.Exception{Type: in.Type, Args: []any{in.Message}}
		}),
		tasks.Register(reg, "tests.panic", func(context.Context, idIn) (any, error) { panic("deliberate") }),
		tasks.Register(reg, "tests.retry", l.retry),
		tasks.Register(reg, "tests.effect", l.effect),
		tasks.Register(reg, "tests.fenced", l.fenced),
		tasks.Register(reg, "tests.die", func(context.Context, idIn) (any, error) {
			return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}),
		tasks.Register(reg, "tests.tick", l.tick),
		tasks.Register(reg, "tests.when", func(context.Context, *tasks.Task) (float64, error) {
			return float64(time.Now().UnixMicro()) / 1e6, nil
		}),
		tasks.Register(reg, "tests.carry", l.carry),
		tasks.Register(reg, "tests.stall", l.stall),
		registerSoak(reg),
	)
}

// echo returns its arguments as they came.
func (l *ledger) echo(_ context.Context, t *tasks.Task) (map[string]any, error) {
	return map[string]any{"args": t.Args, "kwargs": t.Kwargs, "attempt": t.Attempt}, nil
}

// sleep notes start and end, and how it ended.
func (l *ledger) sleep(ctx context.Context, in sleepIn) (string, error) {
	who := strconv.Itoa(os.Getpid())
	if err := l.note("sleep:"+in.ID, "start "+who); err != nil {
		return "", err
	}
	if t, ok := tasks.FromContext(ctx); ok {
		if err := l.note("delivery:"+in.ID, fmt.Sprintf("redelivered=%t attempt=%d", t.Redelivered, t.Attempt)); err != nil {
			return "", err
		}
	}
	timer := time.NewTimer(time.Duration(in.Seconds * float64(time.Second)))
	defer timer.Stop()
	if in.Deaf {
		<-timer.C
		return who, l.note("sleep:"+in.ID, "end "+who)
	}
	select {
	case <-timer.C:
		return who, l.note("sleep:"+in.ID, "end "+who)
	case <-ctx.Done():
		_ = l.note("sleep:"+in.ID, "cancelled "+who+" "+context.Cause(ctx).Error())
		return "", ctx.Err()
	}
}

// retry asks for another run so many times.
func (l *ledger) retry(ctx context.Context, in retryIn) (any, error) {
	t, _ := tasks.FromContext(ctx)
	if t.Attempt <= in.Times {
		return nil, tasks.Retry(errors.New("not yet"), time.Duration(in.Countdown*float64(time.Second)), in.Times)
	}
	return in.Value, nil
}

// carry retries once and returns the headers that the second run finds.
func (l *ledger) carry(_ context.Context, t *tasks.Task) (map[string]json.RawMessage, error) {
	if t.Attempt == 1 {
		return nil, tasks.Retry(errors.New("once more"), 100*time.Millisecond, 1)
	}
	return t.Headers, nil
}

// effect is a plain effect: one line per execution.
func (l *ledger) effect(ctx context.Context, in idIn) (string, error) {
	fence, _ := tasks.Fence(ctx)
	return in.ID, l.note("effects", fmt.Sprintf("%s %d %d", in.ID, os.Getpid(), fence))
}

// fenced is an effect that its resource guards: the value of a key, written
// with the run's fence. The value counts the writes that were let through.
func (l *ledger) fenced(ctx context.Context, in idIn) (string, error) {
	fence, ok := tasks.Fence(ctx)
	if !ok {
		return "", errors.New("the run has no fence")
	}
	err := lockredis.SetFenced(ctx, l.client, "value:"+in.ID, in.ID, lockguard.Fence(fence))
	if err != nil {
		_ = l.note("refused", in.ID)
		return "", err
	}
	return in.ID, l.note("effects", fmt.Sprintf("%s %d %d", in.ID, os.Getpid(), fence))
}

type tickIn struct {
	Tick    string  `json:"tick"`
	Seconds float64 `json:"seconds"`
}

// tick is what jobs of the scheduler tests run: one line per report.
func (l *ledger) tick(ctx context.Context, in tickIn) (string, error) {
	if err := l.note("started", fmt.Sprintf("%s %d", in.Tick, os.Getpid())); err != nil {
		return "", err
	}
	select {
	case <-time.After(time.Duration(in.Seconds * float64(time.Second))):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	fence, _ := tasks.Fence(ctx)
	return in.Tick, l.note("reports", fmt.Sprintf("%s %d %d", in.Tick, os.Getpid(), fence))
}

// stall is a run that is stopped in its middle: once it goes on it tells what
// its guards say, and tries its fenced write.
func (l *ledger) stall(ctx context.Context, in sleepIn) (string, error) {
	list, who := "stall:"+in.ID, strconv.Itoa(os.Getpid())
	fence, _ := tasks.Fence(ctx)
	if err := l.note(list, fmt.Sprintf("%s start %d", who, fence)); err != nil {
		return "", err
	}
	<-time.After(time.Duration(in.Seconds * float64(time.Second))) // deaf to the context on purpose
	cause := "none"
	select {
	case <-ctx.Done():
		cause = context.Cause(ctx).Error()
	case <-time.After(500 * time.Millisecond): // a stopped process is told as soon as it is scheduled
	}
	check := "ok"
	if h, ok := lockguard.FromContext(ctx); ok {
		if err := h.Check(); err != nil {
			check = err.Error()
		}
	}
	write := "written"
	if err := lockredis.SetFenced(context.WithoutCancel(ctx), l.client, "value:"+in.ID, who, lockguard.Fence(fence)); err != nil {
		write = err.Error()
	}
	return who, errors.Join(
		l.note(list, who+" cause "+cause), l.note(list, who+" check "+check), l.note(list, who+" write "+write))
}
