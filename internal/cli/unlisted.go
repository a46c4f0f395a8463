package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/solobeat/solobeat/tasks/celery"
)

// unlistedCure is what to do about messages beside the dead letters.
const unlistedCure = "give the workers' user the ACL rule +xadd, and see that the key solobeat:<namespace>:dead:<queue> is a stream or absent; then solobeat dead requeue --raw, or dead drop --raw"

func unlistedText(u celery.UnlistedLetters) string {
	return fmt.Sprintf("%s of queue %s could not be put into the stream of its dead letters: kept as they came in the list %s", counted(int(u.Number), "message"), u.Queue, u.List)
}

// unlisted are those that are picked.
func (p *pick) unlisted(ctx context.Context, a *celery.Admin) ([]celery.UnlistedLetters, error) {
	all, err := a.Unlisted(ctx)
	return slices.DeleteFunc(all, func(u celery.UnlistedLetters) bool { return p.queue != "" && u.Queue != p.queue }), err
}

// noteUnlisted tells of what the list does not have. It comes before the list,
// which cannot be read where another program's key is in the stream's place.
func (c *program) noteUnlisted(ctx context.Context, p *pick, shelves []shelf) {
	for _, one := range shelves {
		s, ok := one.(celeryShelf)
		if !ok {
			continue
		}
		all, err := p.unlisted(ctx, s.Admin)
		if err != nil {
			c.note("not looked for what lies beside the dead letters: %s", message(err))
		}
		for _, u := range all {
			c.note("not listed: %s (%s)", unlistedText(u), unlistedCure)
		}
	}
}

// runRaw deals with all that lies beside the dead letters.
func (d *deed) runRaw(ctx context.Context, a *celery.Admin) error {
	all, err := d.pick.unlisted(ctx, a)
	n := 0
	for _, u := range all {
		n += int(u.Number)
	}
	if err != nil || n == 0 {
		return err
	}
	if err := d.ask(ctx, n); err != nil {
		return err
	}
	for _, u := range all {
		letters, err := d.doRaw(a, ctx, u.Queue)
		for _, l := range letters {
			d.views = append(d.views, fateView{Engine: celery.EngineName, Queue: l.Queue, Task: l.Task, TaskID: l.TaskID, Fate: d.fate})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
