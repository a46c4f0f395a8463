package celery

import (
	"testing"

	"github.com/solobeat/solobeat/tasks"
)

// A queue by the name of a key that kombu or we need would stop every worker.
func TestReservedQueuesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := NewClient(ClientConfig{Broker: r.rdb})
	for _, q := range []string{"unacked", "unacked_index", "unacked_mutex", "_kombu.binding.x", "solobeat:default:replicas"} {
		if _, err := c.Enqueue(t.Context(), "t.ok", tasks.WithQueue(q)); err == nil {
			t.Errorf("queue %s was accepted", q)
		}
	}
	if n := r.rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}
