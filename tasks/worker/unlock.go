package worker

import (
	"context"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// yield leaves the lock to the engine, to be freed in the step that settles the
// message. Only what ends the message is settled by that step. Runs that wait for
// the lock in their slots shall not wait for it, since acks are gathered.
func (r *run) yield(ctx context.Context, out *tasks.Outcome) bool {
	if out.Kind != tasks.Succeeded && out.Kind != tasks.Failed || !r.d.Unlocks || r.plan.lock.onBusy == tasks.OnBusyWait {
		return false
	}
	token, channel, ok := r.lock.Yield()
	if !ok {
		return false
	}
	r.info.Renewals = r.lock.Renewals()
	r.free = append(r.free, r.plan.lock.key)
	out.Unlock = &tasks.Unlock{
		Key: r.plan.lock.key, Token: token, Channel: channel, Lines: r.free,
		Ended: func(by tasks.Waker, end tasks.UnlockEnd) { r.unlocked(ctx, by, end) },
	}
	return true
}

func (r *run) unlocked(ctx context.Context, by tasks.Waker, end tasks.UnlockEnd) {
	switch end {
	case tasks.UnlockLeft:
		go func() {
			_, _ = r.lock.Release(ctx) // counted and logged by the guard
			r.wake(ctx, nil)
		}()
		return
	case tasks.UnlockFreed:
		r.lock.Yielded(lockguard.Released)
	case tasks.UnlockNotHeld:
		r.lock.Yielded(lockguard.NotHeld)
	case tasks.UnlockUnknown:
		r.lock.Yielded(lockguard.ReleaseUnknown)
	}
	r.wake(ctx, by)
}
