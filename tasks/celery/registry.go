package celery

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// maxNodes bounds the numbers that are tried to make a node name unique.
const maxNodes = 100

// enrol registers this process under a new instance id, before it takes
// anything; old is the id it had before, "" at the start. It tries until again
// says no.
func (e *Engine) enrol(base context.Context, old string, again func(n int, err error) bool) (*replica, error) {
	id := e.cfg.Instance
	if old != "" {
		id = NewInstance()
	}
	r := &replica{id: id}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(base))
	for _, s := range e.sources {
		r.inlists = append(r.inlists, e.keys.inflight(id, s.name))
	}
	host, _ := os.Hostname()
	args := []any{
		id, int64(e.tune.beatTTL / time.Second), int64(e.tune.freshQuiet / time.Second), host,
		e.keys.entry(""), e.listNames(), os.Getpid(), old, e.cfg.Version,
	}
	for _, n := range nodeNames(e.cfg.NodeName) {
		args = append(args, n)
	}
	keys := []string{e.keys.replicas(), e.keys.buried(), e.keys.calls(), e.keys.entry(id)}
	for n := 1; ; n++ {
		rep := newReply(e.run(base, e.scripts.register, keys, args...))
		node, us := rep.at(0), rep.int(1)
		if rep.err == nil {
			e.clock.set(us)
			e.setNode(fmt.Sprint(node))
			e.self.Store(r)
			e.broker.answered(e)
			e.bindQueues(base)
			return r, nil
		}
		if !again(n, rep.err) {
			r.cancel(rep.err)
			return nil, fmt.Errorf("celery: register: %w", rep.err)
		}
	}
}

func (e *Engine) setNode(node string) {
	if node != e.cfg.NodeName && node != e.NodeName() {
		e.log.Warn("another live replica has this node name", "wanted", e.cfg.NodeName, "node", node)
	}
	e.node.Store(&node)
}

// nodeNames are the names to choose from: name@host, name-2@host, …
func nodeNames(want string) []string {
	name, host, _ := strings.Cut(want, "@")
	names := []string{want}
	for n := 2; n <= maxNodes; n++ {
		names = append(names, fmt.Sprintf("%s-%d@%s", name, n, host))
	}
	return names
}

// listNames are the engine's lists as peers need them to sweep its in-flight
// lists.
func (e *Engine) listNames() string {
	names := make([]string, len(e.sources))
	for i, s := range e.sources {
		names[i] = s.name
	}
	b, _ := json.Marshal(names) // strings always encode
	return string(b)
}

// bindQueues lets kombu's tools see the queues. A failure costs nothing else.
func (e *Engine) bindQueues(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	for _, q := range e.cfg.Queues {
		if err := bindQueue(ctx, e.rdb, e.keys.prefix, q); err != nil {
			e.log.Warn("binding was not written", "queue", q, "error", err)
		}
	}
}

// beatLoop tells every 3 s that this replica lives, and each second after a
// failure. A missed beat cancels nothing; to be buried does.
func (e *Engine) beatLoop(l *loop) func(context.Context) {
	return func(ctx context.Context) {
		busy := &takeovers{running: map[string]bool{}}
		defer busy.wg.Wait()
		for {
			wait := e.tune.beat
			if err := e.beat(ctx, l, busy); err != nil && ctx.Err() == nil {
				e.broker.failed(e, "beat", err)
				call1(e.cfg.Observer.BrokerUp, false)
				wait = e.tune.beatRetry
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

func (e *Engine) beat(ctx context.Context, l *loop, busy *takeovers) error {
	self := e.self.Load()
	keys := append([]string{e.keys.replicas(), e.keys.buried(), e.keys.calls(), e.keys.entry(self.id), e.keys.parked()}, self.inlists...)
	rep := newReply(e.run(ctx, e.scripts.beat, keys, self.id, int64(e.tune.beatTTL/time.Second),
		e.tune.stallAge.Seconds(), int64(e.tune.stallQuiet/time.Second)))
	if rep.int(0) == cycleBuried {
		select {
		case l.buried <- self.id:
		default:
		}
		return nil
	}
	us, dead, due, inflight, now := rep.int(1), rep.texts(2), rep.int(3), rep.int(4), rep.int(5)
	if rep.err != nil {
		return rep.err
	}
	e.clock.set(us)
	e.broker.answered(e)
	call1(e.cfg.Observer.BrokerUp, true)
	if due > 0 {
		e.due.note(time.UnixMicro(due))
	}
	if inflight > 0 {
		select {
		case l.sweep <- struct{}{}:
		default:
		}
	}
	if now > 0 {
		e.log.Warn("replicas without a heartbeat were buried", "number", now)
	}
	for _, id := range dead {
		busy.start(ctx, e, id)
	}
	return nil
}

// refreshLoop moves the scores of what is held into the future, so that
// neither Python nor a peer restores it.
func (e *Engine) refreshLoop(ctx context.Context) {
	t := time.NewTicker(e.tune.refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for n := 1; ctx.Err() == nil; n++ {
			err := e.refresh(ctx)
			if err == nil {
				break
			}
			e.broker.failed(e, "refresh", err)
			pause(ctx, backoff(n))
		}
	}
}

func (e *Engine) refresh(ctx context.Context) error {
	tags := e.held.tags()
	for len(tags) > 0 {
		n := min(len(tags), maxRefresh)
		args := make([]any, 0, n+1)
		args = append(args, int64(e.tune.lead/time.Second))
		for _, t := range tags[:n] {
			args = append(args, t)
		}
		if err := e.run(ctx, e.scripts.refresh, []string{e.keys.index()}, args...).Err(); err != nil {
			return err
		}
		tags = tags[n:]
	}
	return nil
}

const maxRefresh = 500

// brokerState knows whether the broker answers, and keeps the log quiet about
// what goes on.
type brokerState struct {
	mu     sync.Mutex
	known  bool
	up     bool
	logged time.Time
}

// logGap is the time between two log lines about one outage.
const logGap = 10 * time.Second

func (s *brokerState) answered(e *Engine) {
	s.mu.Lock()
	change, first := !s.up, !s.known
	s.known, s.up = true, true
	s.mu.Unlock()
	if !change {
		return
	}
	call1(e.cfg.Observer.BrokerUp, true)
	if !first {
		e.log.Info("broker answers again")
		call0(e.cfg.Observer.Reconnect)
	}
}

func (s *brokerState) failed(e *Engine, what string, err error) {
	s.mu.Lock()
	change := s.up || !s.known
	log := change || time.Since(s.logged) >= logGap
	s.known, s.up = true, false
	if log {
		s.logged = time.Now()
	}
	s.mu.Unlock()
	if change {
		call1(e.cfg.Observer.BrokerUp, false)
	}
	if log {
		e.log.Warn("broker does not answer as it should", "call", what, "error", err)
	}
}
