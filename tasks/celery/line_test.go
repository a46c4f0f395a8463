package celery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// standInLine parks n messages of one key, in order, and returns their tags.
func (r *rig) standInLine(w *worker, key string, n int, opts ...tasks.Option) []string {
	r.t.Helper()
	for i := range n {
		r.enqueue("t.line", append(opts, tasks.WithID(fmt.Sprintf("line-%d", i)))...)
		testkit.Poll(r.t, 5*time.Second, time.Millisecond, func() bool {
			return r.number(r.rdb.ZCard(context.Background(), w.keys.line(key))) == int64(i+1)
		}, "message %d stands in line", i)
	}
	tags, err := r.rdb.ZRange(context.Background(), w.keys.line(key), 0, -1).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return tags
}

// parksFor is a run that always finds the key busy.
func parksFor(key string, left time.Duration) tasks.Runner {
	return func(context.Context, *tasks.Delivery) tasks.Outcome {
		return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: key, Left: left}}
	}
}

// Messages that expire in the middle of a line do not put off the timer of the
// oldest: with one leaving each second it would never look again.
func TestWhoLeavesFromTheMiddleKeepsTheOldestsTimer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.start(Config{}, nil, parksFor("k", time.Hour))
	tags := r.standInLine(w, "k", 3)
	ctx := context.Background()
	// The oldest is far from its time, and the middle one's wait ends now.
	soon := float64(r.storeNow().Add(time.Hour).UnixMicro())
	if err := r.rdb.ZAdd(ctx, w.keys.parked(), zMember(soon, tags[0])).Err(); err != nil {
		t.Fatal(err)
	}
	_ = w.stop() // what is put back stays in its list
	e := r.engine(Config{}, nil)
	if err := r.rdb.ZAdd(ctx, w.keys.parked(), zMember(float64(r.storeNow().UnixMicro()), tags[1])).Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.putBackDue(ctx); err != nil {
		t.Fatal(err)
	}
	if n := r.number(r.rdb.LLen(ctx, "celery")); n != 1 {
		t.Fatalf("%d messages were put back", n)
	}
	if due := r.rdb.ZScore(ctx, w.keys.parked(), tags[0]).Val(); due != soon {
		t.Errorf("the oldest one's timer moved by %v", time.Duration(due-soon)*time.Microsecond)
	}
	// The oldest leaves: the next one gets a timer.
	if err := r.rdb.ZAdd(ctx, w.keys.parked(), zMember(float64(r.storeNow().UnixMicro()), tags[0])).Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.putBackDue(ctx); err != nil {
		t.Fatal(err)
	}
	due := time.UnixMicro(int64(r.rdb.ZScore(ctx, w.keys.parked(), tags[2]).Val()))
	if left := due.Sub(r.storeNow()); left > 2*time.Second {
		t.Errorf("the new oldest one is due in %v", left)
	}
}

