package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
)

const scrapeA = `# TYPE solobeat_schedule_ticks_total counter
solobeat_schedule_ticks_total{outcome="enqueued",schedule="hourly-report"} 4
solobeat_schedule_ticks_total{outcome="duplicate",schedule="hourly-report"} 2
# TYPE solobeat_record_decisions_total counter
solobeat_record_decisions_total{decision="claimed",schedule="hourly-report"} 5
solobeat_record_decisions_total{decision="takeover",schedule="hourly-report"} 1
solobeat_record_decisions_total{decision="completed",schedule="hourly-report"} 9
# TYPE solobeat_stood_aside_total counter
solobeat_stood_aside_total{at="tick",schedule="hourly-report"} 2
solobeat_stood_aside_total{at="lock",schedule="hourly-report"} 1
# TYPE solobeat_lock_renewals_total counter
solobeat_lock_renewals_total{backend="redis",lock="l",result="ok"} 7
solobeat_lock_renewals_total{backend="redis",lock="l",result="failed"} 3
# TYPE solobeat_lock_outlived_total counter
solobeat_lock_outlived_total{lock="l",schedule="hourly-report"} 1
# TYPE solobeat_lock_lost_total counter
solobeat_lock_lost_total{lock="l",reason="gone",schedule="hourly-report"} 0
solobeat_lock_lost_total{lock="l",reason="taken",schedule="hourly-report"} 2
`

const scrapeB = `# TYPE solobeat_schedule_ticks_total counter
solobeat_schedule_ticks_total{outcome="enqueued",schedule="hourly-report"} 2
`

func TestSummarize(t *testing.T) {
	t.Parallel()
	commits := []Commit{
		{Tick: "u", PID: 1},
		{Tick: "u", PID: 2},
		{Tick: "a", PID: 3, Guarded: true},
		{Tick: "b", PID: 3, Guarded: true},
		{Tick: "b", PID: 4, Guarded: true},
	}
	got, perTick, err := summarize([][]byte{[]byte(scrapeA), []byte(scrapeB)}, commits, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{
		Published: 6, Runs: 6, StoodAside: 3, Reports: 3, Duplicates: 1, Takeovers: 1, Renewals: 7, Outlived: 1, Lost: 2, UnguardedReports: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 2}, perTick); diff != "" {
		t.Error(diff)
	}
	if _, _, err := summarize([][]byte{[]byte("no { metrics")}, nil, nil); err == nil {
		t.Error("a scrape that is none is taken")
	}
}

func TestOptionsCheck(t *testing.T) {
	t.Parallel()
	good := Options{Replicas: 4, Tick: 5 * time.Second, Ticks: 6}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"--replicas 1":  func(o *Options) { o.Replicas = 1 },
		"--replicas 17": func(o *Options) { o.Replicas = 17 },
		"--tick 3s":     func(o *Options) { o.Tick = 3 * time.Second },
		"--tick 4.5s":   func(o *Options) { o.Tick = 4500 * time.Millisecond },
		"--tick 2h0m0s": func(o *Options) { o.Tick = 2 * time.Hour },
		"--ticks 2":     func(o *Options) { o.Ticks = 2 },
		"--ticks 1001":  func(o *Options) { o.Ticks = 1001 },
	} {
		o := good
		change(&o)
		var bad *OptionError
		if err := o.check(); !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	var bad *OptionError
	if _, err := openStore(t.Context(), "http://:hush@localhost"); !errors.As(err, &bad) || strings.Contains(err.Error(), "hush") {
		t.Errorf("a URL that is none: %v", err)
	}
}

// The files that the replicas run from are files as people write them: without
// a warning, and with the job that the demo is about.
func TestFilesAreSound(t *testing.T) {
	t.Parallel()
	for _, unsafe := range []bool{false, true} {
		dir := t.TempDir()
		if err := prepareDir(dir, 4); err != nil {
			t.Fatal(err)
		}
		s := &store{url: "redis://localhost:1/0", prefix: "p:", namespace: "n"}
		if err := writeFiles(dir, s, 5*time.Second, unsafe); err != nil {
			t.Fatal(err)
		}
		cfg, problems, err := config.Load(filepath.Join(dir, configFile), nil)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v %v", err, problems)
		}
		jobs, problems, err := config.LoadSchedule(cfg.Schedule.File)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v %v", err, problems)
		}
		j := jobs[0]
		if len(jobs) != 1 || j.Task != TaskName || (j.Lock == nil) != unsafe || (j.Record == nil) != unsafe {
			t.Errorf("unsafe %v: job %+v", unsafe, j)
		}
		if !unsafe && (j.Lock.TTL != lockTTL || j.Lock.Renew != 800*time.Millisecond) {
			t.Errorf("lock %+v", j.Lock)
		}
		ticks := scheduler.Upcoming(j.Schedule, time.Unix(1700000001, 0), 2)
		if d := ticks[1].At.Sub(ticks[0].At); d != 5*time.Second {
			t.Errorf("an hour of %s", d)
		}
	}
}

