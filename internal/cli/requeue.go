package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/solobeat/solobeat/tasks/celery"
)

// Fates of a dead letter that was to be requeued or dropped.
const (
	fateRequeued = "requeued"
	fateDropped  = "dropped"
	fateGone     = "gone" // somebody else was faster
	fateKept     = "kept" // it cannot be sent again
)

// fateView is what became of one dead letter, as -o json prints it.
type fateView struct {
	Engine string `json:"engine"`
	ID     string `json:"id"`
	Queue  string `json:"queue"`
	Task   string `json:"task,omitempty"`
	TaskID string `json:"task_id,omitempty"`
	Fate   string `json:"fate"`
	Error  string `json:"error,omitempty"`
}

// deed is what is done to dead letters.
type deed struct {
	c    *program
	pick *pick
	fate string // of what it was done to
	do   func(shelf) func(ctx context.Context, queue string, letters []deadView) ([]error, error)
	// doRaw is for what lies beside a queue's dead letters.
	doRaw func(a *celery.Admin, ctx context.Context, queue string) ([]celery.DeadLetter, error)

	views []fateView
	late  int // of those that were sent, how many may not begin any more
	told  int
}

func (c *program) deadRequeue(ctx context.Context, p *pick) error {
	d := &deed{c: c, pick: p, fate: fateRequeued}
	d.do = func(s shelf) func(context.Context, string, []deadView) ([]error, error) { return s.requeue }
	d.doRaw = (*celery.Admin).RequeueUnlisted
	return d.run(ctx)
}

func (c *program) deadDrop(ctx context.Context, p *pick) error {
	d := &deed{c: c, pick: p, fate: fateDropped}
	d.do = func(s shelf) func(context.Context, string, []deadView) ([]error, error) { return s.drop }
	d.doRaw = (*celery.Admin).DropUnlisted
	return d.run(ctx)
}

func (d *deed) run(ctx context.Context) error {
	s, shelves, err := d.c.openDead(ctx, d.pick)
	if err != nil {
		return err
	}
	defer s.close()
	d.views = []fateView{}
	switch {
	case d.pick.raw:
		err = d.runRaw(ctx, s.admin(nil))
	case d.pick.all:
		err = d.runAll(ctx, shelves)
	default:
		err = d.runSome(ctx, shelves)
	}
	return errors.Join(err, d.end(err))
}

// runSome deals with the letters that were named. All must be there before
// any is touched.
func (d *deed) runSome(ctx context.Context, shelves []shelf) error {
	var all []*foundLetter
	for _, id := range d.pick.ids {
		f, err := d.pick.find(ctx, shelves, id)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	if err := d.ask(ctx, len(all)); err != nil {
		return err
	}
	for _, f := range all {
		if err := d.to(ctx, f.shelf, f.letter.Queue, []deadView{f.letter}); err != nil {
			return err
		}
	}
	return nil
}

// runAll deals with all that are picked, queue by queue.
func (d *deed) runAll(ctx context.Context, shelves []shelf) error {
	if d.fate == fateDropped && !d.pick.yes {
		n, err := d.count(ctx, shelves)
		if err != nil || n == 0 {
			return err
		}
		if err := d.ask(ctx, n); err != nil {
			return err
		}
	}
	for _, one := range shelves {
		queues, err := d.pick.queuesOf(ctx, one)
		if err != nil {
			return err
		}
		for _, q := range queues {
			err := one.each(ctx, q, func(letters []deadView) error {
				letters = slices.DeleteFunc(letters, func(l deadView) bool { return !d.pick.matches(l) })
				return d.to(ctx, one, q, letters)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deed) count(ctx context.Context, shelves []shelf) (n int, err error) {
	for _, one := range shelves {
		queues, err := d.pick.queuesOf(ctx, one)
		if err != nil {
			return 0, err
		}
		for _, q := range queues {
			letters, err := one.list(ctx, q, 0)
			if err != nil {
				return 0, err
			}
			for _, l := range letters {
				if d.pick.matches(l) {
					n++
				}
			}
		}
	}
	return n, nil
}

// progressEvery is after how many letters people are told how far it is.
const progressEvery = 1000

func (d *deed) to(ctx context.Context, s shelf, queue string, letters []deadView) error {
	if len(letters) == 0 {
		return nil
	}
	errs, err := d.do(s)(ctx, queue, letters)
	if err != nil {
		return err
	}
	for i, l := range letters {
		v := fateView{Engine: l.Engine, ID: l.ID, Queue: l.Queue, Task: l.Task, TaskID: l.TaskID, Fate: d.fate}
		switch {
		case errs[i] == nil && l.late && d.fate == fateRequeued:
			d.late++
		case errs[i] == nil:
		case errors.Is(errs[i], errNoLetter):
			v.Fate = fateGone
		default:
			v.Fate, v.Error = fateKept, errs[i].Error()
		}
		d.views = append(d.views, v)
	}
	if n := len(d.views) / progressEvery; n > d.told {
		d.told = n
		d.c.note("%s so far: %d", d.fate, d.number(d.fate))
	}
	return nil
}

func (d *deed) number(fate string) (n int) {
	for _, v := range d.views {
		if v.Fate == fate {
			n++
		}
	}
	return n
}

// end says what was done, also where it was cut short by an error.
func (d *deed) end(cut error) error {
	done, gone, kept := d.number(d.fate), d.number(fateGone), d.number(fateKept)
	if cut != nil && len(d.views) == 0 {
		return nil
	}
	if d.c.output == "json" {
		if err := printJSON(d.c.Out, d.views); err != nil {
			return err
		}
	}
	d.c.note("%s: %s", d.fate, counted(done, "dead letter"))
	if d.late > 0 {
		d.c.note("%d of them may not begin any more, since their expires or their job's deadline has passed: unless they had begun they end as REVOKED", d.late)
	}
	if gone > 0 {
		d.c.note("gone: %s, which somebody else requeued or dropped meanwhile", counted(gone, "dead letter"))
	}
	if kept > 0 {
		d.c.note("kept: %s that no worker could read; see solobeat dead show, and dead drop", counted(kept, "dead letter"))
	}
	if kept > 0 || gone > 0 && !d.pick.all {
		return exit(exitFailed, nil)
	}
	return nil
}

// ask asks before anything is deleted; where nobody can be asked, --yes is
// needed.
func (d *deed) ask(ctx context.Context, n int) error {
	if d.fate != fateDropped || d.pick.yes {
		return nil
	}
	return d.c.confirm(ctx, fmt.Sprintf("Delete %s for good?", counted(n, "dead letter")))
}
