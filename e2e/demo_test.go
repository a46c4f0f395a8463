package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

// What the demo writes, as an outsider reads it.
type (
	demoSummary struct {
		Ticks            int         `json:"ticks"`
		Published        int         `json:"published"`
		Runs             int         `json:"runs"`
		StoodAside       int         `json:"stood_aside"`
		Reports          int         `json:"reports"`
		Duplicates       int         `json:"duplicates"`
		Takeovers        int         `json:"takeovers"`
		Renewals         int         `json:"renewals"`
		Outlived         int         `json:"outlived"`
		Lost             int         `json:"lost"`
		UnguardedReports int         `json:"unguarded_reports"`
		Timeline         []demoEvent `json:"timeline"`
	}
	demoEvent struct {
		MS      int64  `json:"ms"`
		Tick    string `json:"tick"`
		Replica int    `json:"replica"`
		PID     int    `json:"pid"`
		Event   string `json:"event"`
		Fence   uint64 `json:"fence"`
		Detail  string `json:"detail"`
	}
	demoCommit struct {
		Tick    string `json:"tick"`
		PID     int    `json:"pid"`
		Fence   uint64 `json:"fence"`
		Guarded bool   `json:"guarded"`
	}
	demoReplica struct {
		Replica int    `json:"replica"`
		PID     int    `json:"pid"`
		Metrics string `json:"metrics"`
	}
)

// demoRun is a demo in another process, in a folder.
type demoRun struct {
	*testkit.Proc
	t   *testing.T
	dir string
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	argv := append([]string{testkit.Binary(t), "demo", "--dir", dir}, args...)
	return &demoRun{Proc: testkit.Start(t, "demo", nil, argv...), t: t, dir: dir}
}

func (d *demoRun) read(name string, into any) error {
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func (d *demoRun) summary() demoSummary {
	d.t.Helper()
	var s demoSummary
	if err := d.read("summary.json", &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *demoRun) commits() []demoCommit {
	d.t.Helper()
	var all []demoCommit
	for _, line := range lines(d.t, filepath.Join(d.dir, "commits.jsonl")) {
		var c demoCommit
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			d.t.Fatalf("commits.jsonl: %v: %q", err, line)
		}
		all = append(all, c)
	}
	return all
}

// witness polls the replicas' metrics and pids from outside. Processes are
// told apart by their start, since a restarted one has the address of the
// killed one.
type witness struct {
	d       *demoRun
	stopped chan struct{}

	mu      sync.Mutex
	scrapes map[string]string // address and start of the process → its last scrape
	seen    map[int]bool      // pids that were alive
	gone    map[int]bool      // pids that were alive and are not any more
}

func (d *demoRun) witness() *witness {
	w := &witness{d: d, stopped: make(chan struct{}), scrapes: map[string]string{}, seen: map[int]bool{}, gone: map[int]bool{}}
	go func() {
		defer close(w.stopped)
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-d.Exited():
				return
			case <-tick.C:
				w.look()
			}
		}
	}()
	d.t.Cleanup(func() { <-w.stopped })
	return w
}

var processStart = regexp.MustCompile(`(?m)^process_start_time_seconds (\S+)$`)

func (w *witness) look() {
	var replicas []demoReplica
	if w.d.read("replicas.json", &replicas) != nil {
		return // not written yet
	}
	for _, r := range replicas {
		state, _, ok := stat(r.PID)
		w.mu.Lock()
		switch {
		case ok && state != "Z":
			w.seen[r.PID] = true
		case w.seen[r.PID]:
			w.gone[r.PID] = true
		}
		w.mu.Unlock()
		body, err := scrapeAddr(r.Metrics)
		if err != nil {
			continue
		}
		if m := processStart.FindStringSubmatch(body); m != nil {
			w.mu.Lock()
			w.scrapes[r.Metrics+" "+m[1]] = body
			w.mu.Unlock()
		}
	}
}

func scrapeAddr(addr string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// series sums the samples of a metric that have all these label texts.
func series(body, name string, labels ...string) int {
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
		match := true
		for _, l := range labels {
			match = match && strings.Contains(m[1], l)
		}
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && match {
			sum += v
		}
	}
	return int(sum)
}

