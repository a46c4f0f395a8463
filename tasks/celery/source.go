package celery

import (
	"strconv"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// source is one list that messages are taken from: a queue's list for one
// priority step.
type source struct {
	queue  string
	step   int
	name   string // the list without prefix, as peers find it in the registry
	key    string
	suffix string // what follows a raw message in its entry in unacked
	tagEnd string
}

// makeSources lists the sources in kombu's order of service: the first step
// of every queue comes before the second of any.
func makeSources(k keys, queues []string) []*source {
	var all []*source
	for _, step := range wire.PrioritySteps() {
		for _, q := range queues {
			all = append(all, k.source(q, step))
		}
	}
	return all
}

func (k keys) source(queue string, step int) *source {
	name := wire.QueueKey(queue, step)
	return &source{
		queue: queue, step: step, name: name, key: k.prefix + name,
		suffix: wire.UnackedSuffix("", queue), tagEnd: k.tagSuffix(step),
	}
}

func (s *source) stepText() string { return strconv.Itoa(s.step) }
