package scheduler

import (
	"fmt"
	"testing"
)

func BenchmarkNew(b *testing.B) {
	var list []*Job
	for i := range 10000 {
		j := &Job{Name: fmt.Sprintf("j%05d", i), Task: "tests.tick", Spec: SpecConfig{Cron: "0 * * * *"},
			Lock: &JobLock{}, Record: &JobRecord{}, Kwargs: map[string]any{"day": "{{ .Tick.Local | date }}"}}
		j.Schedule, _, _ = ParseSpec(j.Spec)
		list = append(list, j)
	}
	for b.Loop() {
		if _, err := New(Config{Jobs: list, State: newMemState(), Publisher: &fakePublisher{}, ID: "x"}); err != nil {
			b.Fatal(err)
		}
	}
}
