package celery

import (
	"slices"
	"testing"
	"time"
)

// A call takes what is finished while it is on its way; beyond that only as
// much as keeps a server at the end of a long way at work, and never more than
// a call's tags have numbers for.
func TestCallsGrowWithTheWayToTheServer(t *testing.T) {
	for _, c := range []struct {
		rate      float64
		took, way time.Duration
		want      int
	}{
		{rate: 0, took: time.Millisecond, way: time.Millisecond, want: maxTake},
		{rate: 1000, took: 5 * time.Millisecond, way: 4 * time.Millisecond, want: 400}, // how far it is counts from the first call on
		{rate: 20_000, took: 5 * time.Millisecond, way: 300 * time.Microsecond, want: 150},
		{rate: 30_000, took: 12 * time.Millisecond, way: 300 * time.Microsecond, want: mostTake},
		{rate: 30_000, took: 15 * time.Millisecond, way: 2 * time.Millisecond, want: 600},
		{rate: 30_000, took: 24 * time.Millisecond, way: 10 * time.Millisecond, want: farTake},
	} {
		l := &loop{rate: c.rate, took: c.took, way: c.way}
		if got := l.batch(); got != c.want {
			t.Errorf("%.0f/s, a call takes %v, %v of it on its way: %d messages, want %d", c.rate, c.took, c.way, got, c.want)
		}
	}
	// Slow runs are not hoarded, however far it is.
	slow := &loop{rate: 20, took: 25 * time.Millisecond, way: 20 * time.Millisecond, e: &Engine{cfg: Config{Concurrency: 4}, held: newHoldings(), ready: newReadyQueue(4)}}
	if got := slow.free(); got != 6 {
		t.Errorf("%d messages are taken ahead of 20 a second in 4 slots, want 2", got-4)
	}
	if farTake >= callFactor {
		t.Errorf("a call of %d messages has no tags for all of them", farTake)
	}
}

// What came later than a message that goes back would run before it.
func TestNothingStaysBeforeWhatGoesBack(t *testing.T) {
	e := &Engine{ready: newReadyQueue(1)}
	e.tune.hoard = time.Second
	l := &loop{e: e}
	now := time.Now()
	var src source
	items := []*item{
		{src: &src, raw: "old", readyA: now.Add(-2 * time.Second)},
		{src: &src, raw: "acked", readyA: now, acked: true},
		{src: &src, raw: "young", readyA: now},
	}
	e.ready.push(items[1:]...)
	if l.giveBackOld(); len(l.ops) != 0 {
		t.Errorf("%d messages go back that have not waited long", len(l.ops))
	}
	e.ready.drain(func(*item) bool { return true })
	e.ready.push(items...)
	l.giveBackOld()
	var got []string
	for _, c := range l.ops {
		got = append(got, c.it.raw)
	}
	if want := []string{"young", "old"}; !slices.Equal(got, want) { // each is put before those that went before
		t.Errorf("there go back %q, want %q", got, want)
	}
}