// recount makes the summary again, from what the witness saw.
func (w *witness) recount() demoSummary {
	w.mu.Lock()
	defer w.mu.Unlock()
	var s demoSummary
	for _, body := range w.scrapes {
		s.Published += series(body, "solobeat_schedule_ticks_total", `outcome="enqueued"`)
		s.Takeovers += series(body, "solobeat_record_decisions_total", `decision="takeover"`)
		s.Runs += series(body, "solobeat_record_decisions_total", `decision="claimed"`) + series(body, "solobeat_record_decisions_total", `decision="takeover"`)
		s.StoodAside += series(body, "solobeat_stood_aside_total")
		s.Renewals += series(body, "solobeat_lock_renewals_total", `result="ok"`)
		s.Outlived += series(body, "solobeat_lock_outlived_total")
		s.Lost += series(body, "solobeat_lock_lost_total")
	}
	perTick := map[string]int{}
	for _, c := range w.d.commits() {
		if !c.Guarded {
			s.UnguardedReports++
			continue
		}
		s.Reports++
		perTick[c.Tick]++
	}
	s.Ticks = len(perTick)
	for _, n := range perTick {
		s.Duplicates += n - 1
	}
	return s
}

// check holds the demo's summary against the promise and against the witness.
func (w *witness) check(ticks int) {
	t := w.d.t
	t.Helper()
	<-w.stopped
	got := w.d.summary()
	t.Logf("summary: %+v", withoutTimeline(got))
	want := got
	want.Ticks, want.Published, want.Reports, want.Duplicates, want.Takeovers = ticks, ticks, ticks, 0, 1
	want.Runs, want.Outlived, want.Lost, want.UnguardedReports = ticks+1, 1, 0, 4
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary.json (-want +got):\n%s", diff)
	}
	if got.StoodAside < 3*ticks-6 || got.Renewals < ticks {
		t.Errorf("stood_aside %d, renewals %d: too few", got.StoodAside, got.Renewals)
	}
	// The killed replica may have renewed once between the demo's last scrape
	// of it and the witness's.
	seen := w.recount()
	if d := seen.Renewals - got.Renewals; d < -1 || d > 1 {
		t.Errorf("renewals %d, the witness counts %d", got.Renewals, seen.Renewals)
	}
	seen.Renewals, seen.Timeline = got.Renewals, got.Timeline
	if diff := cmp.Diff(seen, got); diff != "" {
		t.Errorf("summary.json differs from what the witness counted (-witness +summary):\n%s", diff)
	}
	w.checkKill(got)
	w.checkUnguarded()
}

func withoutTimeline(s demoSummary) demoSummary {
	s.Timeline = nil
	return s
}

func (w *witness) checkKill(s demoSummary) {
	t := w.d.t
	t.Helper()
	i := slices.IndexFunc(s.Timeline, func(e demoEvent) bool { return e.Event == "killed" })
	if i < 0 {
		t.Fatalf("no kill in the timeline: %+v", s.Timeline)
	}
	kill := s.Timeline[i]
	if kill.Detail != syscall.SIGKILL.String() {
		t.Errorf("the killed replica ended by %q", kill.Detail)
	}
	if !w.seen[kill.PID] || !w.gone[kill.PID] {
		t.Errorf("pid %d: seen alive %v, seen gone %v", kill.PID, w.seen[kill.PID], w.gone[kill.PID])
	}
	commits := 0
	for _, c := range w.d.commits() {
		if !c.Guarded || c.Tick != kill.Tick {
			continue
		}
		commits++
		if c.PID == kill.PID {
			t.Errorf("the killed pid %d has committed tick %s", c.PID, c.Tick)
		}
		if kill.Fence == 0 || c.Fence <= kill.Fence {
			t.Errorf("fence %d of the takeover is not above %d of the killed run", c.Fence, kill.Fence)
		}
	}
	if commits != 1 {
		t.Errorf("%d reports of the killed tick", commits)
	}
}

func (w *witness) checkUnguarded() {
	t := w.d.t
	t.Helper()
	pids, ticks := map[int]bool{}, map[string]bool{}
	for _, c := range w.d.commits() {
		if !c.Guarded {
			pids[c.PID], ticks[c.Tick] = true, true
		}
	}
	if len(pids) != 4 || len(ticks) != 1 {
		t.Errorf("unguarded reports by %d pids for %d ticks, want 4 for 1", len(pids), len(ticks))
	}
}

