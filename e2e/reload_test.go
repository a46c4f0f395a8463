package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

const (
	reloads     = 1000
	reloadFleet = 3
	reloadJobs  = 8 // of each kind
)

// fleet are processes that read the same files.
type reloadedFleet struct {
	*stack
	procs            []*testkit.Proc
	offsets          []int64 // what was read of their logs
	config, schedule string
}

// replace puts a file in place of the old one, by one of the ways in which
// people and programs do that.
func (f *reloadedFleet) replace(path, text string) {
	f.t.Helper()
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	switch rand.IntN(3) {
	case 0: // written in place
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			must(os.Remove(path))
		}
		must(os.WriteFile(path, []byte(text), 0o600))
	case 1: // renamed over
		must(os.WriteFile(path+".new", []byte(text), 0o600))
		must(os.Rename(path+".new", path))
	default: // a link that is swapped
		target := fmt.Sprintf("%s.%d", path, rand.IntN(1000))
		must(os.WriteFile(target, []byte(text), 0o600))
		_ = os.Remove(path + ".link")
		must(os.Symlink(target, path+".link"))
		must(os.Rename(path+".link", path))
	}
}

// hangup orders all processes to reload, and waits until each has written
// the word since the last order.
func (f *reloadedFleet) hangup(word string) {
	f.t.Helper()
	for i, p := range f.procs {
		f.offsets[i] += int64(len(p.StderrFrom(f.offsets[i])))
	}
	for _, p := range f.procs {
		p.Signal(syscall.SIGHUP)
	}
	for i, p := range f.procs {
		testkit.Poll(f.t, time.Minute, 2*time.Millisecond, func() bool {
			return strings.Contains(p.StderrFrom(f.offsets[i]), word)
		}, "%s writes %q", p.Name, word)
	}
}

// scheduleVersion is version n of the schedule: steady jobs do not change,
// moving ones change their revision and not their ticks, and one job is there
// in every second version only.
func scheduleVersion(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\ndefaults: {misfire: {policy: all}}\njobs:\n")
	for i := range reloadJobs {
		fmt.Fprintf(&b, "  steady-%d: {task: tests.tick, every: 1s, kwargs: {version: %d}}\n", i, n)
		fmt.Fprintf(&b, "  moving-%d: {task: tests.tick, every: 1s, timezone: %s}\n", i, []string{"UTC", "Europe/Berlin", "Asia/Tokyo"}[n%3])
	}
	if n%2 == 1 {
		b.WriteString("  now-and-then: {task: tests.tick, every: 1s}\n")
	}
	return b.String()
}

func configVersion(s *stack, n int) string {
	return fmt.Sprintf("redis: {url: %s}\nmetrics: {listen: '127.0.0.1:0'}\nlog: {format: json}\nschedule: {file: schedule.yaml}\ntasks:\n  tests.other: {timeout: %ds}\n",
		s.redis.URL(0), 1+n%5)
}

// spoil makes a bad file of a good one.
func spoil(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	at := 3 + rand.IntN(len(lines)-4)
	switch n % 6 {
	case 0:
		return ""
	case 1: // cut off within a line
		return strings.Join(lines[:at], "") + lines[at][:len(lines[at])/2]
	case 2:
		return text + "  broken: {task: tests.tick, every: 1s, kwargs: {day: '{{ .Nope'}}\n"
	case 3:
		return text + "  steady-0: {task: tests.tick, every: 1s}\n"
	case 4:
		return strings.Replace(text, "every: 1s", "every: 1 second", 1)
	default:
		return "\x00\xff" + text
	}
}

// 1,000 reloads, good and bad files alternating, half of them around whole
// seconds, when all jobs are due: three schedulers publish each tick once. A
// stop and start instead loses ticks, and so does taking what is good of a bad
// file (scheduler/schedredis, TestReplaceNaiveLosesTicks, under the same load).
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	f := &reloadedFleet{stack: s, config: filepath.Join(s.dir, "solobeat.yaml"), schedule: filepath.Join(s.dir, "schedule.yaml")}
	f.replace(f.config, configVersion(s, 0))
	f.replace(f.schedule, scheduleVersion(0))
	w := s.watchQueue(guardOf)
	for i := range reloadFleet {
		p := testkit.Start(t, fmt.Sprintf("s%d", i), nil, s.bin, "scheduler", "-c", f.config)
		p.WaitOutput(time.Minute, `"msg":"scheduler registered"`)
		f.procs, f.offsets = append(f.procs, p), append(f.offsets, 0)
	}
	from := (s.redisMillis()/1000 + 1) * 1000
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool { return s.redisMillis() > from }, "the first tick is due")
	began := time.Now()
	for n := range reloads {
		version := 1 + n/2
		if n%2 == 0 {
			f.replace(f.config, configVersion(s, version))
			f.replace(f.schedule, scheduleVersion(version))
			f.nearSecond(n)
			f.hangup(`"msg":"schedule replaced"`)
			continue
		}
		if n%4 == 1 {
			f.replace(f.schedule, spoil(scheduleVersion(version+1), n/4))
		} else {
			f.replace(f.config, spoil(configVersion(s, version+1), 2)) // no such key
		}
		f.nearSecond(n)
		f.hangup(`"msg":"configuration not reloaded`)
	}
	took := time.Since(began)
	to := s.redisMillis() / 1000 * 1000
	want := 2 * reloadJobs * int((to-from)/1000+1)
	counted := func() []published {
		return slices.DeleteFunc(w.within(from, to), func(p published) bool { return p.job == "now-and-then" })
	}
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool { return len(counted()) >= want || s.redisMillis() > to+10_000 }, "the last ticks")
	twice, early := twiceAndEarly(w.list())
	if got := len(counted()); got != want || twice != 0 || early != 0 {
		t.Errorf("%d messages of %d, %d twice, %d early", got, want, twice, early)
	}
	for _, p := range f.procs {
		if !p.Alive() {
			t.Errorf("%s ended", p.Name)
		}
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(30 * time.Second); code != 0 {
			t.Errorf("%s ended with %d", p.Name, code)
		}
	}
	t.Logf("%d reloads of %d processes in %s: %d ticks, %d twice, %d early", reloads, reloadFleet, took.Round(time.Second), len(counted()), twice, early)
}

// nearSecond waits, before every second reload, for the moments around a whole
// second if they are near.
func (f *reloadedFleet) nearSecond(n int) {
	if n%4 > 1 {
		return
	}
	now := f.redisMillis()
	if left := 1000 - now%1000; left < 120 {
		target := now + left - 3 + rand.Int64N(10)
		testkit.Poll(f.t, time.Minute, time.Millisecond, func() bool { return f.redisMillis() >= target }, "a whole second")
	}
}
