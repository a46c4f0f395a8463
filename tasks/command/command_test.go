package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command"
)

func newHandler(t *testing.T, cfg command.Config) tasks.Handler {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h, err := command.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func script(text string) command.Config { return command.Config{Argv: []string{"sh", "-c", text}} }

func newTask(args, kwargs string) *tasks.Task {
	task := &tasks.Task{ID: "the-id", Name: "reports.hourly"}
	if args != "" {
		_ = json.Unmarshal([]byte(args), &task.Args)
	}
	if kwargs != "" {
		_ = json.Unmarshal([]byte(kwargs), &task.Kwargs)
	}
	return task
}

func TestResult(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		name, args, kwargs string
		cfg                command.Config
		want               string
	}{
		{name: "trimmed", cfg: script(`printf '\n  a b\n\n'`), want: `"a b"`},
		{name: "nothing", cfg: script(`echo text >&2`), want: `""`},
		{name: "text is not escaped", cfg: script(`echo '<ä&">'`), want: `"<ä&\">"`},
		{name: "no UTF-8", cfg: script(`printf '\377'`), want: `"\ufffd"`},
		{name: "the last 64 KiB", cfg: script(`printf 'ä'; head -c 65535 /dev/zero | tr '\0' x`), want: `"` + long[1:] + `"`},
		{
			name: "standard input", cfg: command.Config{Argv: []string{"cat"}},
			args: `[9007199254740993, 1.0]`, kwargs: `{"a": {"b": "<é>"}}`,
			want: `"{\"args\":[9007199254740993,1.0],\"kwargs\":{\"a\":{\"b\":\"<é>\"}}}"`,
		},
		{name: "no arguments", cfg: command.Config{Argv: []string{"cat"}}, want: `"{\"args\":[],\"kwargs\":{}}"`},
		{
			name: "templates",
			cfg: command.Config{
				Argv:   []string{"printf", "%s|%s|%s", "{{ .Params.day }}", "--n={{ .Params.n }}", "{{ .Task.Name }}"},
				Params: []string{"n"},
			},
			args: `[9007199254740993]`, kwargs: `{"day": "$(id) ; 'x'"}`,
			want: `"$(id) ; 'x'|--n=9007199254740993|reports.hourly"`,
		},
		{
			name:   "a template in the environment",
			cfg:    command.Config{Argv: []string{"sh", "-c", `echo "$DAY $PATH"`}, Env: map[string]string{"DAY": "{{ .Params.day }}", "PATH": "/usr/bin:/bin"}},
			kwargs: `{"day": "$(id)"}`,
			want:   `"$(id) /usr/bin:/bin"`,
		},
		{name: "directory", cfg: command.Config{Argv: []string{"pwd"}, Dir: "/usr"}, want: `"/usr"`},
		{name: "a leftover child holds the output", cfg: script(`(setsid sleep 300 &); sleep 300 & echo done`), want: `"done"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			got, err := newHandler(t, c.cfg).Handle(t.Context(), newTask(c.args, c.kwargs))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Error(diff)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	for _, name := range []string{"SOLOBEAT_REDIS_URL", "SOLOBEAT_REDIS_LOCKS_URL", "SOLOBEAT_NAMESPACE", "SOLOBEAT_RUN_KEY"} {
		t.Setenv(name, "secret")
	}
	t.Setenv("APP_SETTING", "kept")
	task := newTask("", "")
	// The message's own key may have been replaced by the worker's tasks: entry:
	// the record in hand decides.
	task.Guard = &tasks.Guard{Job: "hourly", Tick: 1767322800000, Record: &tasks.RecordGuard{Key: "replaced"}}
	ctx := tasks.ContextWithKey(tasks.ContextWithFence(t.Context(), 1<<63), "report:2026-01-02T03+00:00")
	got, err := newHandler(t, script(`env | grep -E '^(SOLOBEAT|APP_)' | sort`)).Handle(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"APP_SETTING=kept", "SOLOBEAT_RUN_FENCE=9223372036854775808", "SOLOBEAT_RUN_KEY=report:2026-01-02T03+00:00",
		"SOLOBEAT_RUN_TASK_ID=the-id", "SOLOBEAT_RUN_TICK=2026-01-02T03:00:00Z",
	}
	var text string
	if err := json.Unmarshal(got, &text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strings.Split(text, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cfg     command.Config
		message string
		want    *command.Error
		is      error
	}{
		{
			name: "exit code", cfg: script("echo one >&2; echo two >&2; exit 3"),
			message: "exit status 3: one\ntwo", want: &command.Error{ExitCode: 3, Stderr: "one\ntwo"},
		},
		{
			name: "signal", cfg: script("kill -ALRM $$"),
			message: "signal: alarm clock", want: &command.Error{ExitCode: -1, Signal: syscall.SIGALRM},
		},
		{
			name: "only the last lines", cfg: script("seq 1 100000 >&2; exit 1"),
			message: "exit status 1: " + lines(99981, 100000), want: &command.Error{ExitCode: 1, Stderr: lines(99981, 100000)},
		},
		{
			name: "not executed", cfg: script("exit 75"),
			message: "exit status 75", want: &command.Error{ExitCode: 75}, is: tasks.ErrNotExecuted,
		},
		{
			name: "no such program", cfg: command.Config{Argv: []string{"./no-such-program"}},
			message: "not started: guardian: exec ./no-such-program: no such file or directory", is: fs.ErrNotExist,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := newHandler(t, c.cfg).Handle(t.Context(), newTask("", ""))
			if got != nil {
				t.Errorf("result %s beside an error", got)
			}
			exception, ok := errors.AsType[*tasks.Exception](err)
			if !ok {
				t.Fatalf("error %v is no exception", err)
			}
			if diff := cmp.Diff([]any{"CommandError", "", []any{c.message}}, []any{exception.Type, exception.Module, exception.Args}); diff != "" {
				t.Error(diff)
			}
			cause, ok := errors.AsType[*command.Error](err)
			if c.want != nil && (!ok || *cause != *c.want) {
				t.Errorf("cause %#v, want %#v", cause, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			executed := !errors.Is(err, tasks.ErrNotExecuted)
			if notStarted := cause.ExitCode < 0 && cause.Signal == 0; executed == (notStarted || cause.ExitCode == 75) {
				t.Errorf("%v: executed is %v", err, executed)
			}
		})
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		b.WriteString(strings.TrimSpace(jsonOf(i)) + "\n")
	}
	return strings.TrimSpace(b.String())
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// A part of a template that the task does not have can never fit.
func TestMissingParameter(t *testing.T) {
	t.Parallel()
	h := newHandler(t, command.Config{Argv: []string{"echo", "{{ .Params.day }}"}})
	_, err := h.Handle(t.Context(), newTask(`["positional"]`, `{"other": 1}`))
	if _, ok := errors.AsType[*tasks.PermanentError](err); !ok || !errors.Is(err, tasks.ErrBadArguments) || !strings.Contains(err.Error(), "day") {
		t.Errorf("error %v", err)
	}
	if exc, ok := errors.AsType[*tasks.Exception](err); !ok || exc.Type != "TypeError" || exc.Module != "builtins" {
		t.Errorf("exception %#v, want a TypeError", exc)
	}
}

func TestStderrIsLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := script(`printf 'one\r\n\ntwo\nhalf' >&2; head -c 20000 /dev/zero | tr '\0' x >&2`)
	cfg.Logger = slog.New(slog.NewJSONHandler(&out, nil))
	if _, err := newHandler(t, cfg).Handle(t.Context(), newTask("", "")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var entry struct {
			Line   string
			TaskID string `json:"task_id"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.TaskID != "the-id" {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, entry.Line)
	}
	x := strings.Repeat("x", 20000)
	want := []string{"one", "two", "half" + x[:8188], x[:8192], x[:20000-8188-8192]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// readyScript tells by a file that it runs, and then what it does on TERM.
func readyScript(t *testing.T, onTerm string) (cfg command.Config, ready func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready")
	cfg = command.Config{
		Argv: []string{"sh", "-c", "trap '" + onTerm + "' TERM; echo >$READY; while :; do sleep 0.02; done"},
		Env:  map[string]string{"READY": file},
	}
	return cfg, func() {
		t.Helper()
		testkit.Poll(t, 20*time.Second, time.Millisecond, func() bool {
			_, err := os.Stat(file)
			return err == nil
		}, "program runs")
	}
}

type returned struct {
	result json.RawMessage
	err    error
	after  time.Duration
}

// handle runs a handler in the background; end ends the run with a cause once
// it is ready, and returns what the handler returned.
func handle(t *testing.T, cfg command.Config, ready func(), cause error, wrap func(context.Context) context.Context) returned {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if wrap != nil {
		ctx = wrap(ctx)
	}
	out := make(chan returned, 1)
	h := newHandler(t, cfg)
	go func() {
		result, err := h.Handle(ctx, newTask("", ""))
		out <- returned{result: result, err: err}
	}()
	ready()
	began := time.Now()
	cancel(cause)
	r := <-out
	r.after = time.Since(began)
	return r
}

// What a program writes is its heartbeat, on either output.
func TestOutputIsAHeartbeat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"true": 0, "echo a": 1, "echo a >&2": 1, "echo a; sleep 0.2; echo b; sleep 0.2; echo c >&2": 3,
	} {
		var beats atomic.Int64
		ctx := tasks.ContextWithHeartbeat(t.Context(), func() { beats.Add(1) })
		if _, err := newHandler(t, script(text)).Handle(ctx, newTask("", "")); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if n := beats.Load(); n != want {
			t.Errorf("%s: %d heartbeats, want %d", text, n, want)
		}
	}
}

// A program under a lock whose loss is only observed has no deadline.
func TestObservedLockHasNoDeadline(t *testing.T) {
	t.Parallel()
	ctx := tasks.ContextWithValidity(t.Context(), noDeadline{})
	out, err := newHandler(t, script("sleep 0.3; echo done")).Handle(ctx, newTask("", ""))
	if err != nil || string(out) != `"done"` {
		t.Errorf("%s, %v", out, err)
	}
}

type noDeadline struct{}

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noDeadline) Changed() <-chan struct{}    { return nil }

