package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v = %v, want %v", p, got, want)
		}
	}
	if got := (series{6, 9}).over(series{2, 1}).show("%.1f", "×"); got != "6.0 (3.0–9.0) ×" {
		t.Errorf("ratios are taken round by round: %s", got)
	}
}

// A worker that wakes late and ends slowly has the rate of its middle.
func TestRateLeavesOutWakingAndTail(t *testing.T) {
	t.Parallel()
	const count = 10_000
	began := time.Now()
	points := []point{{began, 0}, {began.Add(2 * time.Second), 0}}
	for i := range 100 {
		points = append(points, point{began.Add(2*time.Second + time.Duration(i+1)*10*time.Millisecond), int64(i+1) * 100})
	}
	points[len(points)-1].at = began.Add(time.Minute)
	if got := rate(points, count); got < 9_990 || got > 10_010 {
		t.Errorf("rate %.0f, want 10000", got)
	}
}

func TestReportEndsRowsWithTheirVerdict(t *testing.T) {
	t.Parallel()
	var r report
	r.judge("fast", "≥ 2", "3", true)
	r.judge("slow", "≥ 2", "1", false).profile = "where"
	r.tell("beside", "7")
	r.note("how")
	var b strings.Builder
	if err := r.write(&b, []string{"machine"}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"| fast | ≥ 2 | 3 | PASS |\n", "| slow | ≥ 2 | 1 | SHORT |\n", "time goes: slow\n\n```text\nwhere\n```"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Count(text, pass) != 1 || strings.Count(text, short) != 1 {
		t.Errorf("a verdict stands outside of its row:\n%s", text)
	}
}
