package celery

import "github.com/solobeat/solobeat/tasks"

// unlocksOf are the locks of acks, to be freed in the same call as they.
func unlocksOf(acks []*commit) []*tasks.Unlock {
	var all []*tasks.Unlock
	for _, a := range acks {
		if u := a.out.Unlock; u != nil {
			all = append(all, u)
		}
	}
	return all
}

// unlocked tells runs what has become of their locks. After a lost reply a lock
// that is not held may have been freed by the first try.
func (e *Engine) unlocked(c *cycleCall, r *cycleReply, unsure bool) {
	for i, u := range c.unlocks {
		end := tasks.UnlockUnknown
		switch {
		case r.repeated:
		case r.unlocked[i] == unlockFreed:
			end = tasks.UnlockFreed
		case r.unlocked[i] == unlockFailed:
			end = tasks.UnlockLeft
		case !unsure:
			end = tasks.UnlockNotHeld
		}
		u.Ended(e, end)
	}
}

// release has runs free the locks of commits that no call will free.
func (e *Engine) release(commits ...*commit) {
	for _, c := range commits {
		if u := c.out.Unlock; u != nil {
			c.out.Unlock = nil
			u.Ended(e, tasks.UnlockLeft)
		}
	}
}

// releaseRest is for the end of the loop, after which nothing is acked any more.
func (l *loop) releaseRest() {
	l.e.ended.Store(true)
	l.e.release(l.acks...)
	l.e.release(l.e.finished.take()...)
}
