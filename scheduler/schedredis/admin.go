package schedredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/scheduler"
)

// Current implements [scheduler.State].
func (s *State) Current(ctx context.Context) (scheduler.FileInfo, error) {
	v, err := s.client.HMGet(ctx, s.prefix+"current", "gen", "file", "id", "name", "path").Result()
	if err != nil {
		return scheduler.FileInfo{}, fmt.Errorf("schedredis: current file: %w", err)
	}
	return scheduler.FileInfo{
		Generation: text(v, 0), File: text(v, 1), Replica: text(v, 2), Name: text(v, 3), Path: text(v, 4),
	}, nil
}

// Load implements [scheduler.State].
func (s *State) Load(ctx context.Context, jobs []string) ([]scheduler.JobState, error) {
	current, err := s.Current(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]scheduler.JobState, 0, len(jobs))
	for part := range slices.Chunk(jobs, batch) {
		cmds := make([]*redis.MapStringStringCmd, len(part))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, job := range part {
				cmds[i] = p.HGetAll(ctx, s.jobKey(job))
			}
			return nil
		})
		for i, job := range part {
			state, jobErr := decodeJob(job, cmds[i], current.Generation)
			if jobErr != nil {
				return nil, fmt.Errorf("schedredis: state of job %q: %w", job, cmp.Or(jobErr, err))
			}
			states = append(states, state)
		}
	}
	return states, nil
}

// CheckJob tells that a key of a foreign type stands where the job's state
// should: of such a job [State.Load] knows nothing. No key is no error.
func (s *State) CheckJob(ctx context.Context, job string) error {
	kind, err := s.client.Type(ctx, s.jobKey(job)).Result()
	switch {
	case err != nil:
		return fmt.Errorf("schedredis: state of job %q: %w", job, err)
	case kind != "none" && kind != "hash":
		return fmt.Errorf("schedredis: state of job %q: the key %q is a %s, not a hash: somebody else wrote it", job, s.jobKey(job), kind)
	}
	return nil
}

// decodeJob reads one job's hash. A key of a foreign type is a job of which
// nothing is known: its claims say what is wrong, and the others go on.
func decodeJob(job string, cmd *redis.MapStringStringCmd, generation string) (scheduler.JobState, error) {
	h, err := cmd.Result()
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return scheduler.JobState{}, err
	}
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(h[field], 10, 64)
		return n
	}
	var pause *scheduler.Pause
	if h["paused"] != "" {
		pause = &scheduler.Pause{Since: instant(h["paused"]), By: h["paused_by"], Reason: h["paused_why"]}
	}
	return scheduler.JobState{
		Job: job, Known: h["rev"] != "",
		Last: instant(h["last"]), Label: h["label"], Seq: number("seq"), Missed: number("missed"),
		Skipped: number("skipped"), Paused: pause,
		Since: instant(h["since"]), Revision: h["rev"], Current: h["gen"] != "" && h["gen"] == generation,
		Next: instant(h["next"]), At: instant(h["at"]), By: cmp.Or(h["name"], h["by"]),
		Result: h["result"], TaskID: h["task"],
		LastBegun: instant(h["begun"]), LastSuccess: instant(h["success"]),
	}, nil
}

