package park

import (
	"testing"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	for i, s := range []int{1, 2, 4, 8, 16, 30, 30} {
		if got, want := Backoff(i+1), time.Duration(s)*time.Second; got != want {
			t.Errorf("park %d: %v, want %v", i+1, got, want)
		}
	}
	if got := Backoff(1 << 30); got != 30*time.Second {
		t.Error(got)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		park  tasks.Park
		n     int
		waits bool
		want  time.Duration
	}{
		"store":                  {park: tasks.Park{Reason: tasks.ParkStore}, n: 3, want: 4 * time.Second},
		"a newer guard":          {park: tasks.Park{Reason: tasks.ParkGuard}, n: 1, want: 10 * time.Second},
		"a lock that ends soon":  {park: tasks.Park{Reason: tasks.ParkLock, Left: time.Second}, n: 9, waits: true, want: time.Second},
		"a lock that ends later": {park: tasks.Park{Reason: tasks.ParkLock, Left: time.Hour}, n: 2, waits: true, want: 2 * time.Second},
		"a lock without an end":  {park: tasks.Park{Reason: tasks.ParkLock}, n: 2, waits: true, want: 2 * time.Second},
	} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := Delay(c.park, c.n, c.waits)
			seen[d] = true
			if d < c.want*8/10 || d > c.want*12/10 {
				t.Errorf("%s: %v, want %v ± 20 %%", name, d, c.want)
			}
		}
		if len(seen) < 2 {
			t.Errorf("%s: always %v: what was parked together comes back together", name, seen)
		}
	}
}

// A wait ends 24 h after its first park, or sooner where the chain says so.
func TestLimit(t *testing.T) {
	t.Parallel()
	first := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ deadline, want time.Time }{
		{time.Time{}, first.Add(24 * time.Hour)},
		{first.Add(time.Hour), first.Add(time.Hour)},
		{first.Add(48 * time.Hour), first.Add(24 * time.Hour)},
	} {
		if got := Limit(tasks.Park{Deadline: c.deadline}, first); !got.Equal(c.want) {
			t.Errorf("deadline %s: %s, want %s", c.deadline, got, c.want)
		}
	}
}