// A line whose key is something else bars neither the acks of the call that is to
// bring it forward, nor the other lines, nor what comes after.
func TestABrokenLineBarsNoAcks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.start(Config{}, nil, parksFor("good", time.Hour))
	tags := r.standInLine(w, "good", 2)
	_ = w.stop()
	ctx := context.Background()
	ids := []string{r.enqueue("t.ok"), r.enqueue("t.ok")}
	e := r.engine(Config{}, nil)
	self, err := e.enrol(ctx, "", func(int, error) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	took, err := e.cycle(ctx, self, &cycleCall{number: 1, want: 2, sources: []int{0}})
	if err != nil || took.taken != 2 {
		t.Fatalf("%+v, %v", took, err)
	}
	if err := r.rdb.Set(ctx, e.keys.line("broken"), "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	call := &cycleCall{number: 2, sources: []int{0}, wakes: []string{e.keys.line("broken"), e.keys.line("good")}}
	for _, it := range took.items(0, took.taken) {
		call.acks = append(call.acks, e.outcome(it, tasks.Outcome{Kind: tasks.Succeeded, Result: []byte("1")}))
	}
	acked, err := e.cycle(ctx, self, call)
	if err != nil || len(acked.lost) > 0 || acked.buried || acked.repeated {
		t.Fatalf("the call that acks: %+v, %v", acked, err)
	}
	for _, id := range ids {
		if s := r.wait(id, time.Second).State; s != wire.StateSuccess {
			t.Errorf("%s: %s", id, s)
		}
	}
	left, err := r.rdb.HKeys(ctx, e.keys.unacked()).Result()
	if err != nil || len(left) != 1 || left[0] != tags[1] {
		t.Errorf("unacked: %v, %v; want the second of the line alone", left, err)
	}
	if n := r.number(r.rdb.LLen(ctx, "celery")); n != 1 {
		t.Errorf("%d messages of the good line were brought forward", n)
	}
	next, err := e.cycle(ctx, self, &cycleCall{number: 3, want: 9, sources: []int{0}})
	if err != nil || next.taken != 1 {
		t.Errorf("the next call: %+v, %v", next, err)
	}
}

// A server that has dropped what is known of the parked messages loses none of
// them.
func TestParkedMessagesOutliveWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.start(Config{}, nil, parksFor("k", time.Hour))
	r.standInLine(w, "k", 2)
	_ = w.stop()
	ctx := context.Background()
	if err := r.rdb.Del(ctx, w.keys.parkInfo()).Err(); err != nil {
		t.Fatal(err)
	}
	seen := newWitness()
	second := r.start(Config{}, nil, seen.runner())
	second.Wake(ctx, "k")
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := second.clean(ctx); err != nil {
			return err
		}
		if err := r.rdb.Del(ctx, second.keys.own("janitor")).Err(); err != nil {
			return err
		}
		if n := seen.distinct(); n != 2 {
			return fmt.Errorf("%d of 2 ran", n)
		}
		return nil
	})
	if n := len(seen.order()); n != 2 {
		t.Errorf("%d runs of 2 messages", n)
	}
	r.empty()
}

// What has begun without its message telling so is marked when it is parked,
// so that it neither expires nor is skipped afterwards.
func TestParkMarksWhatHasBegun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(Config{}, nil)
	self := &replica{id: NewInstance(), ctx: context.Background()}
	src := e.keys.source("celery", 0)
	raw := []byte(envelope(t, emptyBody, nil))
	for _, begun := range []bool{false, true} {
		it := newItem("sb:x", self, src, string(raw), time.Now(), time.Now())
		c := e.outcome(it, tasks.Outcome{Kind: tasks.Parked, Begun: begun, Park: tasks.Park{Reason: tasks.ParkRecord, Key: "r"}})
		d := newItem("sb:x", self, src, string(c.op.raw), time.Now(), time.Now()).deliv
		if d.Begun() != begun || d.Deaths != 0 || d.Task.Attempt != 1 {
			t.Errorf("begun %v: redelivered %v, deaths %d, attempt %d", begun, d.Task.Redelivered, d.Deaths, d.Task.Attempt)
		}
	}
}

// The lock's store answers and the record's does not: the waits grow all the
// same.
func TestParksForAStoreGrowUnderALock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(Config{}, nil)
	self := &replica{id: NewInstance(), ctx: context.Background()}
	src := e.keys.source("celery", 0)
	raw := []byte(envelope(t, emptyBody, nil))
	down := tasks.Outcome{Kind: tasks.Parked, WonLock: true, Err: errors.New("down"), Park: tasks.Park{Reason: tasks.ParkStore}}
	for n, base := range []int{1, 2, 4, 8, 16, 30} {
		c := e.outcome(newItem("sb:x", self, src, string(raw), time.Now(), time.Now()), down)
		if wait := c.dueIn(t); wait < time.Duration(base)*790*time.Millisecond || wait > time.Duration(base)*1210*time.Millisecond {
			t.Errorf("park %d: %v", n+1, wait)
		}
		raw = c.op.raw
	}
}

// A delivery that is given back before its run began comes back as it was: what
// is marked would neither expire nor be skipped any more.
func TestOnlyWhatHasBegunComesBackMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(Config{}, nil)
	self := &replica{id: NewInstance(), ctx: context.Background()}
	src := e.keys.source("celery", 0)
	raw := []byte(envelope(t, emptyBody, nil))
	for _, begun := range []bool{false, true} {
		it := newItem("sb:x", self, src, string(raw), time.Now(), time.Now())
		c := e.outcome(it, tasks.Outcome{Kind: tasks.Returned, Begun: begun})
		if d := newItem("sb:x", self, src, string(c.op.raw), time.Now(), time.Now()).deliv; d.Begun() != begun || c.op.Side != "R" {
			t.Errorf("begun %v: redelivered %v, side %s", begun, d.Task.Redelivered, c.op.Side)
		}
	}
}
