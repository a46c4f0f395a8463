package schedredis_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestAdhocLoad(t *testing.T) {
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	at := (serverMillis(t, rdb)/1000 + 12) * 1000
	const jobs = 10000
	var list []*scheduler.Job
	for i := range jobs {
		spec := scheduler.SpecConfig{At: time.UnixMilli(at).UTC().Format(time.RFC3339)}
		s, _, err := scheduler.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &scheduler.Job{Name: fmt.Sprintf("j%05d", i), Task: "tests.tick", Spec: spec, Schedule: s,
			Lock: &scheduler.JobLock{}, Record: &scheduler.JobRecord{}, Kwargs: map[string]any{"day": "{{ .Tick.Local | date }}"}})
	}
	t0 := time.Now()
	for i := range 3 {
		start(t, srv.Client(t), fmt.Sprint("r", i), "a", list)
	}
	t.Logf("3 x New+start: %s", time.Since(t0))
	wait(t, rdb, at-6000)
	c0 := cpu()
	wait(t, rdb, at-1000)
	t.Logf("idle cpu of 3 replicas + witness in 5 s: %s", cpu()-c0)
	wait(t, rdb, at)
	testkit.Poll(t, 30*time.Second, 5*time.Millisecond, func() bool { return len(w.list()) >= jobs }, "messages")
	var most time.Duration
	for _, s := range w.list() {
		most = max(most, s.late())
	}
	t.Logf("10000 ticks of one second: last %s late; cpu %s", most, cpu()-c0)
}