// Lines of several processes never mix: here many writers in one.
func TestCommitsDoNotMix(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if commits, err := readCommits(dir); err != nil || commits != nil {
		t.Errorf("no file: %v %v", commits, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if err := commit(dir, Commit{Tick: strings.Repeat("t", 200), PID: i, Guarded: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if commits, err := readCommits(dir); err != nil || len(commits) != 400 {
		t.Errorf("%d lines, %v", len(commits), err)
	}
	if err := os.WriteFile(filepath.Join(dir, commitsFile), []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readCommits(dir); err == nil {
		t.Error("a broken line is not told")
	}
}

// A report that is cancelled before its time is not committed.
func TestReportIsCommittedAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		began := time.Now()
		r, err := formReport(t.Context(), dir, "tick", usualTakes, 7, true)
		if err != nil || time.Since(began) != usualTakes || r.Orders == 0 || r.Total <= 0 {
			t.Errorf("%+v %v after %s", r, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := formReport(ctx, dir, "tick", usualTakes, 8, true); err == nil {
			t.Error("a cancelled report is formed")
		}
		commits, err := readCommits(dir)
		if err != nil || len(commits) != 1 || commits[0].Fence != 7 || commits[0].PID != os.Getpid() {
			t.Errorf("%+v %v", commits, err)
		}
	})
}

// The schedulers start after one tick is over, with time to spare before the
// next one: that one is the first for all.
func TestFirstTickIsMetByAll(t *testing.T) {
	t.Parallel()
	for offset := range 50 {
		synctest.Test(t, func(t *testing.T) {
			<-time.After(time.Duration(offset) * 137 * time.Millisecond)
			st := &stage{o: Options{Tick: 5 * time.Second}, store: &store{clock: func() time.Duration { return 0 }}}
			first, err := st.beforeFirstTick(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			before := first.Add(-st.o.Tick)
			if first.Truncate(st.o.Tick) != first || now.Sub(before) < tickOver || first.Sub(now) < leadTime-tickOver {
				t.Errorf("at %s the schedulers start for %s", now.Format("05.000"), first.Format("05.000"))
			}
		})
	}
}

// A replica waits for the order to schedule, and one to stop ends the
// scheduler but not the process.
func TestChildObeys(t *testing.T) {
	t.Parallel()
	orders, parent := io.Pipe()
	events, out := io.Pipe()
	c := newChild(t.TempDir(), 3, out)
	obeyed := make(chan struct{})
	go func() { defer close(obeyed); c.obey(orders) }()
	ran := make(chan string, 2)
	go func() {
		_ = c.Gate(t.Context(), func(ctx context.Context) error {
			ran <- "runs"
			<-ctx.Done()
			ran <- "stopped"
			return nil
		})
	}()
	select {
	case <-ran:
		t.Fatal("the scheduler runs without an order")
	default:
	}
	send := func(order string) {
		if _, err := io.WriteString(parent, order+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	send(orderSchedule)
	if s := <-ran; s != "runs" {
		t.Error(s)
	}
	send(orderUnschedule)
	send(orderUnschedule) // twice is no harm
	if s := <-ran; s != "stopped" {
		t.Error(s)
	}
	go c.Fired(time.Unix(1700000000, 0))
	line, err := bufio.NewReader(events).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event != "claimed" || e.Replica != 3 || e.Tick != "2023-11-14T22:13:20Z" {
		t.Errorf("%v %q", err, line)
	}
	_ = parent.Close()
	<-obeyed
}

// The demo's corner of a real server is emptied, and nothing else.
func TestStoreRemovesItsKeysOnly(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb, ctx := srv.Client(t), t.Context()
	s, err := openStore(ctx, srv.URL(0))
	if err != nil {
		t.Fatal(err)
	}
	foreign := []string{"celery", "unacked", "solobeat:default:lock:x", "solobeat-demo-other:celery"}
	for _, key := range append([]string{s.prefix + "celery", s.prefix + "solobeat:" + s.namespace + ":x"}, foreign...) {
		rdb.Set(ctx, key, "1", 0)
	}
	for i := range 3000 {
		rdb.Set(ctx, s.prefix+"many:"+strings.Repeat("x", i%7)+time.Duration(i).String(), "1", 0)
	}
	if off, err := s.clockOffset(ctx); err != nil || off.Abs() > time.Second {
		t.Errorf("clock offset %s, %v", off, err)
	}
	if err := s.close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := rdb.DBSize(ctx).Val(); n != int64(len(foreign)) || rdb.Exists(ctx, foreign...).Val() != n {
		t.Errorf("%d keys are left: %q", n, rdb.Keys(ctx, "*").Val())
	}
}

// The embedded store's TTLs run by themselves.
func TestEmbeddedStoreTicks(t *testing.T) {
	t.Parallel()
	s, err := openStore(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Set(t.Context(), "k", "1", 200*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return c.Exists(t.Context(), "k").Val() == 0 }, "the key expires")
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}
