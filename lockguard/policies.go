package lockguard

import (
	"fmt"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// Policies are what a configuration says of a lock beside its [Numbers], for
// those who check it. The zero value is the default.
type Policies struct {
	OnBusy      tasks.OnBusy
	OnLost      tasks.OnLost
	OnStoreDown tasks.OnStoreDown
	// Wait, StallAfter and MaxHold are those of the lock, 0 where not set;
	// Timeout is that of the run.
	Wait, StallAfter, MaxHold, Timeout time.Duration
	// Record says that the run has an idempotency record too.
	Record bool
}

// Conflict is what does not go together in [Policies].
type Conflict struct {
	// Keys are those of the configuration, the one at fault first, such as
	// "lock.wait".
	Keys []string
	// Msg is what is wrong, Cure what to write instead.
	Msg, Cure string
	// Warning: it is legal, and rarely meant.
	Warning bool
}

// Conflicts returns all that is wrong, nil if nothing is.
func (p Policies) Conflicts() []Conflict {
	var all []Conflict
	add := func(warning bool, keys []string, cure, msg string) {
		all = append(all, Conflict{Keys: keys, Msg: msg, Cure: cure, Warning: warning})
	}
	switch p.OnBusy {
	case "", tasks.OnBusySkip, tasks.OnBusyRetry, tasks.OnBusyWait:
	default:
		add(false, []string{"lock.on_busy"}, "write skip, retry or wait", fmt.Sprintf("%q is not known", p.OnBusy))
	}
	switch p.OnLost {
	case "", tasks.OnLostCancel, tasks.OnLostObserve:
	default:
		add(false, []string{"lock.on_lost"}, "write cancel or observe", fmt.Sprintf("%q is not known", p.OnLost))
	}
	switch p.OnStoreDown {
	case "", tasks.OnStoreDownRetry, tasks.OnStoreDownRun:
	default:
		add(false, []string{"lock.on_store_down"}, "write retry or run", fmt.Sprintf("%q is not known", p.OnStoreDown))
	}
	switch {
	case p.Wait > 0 && p.OnBusy != tasks.OnBusyWait:
		add(false, []string{"lock.wait", "lock.on_busy"}, "write on_busy: wait, or remove it", "nothing waits, since on_busy is not wait")
	case p.Wait > tasks.MaxBusyWait:
		add(false, []string{"lock.wait"}, "write at most 1h, or on_busy: retry, which waits in Redis",
			"it would take a slot of a worker for too long")
	}
	if p.OnStoreDown == tasks.OnStoreDownRun && p.Record {
		add(false, []string{"lock.on_store_down", "idempotency"}, "write on_store_down: retry, or idempotency: off",
			"the record lies in the lock's Redis: while that is down nothing with a record runs")
	}
	if p.StallAfter > 0 && p.OnLost == tasks.OnLostObserve {
		add(false, []string{"lock.stall_after", "lock.on_lost"}, "remove one of the two",
			"a run that stalls would lose its lock and go on, since on_lost is observe")
	}
	switch {
	case p.StallAfter == 0:
	case p.Timeout > 0 && p.StallAfter >= p.Timeout:
		add(true, []string{"lock.stall_after", "timeout"}, "write less than the timeout",
			"stall_after is not below the timeout, which ends the run first")
	case p.MaxHold > 0 && p.StallAfter >= p.MaxHold:
		add(true, []string{"lock.stall_after", "lock.max_hold"}, "write less than max_hold",
			"stall_after is not below max_hold, which ends the run first")
	}
	return all
}