func TestCancelled(t *testing.T) {
	t.Parallel()
	lost := &lockguard.LostError{Key: "report:lock", Reason: lockguard.ReasonTaken}
	for _, c := range []struct {
		name, onTerm string
		cause        error
		wantExit     int
		signal       syscall.Signal
		least, most  time.Duration
	}{
		{name: "timeout, ends in order", onTerm: "exit 4", cause: tasks.ErrTimeout, wantExit: 4, most: 4 * time.Second},
		{name: "shutdown, ends in order", onTerm: "exit 4", cause: tasks.ErrShutdown, wantExit: 4, most: 4 * time.Second},
		{name: "shutdown, exit 0 is no result", onTerm: "exit 0", cause: tasks.ErrShutdown, most: 4 * time.Second},
		{name: "max hold", onTerm: "exit 5", cause: lockguard.ErrMaxHold, wantExit: 5, most: 4 * time.Second},
		{
			name: "timeout, ignored", onTerm: "", cause: tasks.ErrTimeout, wantExit: -1, signal: syscall.SIGKILL,
			least: 4900 * time.Millisecond, most: 8 * time.Second,
		},
		{name: "lock lost", onTerm: "exit 6", cause: lost, wantExit: -1, signal: syscall.SIGKILL, most: 2 * time.Second},
		{name: "buried", onTerm: "exit 6", cause: tasks.ErrBuried, wantExit: -1, signal: syscall.SIGKILL, most: 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, ready := readyScript(t, c.onTerm)
			r := handle(t, cfg, ready, c.cause, nil)
			cause, ok := errors.AsType[*command.Error](r.err)
			if !ok || cause.ExitCode != c.wantExit || cause.Signal != c.signal {
				t.Fatalf("error %v, result %s", r.err, r.result)
			}
			if !errors.Is(r.err, c.cause) || !errors.Is(r.err, context.Canceled) {
				t.Errorf("%v tells neither cause nor cancellation", r.err)
			}
			if r.after < c.least || r.after > c.most {
				t.Errorf("ended after %v, want %v to %v", r.after, c.least, c.most)
			}
		})
	}
}

