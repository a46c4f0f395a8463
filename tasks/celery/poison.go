package celery

import (
	"context"
	"time"

	"github.com/solobeat/solobeat/tasks/internal/park"
)

// suspectDeaths is the number of deaths from which a message is a suspect.
const suspectDeaths = 2

// A message that kills its worker must not condemn those that were in flight
// beside it. So a suspect runs alone among suspects: a replica runs at most
// one at a time, names it in its registry entry before it starts, and parks
// the others for a second, or until the one that ran has ended. From the third
// death on only the named one is counted.

// startSuspect names a suspect and lets it run, or parks it if another one
// occupies the place.
func (l *loop) startSuspect(it *item) {
	if l.suspect != nil {
		now := l.e.clock.now()
		c := l.e.parkUntil(it, now.Add(park.SuspectGap), park.Suspect)
		c.op.Line, c.op.Order = l.e.keys.suspects(), micros(now)
		l.queue(c)
		return
	}
	l.suspect, it.suspect = it, true
	l.e.log.Warn("suspect is about to run: replicas have died under it", "task", it.msg.Task, "task_id", it.msg.ID, "deaths", it.deaths())
	call1(l.e.cfg.Observer.Suspect, it.src.queue)
	go l.nameSuspect(it)
}

// clearSuspect gives the place free if it occupies it, and brings the next
// suspect forward.
func (l *loop) clearSuspect(it *item) {
	if it != l.suspect {
		return
	}
	l.suspect = nil
	l.e.wakes.put(l.e.keys.suspects())
}

// nameSuspect must have the server's word before the run starts. If this
// replica is not registered any more, its peers have the message.
func (l *loop) nameSuspect(it *item) {
	e := l.e
	keys := []string{e.keys.replicas(), e.keys.entry(it.from.id)}
	for n := 1; ; n++ {
		ok, err := e.run(l.base, e.scripts.name, keys, it.from.id, it.tag).Int()
		switch {
		case err == nil && ok == 1 && l.ctx.Err() == nil:
			it.readyA = time.Now()
			e.ready.push(it)
			return
		case err == nil || l.ctx.Err() != nil:
			e.finished.put(e.giveBack(it))
			return
		}
		e.broker.failed(e, "name", err)
		pause(l.ctx, backoff(n))
	}
}

// suspects is the line of parked suspects.
func (k keys) suspects() string { return k.own("suspects") }

// deathsAfter is the death count of a message that a dead replica held.
func deathsAfter(deaths int, tag string, dead *deadReplica) int {
	switch {
	case dead.left:
		return deaths
	case deaths >= suspectDeaths && dead.suspect != tag:
		return deaths
	}
	return deaths + 1
}

// condemned reports whether a message has killed often enough.
func (e *Engine) condemned(deaths int) bool { return deaths >= e.cfg.PoisonAfter }

// deadReplica is what the registry knows of a replica that was buried, or left.
type deadReplica struct {
	id      string
	node    string
	left    bool // by its own wish: no death is counted
	moved   bool // what it had in unacked has been put back
	suspect string
	lists   []string
}

func (e *Engine) deadReplica(ctx context.Context, id string) (*deadReplica, error) {
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	h, err := e.rdb.HGetAll(ctx, e.keys.entry(id)).Result()
	if err != nil {
		return nil, err
	}
	return &deadReplica{
		id: id, node: h["node"], left: h["left"] == "1", moved: h["moved"] == "1", suspect: h["suspect"],
		lists: e.namesOf(h["lists"]),
	}, nil
}