// Jobs implements [scheduler.Admin].
func (s *State) Jobs(ctx context.Context) ([]scheduler.JobState, error) {
	current, err := s.Current(ctx)
	if err != nil || current.File == "" {
		return nil, err
	}
	names, err := s.client.HKeys(ctx, s.prefix+"revs:"+current.File).Result()
	if err != nil {
		return nil, fmt.Errorf("schedredis: jobs of the current file: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	slices.Sort(names)
	return s.Load(ctx, names)
}

// History implements [scheduler.Admin].
func (s *State) History(ctx context.Context, job string, n int) ([]scheduler.HistoryEntry, error) {
	if n <= 0 {
		n = 50
	}
	msgs, err := s.client.XRevRangeN(ctx, s.historyKey(job), "+", "-", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("schedredis: history of job %q: %w", job, err)
	}
	entries := make([]scheduler.HistoryEntry, 0, len(msgs))
	for _, m := range msgs {
		entries = append(entries, decodeHistory(m))
	}
	return entries, nil
}

func decodeHistory(m redis.XMessage) scheduler.HistoryEntry {
	field := func(name string) string {
		v, _ := m.Values[name].(string)
		return v
	}
	number := func(name string) int64 {
		v, _ := strconv.ParseInt(field(name), 10, 64)
		return v
	}
	at, _, _ := strings.Cut(m.ID, "-")
	var run *scheduler.RunEntry
	reason := field("reason")
	if n := number("attempt"); n > 0 {
		fence, _ := strconv.ParseUint(field("fence"), 10, 64)
		run = &scheduler.RunEntry{Reason: reason, Attempt: int(n), Fence: fence, Takeover: field("takeover") == "1", TookMS: number("took")}
		reason = ""
	}
	return scheduler.HistoryEntry{
		At: instant(at), Outcome: field("outcome"), Tick: instant(field("tick")), Label: field("label"),
		Count: number("count"), By: cmp.Or(field("by"), field("id")), TaskID: field("task"), LateMS: number("late"), Reason: reason, Run: run,
	}
}

// LastRuns implements [scheduler.Admin].
func (s *State) LastRuns(ctx context.Context, jobs []string) (map[string]scheduler.HistoryEntry, error) {
	runs := map[string]scheduler.HistoryEntry{}
	for part := range slices.Chunk(jobs, batch) {
		cmds := make([]*redis.XMessageSliceCmd, len(part))
		_, _ = s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			for i, job := range part {
				cmds[i] = p.XRevRangeN(ctx, s.historyKey(job), "+", "-", lastEntries)
			}
			return nil
		})
		for i, job := range part {
			msgs, err := cmds[i].Result()
			// A stream that is something else is for a person to mend: the list of
			// all jobs is not lost by it.
			if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return nil, fmt.Errorf("schedredis: history of job %q: %w", job, err)
			}
			for _, m := range msgs {
				if e := decodeHistory(m); e.Ended() {
					runs[job] = e
					break
				}
			}
		}
	}
	return runs, nil
}

// lastEntries is how far back the last run of a job is searched for.
const lastEntries = 10

// AddHistory implements [scheduler.Admin].
func (s *State) AddHistory(ctx context.Context, job string, e scheduler.HistoryEntry) error {
	if e.Run == nil {
		return errors.New("schedredis: AddHistory is for runs")
	}
	return s.addHistory(ctx, job,
		"outcome", e.Outcome, "tick", millis(e.Tick), "label", e.Label, "count", 1, "by", e.By, "task", e.TaskID, "late", 0,
		"reason", e.Run.Reason, "attempt", e.Run.Attempt, "fence", e.Run.Fence, "takeover", flag(e.Run.Takeover), "took", e.Run.TookMS)
}

// NoteRun implements [scheduler.Admin].
func (s *State) NoteRun(ctx context.Context, job string, r scheduler.RunNote) (again bool, err error) {
	n, err := s.runner.Run(ctx, s.ran, []string{s.jobKey(job)}, millis(r.Tick), flag(r.Succeeded), r.TaskID).Int()
	if err != nil {
		return false, fmt.Errorf("schedredis: runs of job %q: %w", job, err)
	}
	return n == 1, nil
}

// Replicas implements [scheduler.Admin].
func (s *State) Replicas(ctx context.Context) ([]scheduler.ReplicaInfo, error) {
	var beats *redis.ZSliceCmd
	var info *redis.MapStringStringCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		beats = p.ZRangeWithScores(ctx, s.prefix+"beats", 0, -1)
		info = p.HGetAll(ctx, s.prefix+"info")
		return nil
	})
	current, curErr := s.Current(ctx)
	if err := errors.Join(err, curErr); err != nil {
		return nil, fmt.Errorf("schedredis: replicas: %w", err)
	}
	h := info.Val()
	var all []scheduler.ReplicaInfo
	for _, z := range beats.Val() {
		id, _ := z.Member.(string)
		load, _ := strconv.ParseInt(h[id+":load"], 10, 64)
		all = append(all, scheduler.ReplicaInfo{
			FileInfo: scheduler.FileInfo{File: h[id+":file"], Path: h[id+":path"], Replica: id, Name: h[id+":name"]},
			Load:     time.UnixMicro(load).UTC(), Beat: time.UnixMilli(int64(z.Score)).UTC(),
			Current: h[id+":file"] == current.File,
		})
	}
	slices.SortFunc(all, func(a, b scheduler.ReplicaInfo) int { return b.Load.Compare(a.Load) })
	return all, nil
}
