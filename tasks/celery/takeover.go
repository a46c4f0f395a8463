package celery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// scanCount is how many entries one HSCAN or ZSCAN looks at.
const scanCount = 1000

// takeovers runs at most one takeover per dead replica at a time.
type takeovers struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	running map[string]bool
}

func (t *takeovers) start(ctx context.Context, e *Engine, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[id] {
		return
	}
	t.running[id] = true
	t.wg.Go(func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.running, id)
		}()
		if err := e.takeOver(ctx, id); err != nil && ctx.Err() == nil && !errors.Is(err, errAlive) {
			e.broker.failed(e, "takeover", err) // the next beat tries again
		}
	})
}

// takeOver puts back what a dead replica had: its in-flight lists, then its
// entries in unacked, newest first, so that the oldest is next. The lists are
// swept again by later beats, since a connection of the dead may still receive
// for one BLMOVE; then the burial ends. Every replica does this; each message
// goes back once.
func (e *Engine) takeOver(ctx context.Context, id string) error {
	dead, err := e.deadReplica(ctx, id)
	if err != nil {
		return err
	}
	swept, err := e.sweepLists(ctx, dead, dead.moved)
	if err != nil {
		return err
	}
	moved := 0
	if !dead.moved {
		moved, err = e.putBack(ctx, dead)
		if err == nil {
			var again int
			again, err = e.sweepLists(ctx, dead, true)
			swept += again
		}
	}
	if n := swept + moved; n > 0 {
		e.log.Warn("messages of a dead replica were put back", "instance", id, "node", dead.node, "left", dead.left, "number", n)
		call1(e.cfg.Observer.TakenOver, n)
	}
	return err
}

// sweepLists empties the dead replica's in-flight lists; moved says that its
// entries in unacked have been put back, so the burial may end.
func (e *Engine) sweepLists(ctx context.Context, dead *deadReplica, moved bool) (int, error) {
	keys := []string{e.keys.replicas(), e.keys.buried(), e.keys.calls(), e.keys.entry(dead.id)}
	for _, name := range dead.lists {
		keys = append(keys, e.keys.inflight(dead.id, name))
	}
	for _, name := range dead.lists {
		keys = append(keys, e.keys.prefix+name)
	}
	flag := "0"
	if moved {
		flag = "1"
	}
	rep := newReply(e.run(ctx, e.scripts.sweep, keys, dead.id, flag, e.tune.sweep.Seconds()))
	if rep.int(0) == cycleBuried {
		return 0, errAlive
	}
	return int(rep.int(0)), rep.err
}

// entryOf is one entry of unacked under a dead replica's tag.
type entryOf struct {
	tag   string
	n     int64
	value string
}

func (e *Engine) putBack(ctx context.Context, dead *deadReplica) (int, error) {
	entries, err := e.entriesOf(ctx, dead.id)
	if err != nil {
		return 0, err
	}
	from := &replica{id: dead.id}
	moved := 0
	var unstored error
	for batch := range slices.Chunk(entries, maxTake) {
		ops := make([]settleOp, len(batch))
		items := make([]*item, len(batch))
		for i, en := range batch {
			items[i] = e.recovered(en.tag, []byte(en.value), from, e.clock.now(), time.Now())
			ops[i] = e.takeOverOp(items[i], dead)
		}
		// What is condemned has a result. One that cannot be written now is left
		// to a later beat, and holds nobody up.
		if ready, err := e.storeFirst(ctx, ops); err != nil {
			unstored = err
			ops, items = only(ops, ready), only(items, ready)
		}
		mine, err := e.settle(ctx, dead.id, ops)
		if err != nil {
			return moved, err
		}
		for i, ok := range mine {
			if ok {
				moved++
				e.tookOver(items[i], ops[i], dead)
			}
		}
	}
	return moved, unstored
}

// only keeps what is marked.
func only[T any](all []T, marked []bool) []T {
	var kept []T
	for i, v := range all {
		if marked[i] {
			kept = append(kept, v)
		}
	}
	return kept
}

// entriesOf lists what a replica has in unacked, newest first.
func (e *Engine) entriesOf(ctx context.Context, id string) ([]entryOf, error) {
	seen := map[string]bool{}
	var all []entryOf
	var cursor uint64
	for {
		page, cancel := context.WithTimeout(ctx, e.tune.call)
		kv, next, err := e.rdb.HScan(page, e.keys.unacked(), cursor, tagPrefix(id)+"*", scanCount).Result()
		cancel()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(kv); i += 2 {
			t, ok := e.keys.parseTag(kv[i])
			if !ok || t.owner != id || seen[kv[i]] {
				continue
			}
			seen[kv[i]] = true
			all = append(all, entryOf{tag: kv[i], n: t.n, value: kv[i+1]})
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b entryOf) int { return cmp.Compare(b.n, a.n) })
	return all, nil
}

// takeOverOp is what becomes of one message of a dead replica: back to the
// taking end, or the dead letters for one that has killed too often or cannot
// be read.
func (e *Engine) takeOverOp(it *item, dead *deadReplica) settleOp {
	if it.err != nil {
		return e.undecodable(it).settleOp()
	}
	deaths := deathsAfter(it.deaths(), it.tag, dead)
	it.deliv.Deaths = deaths
	if e.condemned(deaths) {
		text := strconv.Itoa(deaths) + " replicas died while they ran this task"
		return e.deadLetter(it, tasks.ReasonWorkerLost, text, wire.WorkerLost(text)).settleOp()
	}
	raw, err := wire.Redeliver([]byte(it.raw), deaths)
	if err != nil {
		return e.deadLetter(it, tasks.ReasonMalformed, err.Error(), wire.ExceptionOf(err)).settleOp()
	}
	return settleOp{tag: it.tag, op: &op{Act: actPush, List: it.src.key, Side: "R", raw: raw}}
}

func (e *Engine) tookOver(it *item, o settleOp, dead *deadReplica) {
	if o.op.Dead != nil {
		if f := e.cfg.Observer.Finished; f != nil {
			f(Finished{Task: it.taskName(), Queue: it.src.queue, Outcome: tasks.Failed, Reason: o.op.Dead.Reason, Message: it.task()})
		}
		e.died(e.log.Error, it, o.op.Dead, "message of a dead replica", "deaths", it.deaths(), "instance", dead.id)
		return
	}
	e.log.Info("took over a message", "task", it.taskName(), "task_id", it.taskID(), "queue", it.src.queue,
		"deaths", it.deaths(), "instance", dead.id, "left", dead.left)
}

// namesOf reads the lists of a registry entry; where it is lost, the own lists
// are the best guess.
func (e *Engine) namesOf(text string) []string {
	names := namesIn(text)
	if len(names) > 0 {
		return names
	}
	for _, s := range e.sources {
		names = append(names, s.name)
	}
	return names
}

// namesIn reads the lists of a registry entry.
func namesIn(text string) []string {
	var names []string
	if json.Unmarshal([]byte(text), &names) != nil {
		return nil
	}
	return names
}
