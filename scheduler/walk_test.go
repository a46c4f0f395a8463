package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
)

// The minute walk is the second opinion about Next: it knows no segments and
// no bit masks of days. It looks at what the clock of a zone shows minute by
// minute, reads the fields of a time.Time, and applies the policies as they are
// written.

// walkMinute is an instant at which the clock of the zone shows a whole
// minute, or (at a jump forward) a minute that it does not show.
type walkMinute struct {
	unix   int64 // for a minute that is not shown: the end of the gap
	civil  int64
	missed bool
	minute, hour, dom, month, dow,
	// How often the minute is shown within the margin before and after.
	before, after int
}

// walkMargin is further than two equal civil times are ever apart: a day, where
// a zone has changed sides of the date line.
const walkMargin = 26 * 60 * 60

// walk lists the minutes of loc from a margin before from to a margin after to.
func walk(loc *time.Location, from, to int64) []walkMinute {
	var minutes []walkMinute
	shown := make(map[int64]int, 8192)
	last := time.Unix(from-walkMargin, 0).In(loc)
	lastCivil := civilOf(last)
	for unix := from - walkMargin; unix <= to+walkMargin; {
		at := time.Unix(unix, 0).In(loc)
		civil := civilOf(at)
		if civil > lastCivil+(unix-last.Unix()) {
			end := jumpEnd(loc, last.Unix(), unix)
			before := civilOf(time.Unix(end-1, 0).In(loc)) + 1
			first := before + floorMod(-before, 60)
			for c := first; c < civilOf(time.Unix(end, 0).In(loc)); c += 60 {
				minutes = append(minutes, newWalkMinute(end, c, true))
			}
		}
		last, lastCivil = at, civil
		if sec := at.Second(); sec != 0 {
			// The offset may change before the minute is full.
			unix += walkStep(at, int64(60-sec))
			continue
		}
		m := newWalkMinute(unix, civil, false)
		m.before = shown[civil]
		shown[civil]++
		minutes = append(minutes, m)
		unix += walkStep(at, 60)
	}
	// A missed minute that is shown at another time is none.
	kept := minutes[:0]
	for _, m := range minutes {
		times := shown[m.civil]
		if m.missed && times > 0 {
			continue
		}
		m.after = times - 1 - m.before
		kept = append(kept, m)
	}
	return kept
}

// walkStep is the step to the next full minute, or one second where the offset
// changes before it.
func walkStep(at time.Time, step int64) int64 {
	_, now := at.Zone()
	if _, then := at.Add(time.Duration(step) * time.Second).Zone(); then != now {
		return 1
	}
	return step
}

func civilOf(at time.Time) int64 {
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC).Unix()
}

// jumpEnd finds the first instant after a jump between two instants.
func jumpEnd(loc *time.Location, a, b int64) int64 {
	skew := func(t int64) int64 { return civilOf(time.Unix(t, 0).In(loc)) - t }
	want := skew(b)
	for a+1 < b {
		if m := (a + b) / 2; skew(m) == want {
			b = m
		} else {
			a = m
		}
	}
	return b
}

func newWalkMinute(unix, civil int64, missed bool) walkMinute {
	c := time.Unix(civil, 0).UTC()
	return walkMinute{
		unix: unix, civil: civil, missed: missed,
		minute: c.Minute(), hour: c.Hour(), dom: c.Day(), month: int(c.Month()), dow: int(c.Weekday()),
	}
}

// walkSpec is a spec as sets of values.
type walkSpec struct {
	text                             string
	minute, hour, dom, month, dow    map[int]bool
	domStar, dowStar, domAll, dowAll bool
	elapsed                          bool
	days                             string
	dst                              DST
}

func (w *walkSpec) matches(m walkMinute) bool {
	if !w.minute[m.minute] || !w.hour[m.hour] || !w.month[m.month] {
		return false
	}
	dom, dow := w.dom[m.dom], w.dow[m.dow]
	switch {
	case w.days == "and":
		return dom && dow
	case w.days == "or" && w.domAll:
		return dow
	case w.days == "or" && w.dowAll:
		return dom
	case w.days == "" && (w.domStar || w.dowStar):
		return dom && dow
	}
	return dom || dow
}

