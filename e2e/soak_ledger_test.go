package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// told is what the log of one process says, read once it has ended.
type told struct {
	w *worker
	// done are the tasks whose record it has completed: it says so, or died at
	// a place behind it.
	done map[string]bool
	// lost are the keys of the locks that it lost in mid-run.
	lost            []string
	warnings, lines int
	takeovers       int
}

var (
	succeededRE = regexp.MustCompile(`"msg":"task (?:succeeded|replayed)".*"task_id":"([^"]+)"`)
	behindRE    = regexp.MustCompile(`^failpoint (?:after-record|before-ack): .*\[(\S+)\]`)
	lostRE      = regexp.MustCompile(`"msg":"lock was lost while its function runs","key":"([^"]+)"`)
	pointRE     = regexp.MustCompile(`(?m)^failpoint (\S+): kill -9`)
)

func (w *worker) tells() *told {
	t := &told{w: w, done: map[string]bool{}}
	for line := range strings.Lines(w.Stderr()) {
		t.lines++
		if m := succeededRE.FindStringSubmatch(line); m != nil {
			t.done[m[1]] = true
			continue
		}
		if m := behindRE.FindStringSubmatch(line); m != nil {
			t.done[m[1]] = true
		}
		if m := lostRE.FindStringSubmatch(line); m != nil {
			t.lost = append(t.lost, m[1])
		}
		if strings.Contains(line, `"msg":"took over a message"`) {
			t.takeovers++
		}
		if strings.Contains(line, `"level":"warn"`) || strings.Contains(line, `"level":"error"`) || !strings.HasPrefix(line, "{") {
			t.warnings++
		}
	}
	return t
}

// account is what all processes and the witness tell together.
type account struct {
	byPid   map[int]*told
	effects []witnessLine
}

// settle waits until all is done, ends the workers, and draws up the account.
func (s *soak) settle() *account {
	s.t.Helper()
	s.results()
	s.idle(time.Minute)
	s.progress("every result is there, nothing is queued, taken or parked")
	s.burialsOver()
	s.noGrowth()
	s.endWatch()
	for _, w := range s.steady {
		w.Signal(syscall.SIGTERM)
	}
	if s.fleet != nil {
		s.fleet.end()
	}
	for _, w := range s.steady {
		if code := w.Wait(30 * time.Second); code != 0 {
			s.t.Errorf("%s ended with %d", w.Name, code)
		}
	}
	s.registriesEmpty()
	s.nothingLeft()
	a := &account{byPid: map[int]*told{}, effects: s.lines("effect")}
	for _, w := range s.everyWorker() {
		t := w.tells()
		a.byPid[w.Pid] = t
		s.row.takeovers += t.takeovers
		s.row.lost += len(t.lost)
		s.row.warnings, s.row.lines = max(s.row.warnings, t.warnings), max(s.row.lines, t.lines)
		if w.killed() {
			s.row.kills++
		}
	}
	s.row.messages, s.row.again = len(s.messages), int(s.again.Load())
	s.gaps(a)
	return a
}

// gaps finds the longest time in which nothing had its effect.
func (s *soak) gaps(a *account) {
	at := make([]time.Time, len(a.effects))
	for i, e := range a.effects {
		at[i] = e.at
	}
	slices.SortFunc(at, func(a, b time.Time) int { return cmp.Compare(a.UnixMicro(), b.UnixMicro()) })
	for i := 1; i < len(at); i++ {
		s.row.gap = max(s.row.gap, at[i].Sub(at[i-1]))
	}
}

// results waits until every message has its result.
func (s *soak) results() {
	s.t.Helper()
	open := s.messages
	testkit.Eventually(s.t, 4*time.Minute, func() error {
		var next []soakMessage
		var sample string
		for chunk := range slices.Chunk(open, 500) {
			keys := make([]string, len(chunk))
			for i, m := range chunk {
				keys[i] = "celery-task-meta-" + m.ID
			}
			values, err := s.broker.MGet(s.t.Context(), keys...).Result()
			if err != nil {
				return err
			}
			for i, v := range values {
				var r meta
				text, _ := v.(string)
				if err := json.Unmarshal([]byte(text), &r); err == nil && r.Status == "SUCCESS" {
					continue
				}
				next, sample = append(next, chunk[i]), fmt.Sprintf("%s (%s): %q", chunk[i].ID, chunk[i].Name, text)
			}
		}
		if open = next; len(open) > 0 {
			return fmt.Errorf("%d results are missing or no success, such as %s", len(open), sample)
		}
		return nil
	})
}

