package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// memState is a [State] in memory with the rules of the scripts, for tests
// with a fake clock.
type memState struct {
	mu       sync.Mutex
	skew     time.Duration // the store's clock against the local one
	down     bool
	loseNext int // replies to lose after the work is done

	jobs     map[string]*memJob
	replicas map[string]*memReplica
	maps     map[string]map[string]string
	beats    map[string]time.Time // file -> last beat
	current  FileInfo
	load     int64

	published []memMessage
	claims    int
	asked     int // calls of Current
}

type memJob struct {
	JobState
	gen, civil, lastRev, by string
	as                      Outcome
}

type memReplica struct {
	Replica
	beat, quiet time.Time
}

type memMessage struct {
	job  string
	tick time.Time
	at   time.Time
	id   string
	by   string
}

var errDown = errors.New("memstate: down")

func newMemState() *memState {
	return &memState{
		jobs: map[string]*memJob{}, replicas: map[string]*memReplica{}, maps: map[string]map[string]string{},
		beats: map[string]time.Time{},
	}
}

func (m *memState) now() time.Time { return time.Now().Add(m.skew).Truncate(time.Millisecond).UTC() }

func (m *memState) enter(ctx context.Context) (func(), error) {
	m.mu.Lock()
	if ctx.Err() != nil || m.down {
		m.mu.Unlock()
		return nil, errDown
	}
	return m.mu.Unlock, nil
}

func (m *memState) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// flush loses all data.
func (m *memState) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.jobs)
	clear(m.replicas)
	clear(m.maps)
	clear(m.beats)
	m.current, m.load = FileInfo{}, 0
}

// messages are the published ones, in order.
func (m *memState) messages() []memMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.published)
}