// ticks gives what the policies make of the minutes, as unix second and flag.
func (w *walkSpec) ticks(minutes []walkMinute, from, to int64) []walkTick {
	gap, fold := w.dst.Gap, w.dst.Fold
	if gap == "" {
		gap = GapRunAfter
		if w.elapsed {
			gap = GapSkip
		}
	}
	if fold == "" {
		fold = FoldFirst
		if w.elapsed {
			fold = FoldBoth
		}
	}
	shifted := make(map[int64]bool)
	var order []int64
	add := func(unix int64, late bool) {
		if unix <= from || unix > to {
			return
		}
		if was, ok := shifted[unix]; ok {
			shifted[unix] = was && late
			return
		}
		shifted[unix] = late
		order = append(order, unix)
	}
	for _, m := range minutes {
		switch {
		case !w.matches(m):
		case m.missed && gap == GapRunAfter:
			add(m.unix, true)
		case m.missed:
		case fold == FoldFirst && m.before > 0, fold == FoldLast && m.after > 0:
		default:
			add(m.unix, false)
		}
	}
	var out []walkTick
	for _, unix := range order {
		out = append(out, walkTick{unix, shifted[unix]})
	}
	return out
}

type walkTick struct {
	unix    int64
	shifted bool
}

func (w walkTick) String() string {
	text := time.Unix(w.unix, 0).UTC().Format(time.RFC3339)
	if w.shifted {
		text += " shifted"
	}
	return text
}

// specDraw draws random specs, with their meaning as sets built item by item.
type specDraw struct {
	r *rand.Rand
	// portable draws only what robfig/cron reads the same way.
	portable bool
}

func (d specDraw) field(low, high int, density int) (text string, set map[int]bool, star bool) {
	set = make(map[int]bool)
	addRange := func(a, b, step int) {
		for v := a; v <= b; v += step {
			set[v] = true
		}
	}
	if d.r.IntN(density) == 0 {
		addRange(low, high, 1)
		return "*", set, true
	}
	var items []string
	for range 1 + d.r.IntN(3) {
		a := low + d.r.IntN(high-low+1)
		b := a + d.r.IntN(high-a+1)
		step := 1 + d.r.IntN(high-low+1)
		switch d.r.IntN(6) {
		case 0:
			addRange(a, b, 1)
			items = append(items, fmt.Sprintf("%d-%d", a, b))
		case 1:
			addRange(a, b, step)
			items = append(items, fmt.Sprintf("%d-%d/%d", a, b, step))
		case 2:
			addRange(a, high, step)
			items = append(items, fmt.Sprintf("%d/%d", a, step))
		case 3:
			if d.portable {
				continue
			}
			addRange(low, high, step)
			items = append(items, fmt.Sprintf("*/%d", step))
		default:
			addRange(a, a, 1)
			items = append(items, fmt.Sprint(a))
		}
	}
	if len(items) == 0 {
		set[low] = true
		items = []string{fmt.Sprint(low)}
	}
	text = strings.Join(items, ",")
	return text, set, strings.HasPrefix(text, "*")
}

func (d specDraw) spec() *walkSpec {
	w := &walkSpec{}
	var fields [5]string
	var minuteStar, hourStar bool
	fields[0], w.minute, minuteStar = d.field(0, 59, 4)
	fields[1], w.hour, hourStar = d.field(0, 23, 3)
	fields[2], w.dom, w.domStar = d.field(1, 31, 2)
	fields[3], w.month, _ = d.field(1, 12, 1)
	fields[4], w.dow, w.dowStar = d.field(0, 6, 2)
	if d.r.IntN(4) == 0 {
		fields[3], w.month, _ = d.field(1, 12, 3)
	}
	w.elapsed = minuteStar || hourStar
	w.domAll = w.domStar && len(w.dom) == 31
	w.dowAll = w.dowStar && len(w.dow) == 7
	w.text = strings.Join(fields[:], " ")
	if !d.portable {
		w.days = [...]string{"", "", "", "or", "and"}[d.r.IntN(5)]
		w.dst.Gap = [...]GapPolicy{"", "", GapRunAfter, GapSkip}[d.r.IntN(4)]
		w.dst.Fold = [...]FoldPolicy{"", "", FoldFirst, FoldLast, FoldBoth}[d.r.IntN(5)]
	}
	return w
}

func (w *walkSpec) config(zone string) SpecConfig {
	return SpecConfig{Cron: w.text, Timezone: &zone, Days: w.days, DST: w.dst}
}