// nothingLeft checks that Redis holds nothing but results, completed records,
// and what belongs to nobody's run.
func (s *soak) nothingLeft() {
	s.t.Helper()
	allowed := []string{
		"celery-task-meta-", "_kombu.binding", "solobeat:default:record:", "solobeat:default:node", "solobeat:default:buried", "solobeat:default:janitor",
	}
	var left []string
	iter := s.broker.Scan(s.t.Context(), 0, "*", 1000).Iterator()
	for iter.Next(s.t.Context()) {
		key := iter.Val()
		known := slices.ContainsFunc(allowed, func(p string) bool { return strings.HasPrefix(key, p) })
		// What goes with a lock stays for its fence, and ends by itself.
		if strings.HasPrefix(key, "solobeat:default:held") && s.broker.TTL(s.t.Context(), key).Val() > 0 {
			known = true
		}
		if strings.HasPrefix(key, "solobeat:default:record:") {
			if state := s.broker.HGet(s.t.Context(), key, "s").Val(); state != "completed" {
				left = append(left, key+" is "+state)
			}
		}
		if !known {
			left = append(left, key)
		}
	}
	if err := iter.Err(); err != nil {
		s.t.Fatal(err)
	}
	if len(left) > 0 {
		s.t.Errorf("%d keys are left in Redis: %.2000v", len(left), left)
	}
}

// What a worker may take and say at most. A worker idles at about 30 MiB and
// with fewer than 60 goroutines.
const (
	soakMostMiB        = 96
	soakMoreGoroutines = 15
)

// noGrowth checks that the workers which lived through the scene are as they
// were before it.
func (s *soak) noGrowth() {
	s.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	if s.row.rss = s.peak.Load() >> 10; s.row.rss > soakMostMiB {
		s.t.Errorf("a worker took %d MiB, want %d at most", s.row.rss, soakMostMiB)
	}
	for _, w := range s.steady {
		// Each look leaves a connection of its own for a while.
		testkit.Poll(s.t, time.Minute, time.Second, func() bool {
			n := w.metric("go_goroutines")
			return n > 0 && n <= s.idleAt[w]+soakMoreGoroutines
		}, "%s has about the %v goroutines that it had before the load", w.Name, s.idleAt[w])
	}
}

// quiet checks that no worker wrote more than so many lines of trouble, nor many
// about each message.
func (s *soak) quiet(most int) {
	s.t.Helper()
	if bound := 6*s.row.messages + most; s.row.lines > bound {
		s.t.Errorf("a worker wrote %d lines about %d messages, want %d at most", s.row.lines, s.row.messages, bound)
	}
	if s.row.warnings > most {
		s.t.Errorf("a worker wrote %d lines of warnings, want %d at most", s.row.warnings, most)
	}
}

// everyEffect checks that each message has its effect, and each key one only,
// but for those that a death explains. It counts the others too.
func (s *soak) everyEffect(a *account) {
	s.t.Helper()
	perID, perKey := map[string][]witnessLine{}, map[string][]witnessLine{}
	for _, e := range a.effects {
		if perID[e.id] = append(perID[e.id], e); e.key != "-" {
			perKey[e.key] = append(perKey[e.key], e)
		}
	}
	seen := map[string]bool{}
	for _, m := range s.messages {
		if m.key == "" {
			if len(perID[m.ID]) == 0 {
				s.t.Errorf("%s has no effect", m.ID)
			}
			s.row.plain += max(len(perID[m.ID])-1, 0)
			continue
		}
		if seen[m.key] { // its twin was looked at
			continue
		}
		seen[m.key] = true
		if len(perKey[m.key]) == 0 {
			s.t.Errorf("%s (%s) has no effect", m.ID, m.Name)
		}
		for i, e := range perKey[m.key] {
			if i == 0 {
				continue
			}
			s.row.recorded++
			if before := perKey[m.key][i-1]; !a.explains(before) {
				s.t.Errorf("%s (%s) has %d effects; number %d is by %d though the run before it, by %d, did not die before its record was complete: %v",
					m.ID, m.Name, len(perKey[m.key]), i+1, e.pid, before.pid, perKey[m.key])
			}
		}
	}
	s.inTime()
	s.exclusive(a)
}

// explains says why the run of an effect could be followed by another one of
// the same key: its process was killed before it could complete the record.
func (a *account) explains(e witnessLine) bool {
	t := a.byPid[e.pid]
	return t != nil && t.w.killed() && !t.done[e.id]
}

// inTime checks that nothing began before it was due.
func (s *soak) inTime() {
	s.t.Helper()
	due := map[string]time.Time{}
	for _, m := range s.messages {
		if m.Countdown > 0 {
			due[m.ID] = s.began.Add(time.Duration((m.At + m.Countdown) * float64(time.Second)))
		}
	}
	for _, b := range s.lines("begin") {
		if d, ok := due[b.id]; ok && b.at.Before(d.Add(-time.Millisecond)) {
			s.t.Errorf("%s began %v before it was due", b.id, d.Sub(b.at))
		}
	}
}

// exclusive checks that of the runs under one lock none began before the last
// had ended, or its process was dead.
func (s *soak) exclusive(a *account) {
	s.t.Helper()
	inside := map[string]witnessLine{}
	for _, l := range s.lines() {
		lane := l.rest
		if l.kind == "cancelled" {
			for name, in := range inside {
				if in.id == l.id && in.pid == l.pid {
					delete(inside, name)
				}
			}
			continue
		}
		if lane == "" {
			continue
		}
		if l.kind != "begin" {
			delete(inside, lane)
			continue
		}
		if in, ok := inside[lane]; ok && !a.byPid[in.pid].w.killed() {
			s.t.Errorf("lane %s: %s began in %d while %s ran in %d, which was never killed", lane, l.id, l.pid, in.id, in.pid)
		}
		inside[lane] = l
	}
}