// Now implements State.
func (m *memState) Now(ctx context.Context) (time.Time, error) {
	leave, err := m.enter(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer leave()
	return m.now(), nil
}

// Check implements State.
func (m *memState) Check(context.Context) error { return nil }

// Current implements State.
func (m *memState) Current(ctx context.Context) (FileInfo, error) {
	leave, err := m.enter(ctx)
	if err != nil {
		return FileInfo{}, err
	}
	defer leave()
	m.asked++
	return m.current, nil
}

// Load implements State.
func (m *memState) Load(ctx context.Context, jobs []string) ([]JobState, error) {
	leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	states := make([]JobState, len(jobs))
	for i, name := range jobs {
		if j := m.jobs[name]; j != nil {
			states[i] = j.JobState
			states[i].Known = true
		}
	}
	return states, nil
}

// pause pauses a job, or ends that, as pause.lua does.
func (m *memState) pause(job string, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, now := m.jobs[job], m.now()
	if on {
		j.Paused = &Pause{Since: now, By: "ops"}
		return
	}
	j.Paused, j.Since = nil, maxTime(j.Since, now)
}

// Beat implements State.
func (m *memState) Beat(ctx context.Context, r Replica, revisions map[string]string) (BeatReply, error) {
	leave, err := m.enter(ctx)
	if err != nil {
		return BeatReply{}, err
	}
	defer leave()
	now := m.now()
	if m.maps[r.File] == nil {
		m.maps[r.File] = maps.Clone(revisions)
	}
	m.beats[r.File] = now
	old := m.replicas[r.ID]
	me := &memReplica{Replica: r, beat: now}
	if me.Load == 0 {
		me.Load = max(now.UnixMicro(), m.load+1)
		for _, o := range m.replicas {
			me.Load = max(me.Load, o.Load+1)
		}
	}
	switch {
	case old == nil:
		me.quiet = now.Add(5 * time.Second)
	case now.Sub(old.beat) > 5*time.Second:
		me.quiet = now.Add(15 * time.Second)
	default:
		me.quiet = old.quiet
	}
	m.replicas[r.ID] = me
	reply := BeatReply{Load: me.Load, Now: now, Registered: old == nil}
	if !now.Before(me.quiet) {
		for id, o := range m.replicas {
			if now.Sub(o.beat) > 10*time.Second {
				delete(m.replicas, id)
				reply.Buried = append(reply.Buried, id)
			}
		}
	}
	reply.Switched = m.settle(now)
	reply.Current = m.current
	reply.Others = len(m.replicas) - 1
	return reply, nil
}

// Leave implements State.
func (m *memState) Leave(ctx context.Context, r Replica) error {
	leave, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if m.replicas[r.ID] != nil {
		m.beats[r.File] = m.now()
		delete(m.replicas, r.ID)
	}
	m.settle(m.now())
	return nil
}

func (m *memState) settle(now time.Time) bool {
	var newest *memReplica
	for _, r := range m.replicas {
		if newest == nil || r.Load > newest.Load {
			newest = r
		}
	}
	if newest == nil {
		return false
	}
	m.load = newest.Load
	if newest.File == m.current.File {
		return false
	}
	was := m.current
	m.current = FileInfo{
		Generation: time.Now().String() + newest.File, File: newest.File, Path: newest.Path, Replica: newest.ID, Name: newest.Name,
	}
	for name, rev := range m.maps[newest.File] {
		j := m.jobs[name]
		switch {
		case j == nil:
			j = &memJob{}
			j.Since, j.Revision = now, rev
			m.jobs[name] = j
		case j.Revision != rev || j.gen != was.Generation:
			since := time.UnixMicro(newest.Load).UTC().Truncate(time.Millisecond)
			if j.gen != was.Generation {
				since = maxTime(since, m.beats[was.File])
			} else {
				for file, beat := range m.beats {
					if m.maps[file][name] == j.Revision {
						since = maxTime(since, beat)
					}
				}
			}
			j.Since, j.Revision = maxTime(j.Since, since), rev
		}
		j.gen = m.current.Generation
	}
	return true
}

// Claim implements State.
func (m *memState) Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult {
	results := make([]ClaimResult, len(claims))
	leave, err := m.enter(ctx)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer leave()
	m.claims += len(claims)
	for i, c := range claims {
		results[i] = m.claim(r, c)
	}
	if m.loseNext > 0 {
		m.loseNext--
		for i := range results {
			results[i] = ClaimResult{Err: errDown}
		}
	}
	return results
}

func (m *memState) claim(r Replica, c Claim) ClaimResult {
	now := m.now()
	res := ClaimResult{Now: now}
	j := m.jobs[c.Job]
	if m.current.Generation == "" {
		res.Outcome, res.NeedBeat = Unseeded, true
		return res
	}
	if j == nil || j.Revision != c.Revision || j.gen != m.current.Generation {
		if m.current.File != r.File {
			res.Outcome, res.Generation = Stale, m.current.Generation
			return res
		}
		j = &memJob{gen: m.current.Generation}
		j.Since, j.Revision = now, c.Revision
		m.jobs[c.Job] = j
		res.Outcome, res.Mark = Unseeded, now
		return res
	}
	res.Mark, res.Last, res.By, res.LastAs = j.Mark(), j.Last, j.by, j.as
	missed := c.Step != Sent && (now.After(c.MissAfter) || c.Step == Whole && c.List == "")
	switch {
	case !c.Tick.After(res.Mark):
		res.Outcome = Duplicate
		return res
	case now.Before(c.Due):
		res.Outcome, res.Wait = Early, c.Due.Sub(now)
		return res
	case c.Civil != "" && c.Civil == j.civil && c.Revision == j.lastRev && c.Tick.Sub(j.Last) < 26*time.Hour:
		j.Last = c.Tick
		res.Outcome, res.Mark, res.Last, res.By = Duplicate, c.Tick, c.Tick, "?"
		return res
	case c.Jumped > 0 && !c.Base.Equal(res.Mark), c.InOrder && !missed && c.Prev.After(res.Mark):
		res.Outcome = Gap
		return res
	}
	paused := j.Paused != nil && c.Step != Sent
	if c.Step == Look && !missed && !paused {
		res.Outcome = Fired
		return res
	}
	j.Last, j.Label, j.civil, j.lastRev, j.by = c.Tick, c.Label, c.Civil, c.Revision, r.ID
	switch {
	case paused:
		j.Skipped += int64(c.Jumped) + 1
		j.as, res.Outcome = Paused, Paused
		return res
	case missed:
		j.Missed += int64(c.Jumped) + 1
		j.as, res.Outcome = Missed, Missed
		return res
	}
	j.as = Fired
	j.Missed += int64(c.Jumped)
	j.Seq++
	if c.Step == Whole {
		m.published = append(m.published, memMessage{job: c.Job, tick: c.Tick, at: now, id: c.TaskID, by: r.ID})
	}
	res.Outcome = Fired
	return res
}