// lease is a validity that a test moves.
type lease struct {
	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{}
}

func newLease(d time.Duration) *lease {
	return &lease{deadline: time.Now().Add(d), changed: make(chan struct{})}
}

func (l *lease) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, !l.deadline.IsZero()
}

func (l *lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *lease) renew(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(d)
	close(l.changed)
	l.changed = make(chan struct{})
}

func TestValidity(t *testing.T) {
	t.Parallel()
	const ttl = 800 * time.Millisecond
	t.Run("passes", func(t *testing.T) {
		t.Parallel()
		l := newLease(ttl)
		deadline, _ := l.Deadline()
		lost := &lockguard.LostError{Key: "k", Reason: lockguard.ReasonExpired}
		ctx, cancel := context.WithCancelCause(tasks.ContextWithValidity(t.Context(), l))
		defer cancel(nil)
		// The loss is told after the guardian has acted.
		timer := time.AfterFunc(time.Until(deadline)+300*time.Millisecond, func() { cancel(lost) })
		defer timer.Stop()
		_, err := newHandler(t, script("trap '' TERM; sleep 300")).Handle(ctx, newTask("", ""))
		if after := time.Since(deadline); after < 0 || after > 3*time.Second {
			t.Errorf("returned %v after the deadline", after)
		}
		if cause, ok := errors.AsType[*command.Error](err); !ok || cause.Signal != syscall.SIGKILL || !errors.Is(err, lockguard.ErrLost) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("is renewed", func(t *testing.T) {
		t.Parallel()
		const ttl = 2 * time.Second
		l := newLease(ttl)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			tick := time.NewTicker(ttl / 4)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					l.renew(ttl)
				case <-stop:
					return
				}
			}
		}()
		got, err := newHandler(t, script("sleep 3; echo done")).Handle(tasks.ContextWithValidity(t.Context(), l), newTask("", ""))
		close(stop)
		<-stopped
		if err != nil || string(got) != `"done"` {
			t.Errorf("%s %v", got, err)
		}
	})
	t.Run("is over before the start", func(t *testing.T) {
		t.Parallel()
		_, err := newHandler(t, script("echo done")).Handle(tasks.ContextWithValidity(t.Context(), newLease(-time.Second)), newTask("", ""))
		if !errors.Is(err, tasks.ErrNotExecuted) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("is none", func(t *testing.T) {
		t.Parallel()
		got, err := newHandler(t, script("sleep 0.2; echo done")).Handle(tasks.ContextWithValidity(t.Context(), &lease{}), newTask("", ""))
		if err != nil || string(got) != `"done"` {
			t.Errorf("%s %v", got, err)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  command.Config
		want string
	}{
		{command.Config{}, "no program is named"},
		{command.Config{Argv: []string{""}}, "no program is named"},
		{command.Config{Argv: []string{"{{ .Params.p }}"}}, "would choose what is run"},
		{command.Config{Argv: []string{"sh", "-c", "echo {{ .Params.x }}"}}, "would be run as code"},
		{command.Config{Argv: []string{"env", "A=1", "python3", "-c", "print('{{ .Params.x }}')"}}, "would be run as code"},
		{command.Config{Argv: []string{"x", "{{ .Params.x"}}, "command[1]"},
		{command.Config{Argv: []string{"x", "{{ .Tick.UTC }}"}}, ".Tick"},
		{command.Config{Argv: []string{"x", "a\x00b"}}, "NUL"},
		{command.Config{Argv: []string{"x"}, Env: map[string]string{"A=B": ""}}, "no name of a variable"},
		{command.Config{Argv: []string{"x"}, Env: map[string]string{"A": "{{ .Job }}"}}, ".Job"},
		{command.Config{Argv: []string{"x"}, Env: map[string]string{"SOLOBEAT_RUN_FENCE": "1"}}, "choose another name"},
		{command.Config{Argv: []string{"x"}, Dir: "{{ .Params.x }}"}, "write it out"},
	} {
		err := c.cfg.Validate()
		if err == nil || !errors.Is(err, command.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
		if _, newErr := command.New(c.cfg); newErr == nil {
			t.Errorf("%+v: New takes it", c.cfg)
		}
	}
	two := command.Config{Argv: []string{"x", "{{ .Job }}", "{{ .Tick }}"}}
	if err := two.Validate(); err == nil || !strings.Contains(err.Error(), ".Job") || !strings.Contains(err.Error(), ".Tick") {
		t.Errorf("not all errors in one run: %v", err)
	}
}
