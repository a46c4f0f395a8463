package scheduler

import (
	"testing"
	"time"
)

// The default key of a job's lock stands behind namespace and key prefix; a key
// that the file names is shared with others, and verbatim.
func TestLockKeyAndPrefix(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"": "shop:solobeat:blue:lock:hourly-report", "report:lock": "report:lock",
	} {
		j := berlin(t, "0 * * * *", func(j *Job) { j.Lock = &JobLock{Key: key} })
		tmpl, err := j.compile()
		if err != nil {
			t.Fatal(err)
		}
		s := &Scheduler{cfg: Config{Namespace: "blue", KeyPrefix: "shop:"}}
		r, err := s.request(&entry{job: j, tmpl: tmpl}, j.Schedule.Next(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if r.Guard.Lock.Key != want || r.Guard.Lock.Name != "" {
			t.Errorf("key %q: %+v, want %s", key, r.Guard.Lock, want)
		}
	}
}