// The demo, played several times at once.
func TestDemo(t *testing.T) {
	t.Parallel()
	testkit.Binary(t)
	parts := []subtest{
		{"embedded store", demoEmbedded},
		{"real server", demoOnARealServer},
		{"asynq on a real server", demoOnAsynq},
		{"unsafe", demoUnsafeFails},
		{"folder used again", demoUsesAFolderAgain},
	}
	together(t, append(append(parts, demoEnds()...), demoBadFlags(t)...)...)
}

// As a newcomer runs it, with a witness outside.
func demoEmbedded(t *testing.T) {
	began := time.Now()
	d := startDemo(t, "--once", "--ticks", "6")
	w := d.witness()
	if code := d.Wait(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("took %s", time.Since(began).Round(100*time.Millisecond))
	w.check(6)
	if !regexp.MustCompile(`(?m)^Summary: 6 hours, 6 reports, 0 duplicates, 1 takeover`).MatchString(d.Stdout()) {
		t.Errorf("no summary line in\n%s", d.Stdout())
	}
	for _, name := range []string{"schedule.yaml", "solobeat.yaml", "replica-1.log", "metrics/replica-1.prom"} {
		if info, err := os.Stat(filepath.Join(d.dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The demo on a real server that an app's Celery uses: its queue and what is
// unacked stay untouched, and afterwards no key of the demo is left.
func demoOnARealServer(t *testing.T) {
	ctx := t.Context()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	for i := range 20 {
		rdb.LPush(ctx, "celery", fmt.Sprintf(`{"body": "W10=", "headers": {"id": "app-%d", "task": "app.task"}, "properties": {}}`, i))
	}
	rdb.HSet(ctx, "unacked", "tag-1", `[{"headers": {"id": "app-x"}}, "", "celery"]`, "tag-2", "[]")
	rdb.ZAdd(ctx, "unacked_index", redisZ(1, "tag-1"), redisZ(float64(time.Now().Unix()), "tag-2"))
	rdb.SAdd(ctx, "_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
	state := func() string {
		var all []string
		for _, key := range slices.Sorted(slices.Values(rdb.Keys(ctx, "*").Val())) {
			if !strings.Contains(key, "demo-") {
				all = append(all, key+" "+strconv.Quote(rdb.Dump(ctx, key).Val()))
			}
		}
		return strings.Join(all, "\n")
	}
	before := state()
	d := startDemo(t, "--once", "--ticks", "6", "--redis", srv.URL(0), "-o", "json")
	w := d.witness()
	own := 0
	testkit.Poll(t, 2*time.Minute, 200*time.Millisecond, func() bool {
		if now := state(); now != before {
			t.Fatalf("the app's keys changed:\n%s\nwere\n%s", now, before)
		}
		own = max(own, len(rdb.Keys(ctx, "solobeat-demo-*").Val()))
		return !d.Alive()
	}, "the demo ends")
	if code := d.Wait(time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.check(6)
	if own == 0 {
		t.Error("the demo's keys were not seen: this test sees nothing")
	}
	if keys := rdb.Keys(ctx, "*").Val(); len(keys) != 4 || state() != before {
		t.Errorf("keys after the demo: %q", keys)
	}
	var printed, written map[string]any
	if err := json.Unmarshal([]byte(d.Stdout()), &printed); err != nil {
		t.Fatalf("-o json printed no single JSON value: %v\n%s", err, d.Stdout())
	}
	if err := d.read("summary.json", &written); err != nil || !cmp.Equal(printed, written) {
		t.Errorf("-o json and summary.json differ: %v %s", err, cmp.Diff(written, printed))
	}
	names := slices.Sorted(maps.Keys(printed))
	want := []string{"duplicates", "lost", "outlived", "published", "renewals", "reports", "runs", "stood_aside", "takeovers", "ticks", "timeline", "unguarded_reports"}
	if !slices.Equal(names, want) {
		t.Errorf("keys of summary.json: %v", names)
	}
}

// The same figures with the other engine, whose lease decides when the killed
// replica's task comes back; no key of the demo is left on a server that has
// other queues.
func demoOnAsynq(t *testing.T) {
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	if _, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(t.Context(), asynq.NewTask("app", nil), asynq.TaskID("t"), asynq.Queue("app")); err != nil {
		t.Fatal(err)
	}
	before := slices.Sorted(slices.Values(rdb.Keys(t.Context(), "*").Val()))
	began := time.Now()
	d := startDemo(t, "--once", "--ticks", "6", "--engine", "asynq", "--redis", srv.URL(0))
	w := d.witness()
	if code := d.Wait(5 * time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	took := time.Since(began)
	t.Logf("took %s", took.Round(100*time.Millisecond))
	if took > 240*time.Second {
		t.Errorf("took %s", took)
	}
	w.check(6)
	if after := slices.Sorted(slices.Values(rdb.Keys(t.Context(), "*").Val())); !slices.Equal(before, after) {
		t.Errorf("keys after the demo: %q, before %q", after, before)
	}
}

// Without its guards the demo fails: it can see what it claims to prevent.
func demoUnsafeFails(t *testing.T) {
	d := startDemo(t, "--once", "--ticks", "3", "--unsafe")
	if code := d.Wait(2 * time.Minute); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if s := d.summary(); s.Duplicates < 1 {
		t.Errorf("summary: %+v", withoutTimeline(s))
	}
}

// Ctrl-C before and after the summary, and kill -9: no process and no key is
// left.
func demoEnds() (parts []subtest) {
	for _, tc := range []struct {
		name   string
		until  string
		signal syscall.Signal
		code   int
	}{
		{"Ctrl-C among the cron jobs", `1\. Four cron jobs`, syscall.SIGINT, 130},
		{"Ctrl-C among the replicas", `all are up`, syscall.SIGINT, 130},
		{"Ctrl-C after the summary", `Ctrl-C ends them`, syscall.SIGINT, 0},
		{"kill -9 among the cron jobs", `1\. Four cron jobs`, syscall.SIGKILL, -1},
		{"kill -9 among the replicas", `all are up`, syscall.SIGKILL, -1},
	} {
		parts = append(parts, subtest{tc.name, func(t *testing.T) {
			srv := testkit.Redis(t)
			d := startDemo(t, "--ticks", "3", "--redis", srv.URL(0))
			d.WaitOutput(2*time.Minute, tc.until)
			var tree []int
			testkit.Poll(t, 30*time.Second, 10*time.Millisecond, func() bool {
				tree = descendants(d.Pid)
				return len(tree) >= 4
			}, "four children")
			d.Signal(tc.signal)
			if code := d.Wait(30 * time.Second); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			gone(t, tree, 5*time.Second)
			if tc.signal == syscall.SIGKILL {
				return // nobody is left to remove the keys
			}
			if keys := srv.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
				t.Errorf("keys are left: %q", keys)
			}
		}})
	}
	return parts
}

// What the demo refuses, it refuses at once and by name.
func demoBadFlags(t *testing.T) (parts []subtest) {
	t.Helper()
	for name, tc := range map[string]struct {
		args []string
		code int
		text string
	}{
		"ticks":    {[]string{"--ticks", "2"}, 2, "--ticks 2: 3 to 1000"},
		"replicas": {[]string{"--replicas", "1"}, 2, "--replicas 1: 2 to 16"},
		"tick":     {[]string{"--tick", "1s"}, 2, "--tick 1s"},
		"no Redis": {[]string{"--redis", "redis://:hush-hush@" + testkit.FreeAddr(t) + "/0"}, 1, "is --redis right?"},
		"bad URL":  {[]string{"--redis", "http://:hush-hush@localhost/0"}, 2, "--redis"},
	} {
		parts = append(parts, subtest{name, func(t *testing.T) {
			d := startDemo(t, tc.args...)
			code := d.Wait(30 * time.Second)
			out := d.Stdout() + d.Stderr()
			if code != tc.code || !strings.Contains(out, tc.text) || strings.Contains(out, "hush-hush") {
				t.Errorf("exit %d, want %d; output %q, want %q in it and no password", code, tc.code, out, tc.text)
			}
		}})
	}
	return parts
}

// The files of an earlier demo in the same folder are emptied first.
func demoUsesAFolderAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"commits.jsonl", "replica-1.log", "summary.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := startDemo(t, "--dir", dir)
	d.WaitOutput(time.Minute, `all are up`)
	d.Signal(syscall.SIGINT)
	d.Wait(30 * time.Second)
	for _, name := range []string{"commits.jsonl", "replica-1.log"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Contains(b, []byte("old\n")) {
			t.Errorf("%s: %v %q", name, err, b)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "summary.json")); !os.IsNotExist(err) {
		t.Errorf("summary.json of the earlier demo: %v", err)
	}
}

func redisZ(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