// checkAgainstWalk compares Next, Prev and Count with the walk over (from, to].
func checkAgainstWalk(t testing.TB, s Schedule, w *walkSpec, minutes []walkMinute, from, to int64) {
	t.Helper()
	want := w.ticks(minutes, from, to)
	var forward, backward []walkTick
	for at := s.Next(time.Unix(from, 0)); !at.IsZero() && at.At.Unix() <= to; at = s.Next(at.At) {
		forward = append(forward, walkTick{at.At.Unix(), at.Shifted})
		if len(forward) > len(want)+1 {
			break
		}
	}
	if !slices.Equal(want, forward) {
		t.Errorf("Next of %s %+v differs from the minute walk (-walk +next):\n%s", s, w.dst, cmp.Diff(texts(want), texts(forward)))
		return
	}
	for at := s.Prev(time.Unix(to, 0)); !at.IsZero() && at.At.Unix() > from; at = s.Prev(at.At.Add(-1)) {
		backward = append(backward, walkTick{at.At.Unix(), at.Shifted})
		if len(backward) > len(want)+1 {
			break
		}
	}
	slices.Reverse(backward)
	if !slices.Equal(want, backward) {
		t.Errorf("Prev of %s %+v differs from the minute walk (-walk +prev):\n%s", s, w.dst, cmp.Diff(texts(want), texts(backward)))
	}
	if n := s.Count(time.Unix(from, 0), time.Unix(to, 0)); n != len(want) {
		t.Errorf("Count of %s = %d, the minute walk has %d", s, n, len(want))
	}
}

func texts(ticks []walkTick) []string {
	var all []string
	for _, tick := range ticks {
		all = append(all, tick.String())
	}
	return all
}

// allZones lists the zones that the tests walk through, all that have a name.
func allZones() []string {
	var zones []string
	for line := range strings.Lines(zoneNames) {
		name, _, old := strings.Cut(strings.TrimSpace(line), " ")
		if !old && name != "" && name != "#" {
			zones = append(zones, name)
		}
	}
	return zones
}

// transitions lists the instants between two years at which loc's clocks jump.
func transitions(loc *time.Location, fromYear, toYear int) []int64 {
	var all []int64
	end := time.Date(toYear+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	_, last := time.Date(fromYear, 1, 1, 0, 0, 0, 0, time.UTC).In(loc).Zone()
	const step = 10 * secondsPerDay
	for t := time.Date(fromYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); t < end; t += step {
		at := time.Unix(t, 0).In(loc)
		if _, offset := at.Zone(); offset != last {
			all = append(all, jumpEnd(loc, t-step, t))
			last = offset
		}
	}
	return all
}

// Next equals the minute walk around the changes of the clocks, of every zone,
// from 1970 to 2037 (and after it, where zones follow a rule).
func TestNextEqualsMinuteWalk(t *testing.T) {
	t.Parallel()
	const perZone, specs = 1, 4
	for i, zone := range allZones() {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, uint64(i)))
		jumps := transitions(loc, 1970, 2045)
		for range perZone {
			middle := time.Date(1970, 1, 1+r.IntN(75*365), r.IntN(24), r.IntN(60), 0, 0, time.UTC).Unix()
			if len(jumps) > 0 {
				middle = jumps[r.IntN(len(jumps))] + int64(r.IntN(7200)) - 3600
			}
			if r.IntN(8) == 0 {
				// Here package time's own bounds of a zone are wrong.
				middle = time.Date(2040+4*r.IntN(20), 12, 31, r.IntN(24), 0, 0, 0, time.UTC).Unix()
			}
			from, to := middle-int64(r.IntN(70*3600)), middle+int64(r.IntN(40*3600))
			minutes := walk(loc, from, to)
			for range specs {
				w := specDraw{r: r}.spec()
				s, _, err := ParseSpec(w.config(zone))
				if s == nil {
					t.Fatalf("%s: %v", w.text, err)
				}
				checkAgainstWalk(t, s, w, minutes, from, to)
			}
		}
		if t.Failed() {
			t.Fatalf("in zone %s", zone)
		}
	}
}

// In UTC robfig/cron's own search is right, so there it is a third opinion.
func TestNextEqualsRobfigInUTC(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 3))
	compared := 0
	for compared < 3000 {
		w := specDraw{r: r, portable: true}.spec()
		want, err := cron.ParseStandard("CRON_TZ=UTC " + w.text)
		if err != nil {
			t.Fatalf("%s: %v", w.text, err)
		}
		s, _, err := ParseSpec(SpecConfig{Cron: w.text})
		if s == nil {
			t.Fatalf("%s: %v", w.text, err)
		}
		at := time.Date(1990+r.IntN(100), 1, 1+r.IntN(365), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
		for range 3 {
			next := want.Next(at)
			if next.IsZero() {
				break // it searches for five years only
			}
			if got := s.Next(at); !got.At.Equal(next) {
				t.Fatalf("%s after %v: got %v, robfig/cron has %v", w.text, at, got.At, next)
			}
			at = next
		}
		compared++
	}
}
