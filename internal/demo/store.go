package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
)

// store is the Redis of one demo: an embedded one, or a corner of a real one
// that is emptied at the end.
type store struct {
	url, prefix, namespace string
	embedded               *miniredis.Miniredis
	// onAsynq is true if the tasks queue there: its keys have no prefix, so that
	// the queue has a name of its own.
	onAsynq bool
	// clock is by how much the store is ahead of the machine; nil: ask it.
	clock   func() time.Duration
	stop    chan struct{}
	stopped chan struct{}
}

// clockStep is how often the embedded store's keys get older; its TIME is the
// machine's.
const clockStep = 10 * time.Millisecond

func openStore(ctx context.Context, url string) (*store, error) {
	id := randomID()
	s := &store{url: url, prefix: "solobeat-demo-" + id + ":", namespace: "demo-" + id}
	if url != "" {
		return s, s.ping(ctx)
	}
	s.embedded = miniredis.NewMiniRedis()
	if err := s.embedded.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("demo: embedded Redis: %w", err)
	}
	s.url = "redis://" + s.embedded.Addr() + "/0"
	s.clock = func() time.Duration { return 0 } // it tells the machine's TIME
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	go s.tick()
	return s, nil
}

// workerLines say where the workers take from, where it is not the default.
func (s *store) workerLines() string {
	if !s.onAsynq {
		return ""
	}
	return fmt.Sprintf("  engines: asynq\n  queues: %s\n", s.namespace)
}

func randomID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// tick lets TTLs run: the embedded store does not do so by itself.
func (s *store) tick() {
	defer close(s.stopped)
	t := time.NewTicker(clockStep)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			now := time.Now()
			s.embedded.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (s *store) client() (*redis.Client, error) {
	return redisconn.Open(redisconn.Options{URL: s.url, Name: "solobeat-demo"})
}

func (s *store) ping(ctx context.Context) error {
	c, err := s.client()
	if err != nil {
		return badOption("--redis: %w", errors.Unwrap(err))
	}
	defer func() { _ = c.Close() }()
	if err := c.Ping(ctx).Err(); err != nil {
		return redisconn.ReachError(s.url, "--redis", err)
	}
	return nil
}

// clockOffset is by how much the store's clock is ahead of the machine's.
func (s *store) clockOffset(ctx context.Context) (time.Duration, error) {
	if s.clock != nil {
		return s.clock(), nil
	}
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if err := c.Ping(ctx).Err(); err != nil { // connects
		return 0, err
	}
	sent := time.Now()
	at, err := c.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	return at.Sub(sent.Add(time.Since(sent) / 2)), nil
}

// close ends the embedded store, or removes every key of the demo from the
// real one.
func (s *store) close(ctx context.Context) error {
	if s.embedded != nil {
		close(s.stop)
		<-s.stopped
		s.embedded.Close()
		return nil
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	patterns := []string{s.prefix + "*", "solobeat:" + s.namespace + "*"}
	if s.onAsynq {
		patterns = append(patterns, "asynq:{"+s.namespace+"}:*")
		if err := c.SRem(ctx, "asynq:queues", s.namespace).Err(); err != nil {
			return err
		}
		_, _ = asynq.NewInspectorFromRedisClient(c).Servers() // drops what the killed replica has left there
	}
	for _, pattern := range patterns {
		it := c.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			if err := c.Unlink(ctx, it.Val()).Err(); err != nil {
				return err
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return nil
}
