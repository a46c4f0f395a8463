package worker

import (
	"context"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// yield leaves the lock to the engine, to be freed in the step that settles the
// message. Only what ends the message is settled by that step.
func (r *run) yield(ctx context.Context, out *tasks.Outcome) bool {
	if out.Kind != tasks.Succeeded && out.Kind != tasks.Failed || !r.d.Unlocks || r.away {
		return false
	}
	token, channel, ok := r.lock.Yield()
	if !ok {
		return false
	}
	r.info.Renewals = r.lock.Renewals()
	r.free = append(r.free, r.plan.lock.key)
	out.WonLock, out.Unlock = true, &unlock{r, context.WithoutCancel(ctx), token, channel}
	return true
}

// unlock is a [tasks.Unlock].
type unlock struct {
	r              *run
	ctx            context.Context // for its values
	token, channel string
}

// Lock implements [tasks.Unlock].
func (u *unlock) Lock() (key, token, channel string) { return u.r.plan.lock.key, u.token, u.channel }

// Lines implements [tasks.Unlock].
func (u *unlock) Lines() []string { return u.r.free }

// Unlocked implements [tasks.Unlock].
func (u *unlock) Unlocked(by tasks.Waker, end tasks.UnlockEnd) {
	result := lockguard.ReleaseUnknown
	switch end {
	case tasks.Unlocked:
		result = lockguard.Released
	case tasks.UnlockNotHeld:
		result = lockguard.NotHeld
	case tasks.UnlockUnknown:
	}
	u.r.lock.Yielded(result)
	u.r.wake(u.ctx, by)
}

// Release implements [tasks.Unlock].
func (u *unlock) Release() {
	_, _ = u.r.lock.Release(u.ctx) // counted and logged by the guard
	u.r.wake(u.ctx, nil)
}
