package asynqengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long keys of ours are kept.
const (
	pastTTL  = 48 * time.Hour // longer than any wait for a lock or a record
	begunTTL = 24 * time.Hour
)

// past is what earlier deliveries of a message left for this one.
type past struct {
	// Retries are the attempts before this one.
	Retries int `json:"retries,omitempty"`
	// Counted is how much of asynq's own retry count is no death of a process.
	Counted int `json:"counted,omitempty"`
	// Losses are runs that ended because the lock or the record was lost.
	Losses int `json:"losses,omitempty"`
	// FirstPark is the first park since the lock was last won, in µs.
	FirstPark int64 `json:"first_park,omitempty"`
	// For and Key are what the message is parked for, N how often in a row.
	For string `json:"for,omitempty"`
	Key string `json:"key,omitempty"`
	N   int    `json:"n,omitempty"`
	// Begun: an earlier run may have started.
	Begun bool `json:"begun,omitempty"`

	// found is false if there was nothing.
	found bool
}

func (p *past) firstPark() time.Time {
	if p.FirstPark == 0 {
		return time.Time{}
	}
	return time.UnixMicro(p.FirstPark)
}

// unpark forgets a park.
func (p *past) unpark() { p.FirstPark, p.For, p.Key, p.N = 0, "", "", 0 }

// ownPrefix stands before our own keys.
func ownPrefix(keyPrefix, namespace string) string { return keyPrefix + "solobeat:" + namespace + ":" }

func (e *Engine) key(rest string) string { return ownPrefix(e.cfg.KeyPrefix, e.cfg.Namespace) + rest }

func (e *Engine) pastKey(id string) string  { return e.key("past:" + id) }
func (e *Engine) begunKey(id string) string { return e.key("begun:" + id) }

// readPast reads a message's past and the store's clock in one round trip.
func (e *Engine) readPast(ctx context.Context, id string) (*past, time.Time, error) {
	var now *redis.TimeCmd
	var text *redis.StringCmd
	var begun *redis.IntCmd
	_, err := e.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		now, text, begun = p.Time(ctx), p.Get(ctx, e.pastKey(id)), p.Exists(ctx, e.begunKey(id))
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, time.Time{}, fmt.Errorf("asynqengine: past of %s: %w", id, err)
	}
	p := &past{}
	if raw, err := text.Bytes(); err == nil {
		if err := json.Unmarshal(raw, p); err != nil {
			e.log.Warn("what earlier deliveries left cannot be read", "task_id", id, "error", err)
			*p = past{Begun: true}
		}
		p.found = true
	}
	p.Begun = p.Begun || begun.Val() > 0
	return p, now.Val(), nil
}

// writePast stores a message's past for its next delivery, which is that far
// off.
func (e *Engine) writePast(ctx context.Context, id string, p *past, off time.Duration) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return e.persist(ctx, "past of a task", id, func(ctx context.Context) error {
		return e.cfg.Client.Set(ctx, e.pastKey(id), b, pastTTL+off).Err()
	})
}

// notePast writes a message's past with one try.
func (e *Engine) notePast(ctx context.Context, it *item) error {
	b, err := json.Marshal(it.past)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	return e.cfg.Client.Set(ctx, e.pastKey(it.id), b, pastTTL).Err()
}

// persist tries a write for as long as this run is still asynq's own, and no
// longer than its patience.
func (e *Engine) persist(ctx context.Context, what, id string, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.tune.patience)
	defer cancel()
	for n := 1; ; n++ {
		err := write(ctx)
		if err == nil {
			return nil
		}
		if n == 1 {
			e.log.Warn("a write is tried on", "what", what, "task_id", id, "error", err)
		}
		if !pause(ctx, backoff(n)) {
			return fmt.Errorf("asynqengine: %s: %w", what, err)
		}
	}
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the pause after the n-th failure in a row.
func backoff(n int) time.Duration {
	d := 20 * time.Millisecond
	for i := 1; i < n && d < time.Second; i++ {
		d *= 2
	}
	return min(d, time.Second)
}
