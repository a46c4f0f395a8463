package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
)

// deadView is a dead letter of any engine, as -o json prints it. On asynq it is
// an archived task, its id is the task's, and raw its payload.
type deadView struct {
	Engine string `json:"engine"`
	celery.DeadLetter

	late bool // it may not begin any more
}

// errNoLetter: there is no dead letter of that id, or not any more.
var errNoLetter = errors.New("no such dead letter")

// shelf is where one engine keeps its dead letters.
type shelf interface {
	// queues are those that may have some.
	queues(ctx context.Context) ([]string, error)
	// number is how many a queue has.
	number(ctx context.Context, queue string) (int, error)
	// list gives a queue's letters, the newest first, at most limit (0: all),
	// without their bytes.
	list(ctx context.Context, queue string, limit int64) ([]deadView, error)
	// each gives those that are there now to fn in pages, the oldest first, with
	// their bytes.
	each(ctx context.Context, queue string, fn func([]deadView) error) error
	read(ctx context.Context, queue, id string) (*deadView, error)
	// requeue and drop answer in the order of the letters: nil, errNoLetter, or
	// why this one cannot be sent.
	requeue(ctx context.Context, queue string, letters []deadView) ([]error, error)
	drop(ctx context.Context, queue string, letters []deadView) ([]error, error)
}

// shelves are those of one engine, or of the worker's.
func (s *stores) shelves(engine string) []shelf {
	has := func(name string) bool { return engine == name || engine == "" && s.cfg.Worker.Has(name) }
	var all []shelf
	if has(config.EngineCelery) {
		all = append(all, celeryShelf{s.admin(nil)})
	}
	if has(config.EngineAsynq) {
		all = append(all, asynqShelf{s.asynqAdmin(nil)})
	}
	return all
}

// noLetter puts our error in front of an engine's own.
func noLetter(err error) error {
	if errors.Is(err, celery.ErrNoDeadLetter) || errors.Is(err, asynqengine.ErrNoArchived) {
		return fmt.Errorf("%w: %w", errNoLetter, err)
	}
	return err
}

func noLetters(errs []error, err error) ([]error, error) {
	for i := range errs {
		errs[i] = noLetter(errs[i])
	}
	return errs, err
}

type celeryShelf struct{ *celery.Admin }

func (s celeryShelf) queues(ctx context.Context) ([]string, error) { return s.DeadQueues(ctx) }

func (s celeryShelf) number(ctx context.Context, queue string) (int, error) {
	return s.DeadNumber(ctx, queue)
}

func celeryView(d celery.DeadLetter) deadView {
	return deadView{Engine: celery.EngineName, DeadLetter: d, late: d.Late(time.Now())}
}

func celeryViews(letters []celery.DeadLetter) []deadView {
	views := make([]deadView, len(letters))
	for i, d := range letters {
		views[i] = celeryView(d)
	}
	return views
}

func (s celeryShelf) list(ctx context.Context, queue string, limit int64) ([]deadView, error) {
	letters, err := s.DeadLetters(ctx, limit, queue)
	return celeryViews(letters), err
}

func (s celeryShelf) each(ctx context.Context, queue string, fn func([]deadView) error) error {
	return s.EachDeadLetter(ctx, queue, func(letters []celery.DeadLetter) error { return fn(celeryViews(letters)) })
}

func (s celeryShelf) read(ctx context.Context, queue, id string) (*deadView, error) {
	d, err := s.DeadLetter(ctx, queue, id)
	if err != nil {
		return nil, noLetter(err)
	}
	v := celeryView(*d)
	return &v, nil
}

func (s celeryShelf) requeue(ctx context.Context, queue string, letters []deadView) ([]error, error) {
	all := make([]celery.DeadLetter, len(letters))
	for i, v := range letters {
		all[i] = v.DeadLetter
	}
	return noLetters(s.Requeue(ctx, queue, all))
}

func (s celeryShelf) drop(ctx context.Context, queue string, letters []deadView) ([]error, error) {
	ids := make([]string, len(letters))
	for i, v := range letters {
		ids[i] = v.ID
	}
	return noLetters(s.Drop(ctx, queue, ids...))
}

type asynqShelf struct{ *asynqengine.Admin }

func (s asynqShelf) queues(ctx context.Context) ([]string, error) { return s.ArchiveQueues(ctx) }

func (s asynqShelf) number(ctx context.Context, queue string) (int, error) {
	ids, err := s.ArchiveIDs(ctx, queue)
	return len(ids), err
}

func (s asynqShelf) view(queue, id string) (*deadView, error) {
	t, err := s.Archived(queue, id)
	if err != nil {
		return nil, noLetter(err)
	}
	return &deadView{
		Engine: asynqengine.EngineName, late: !t.Expires.IsZero() && time.Now().After(t.Expires),
		DeadLetter: celery.DeadLetter{
			ID: id, TaskID: id, Queue: queue, Reason: t.Reason, Detail: t.Detail, At: t.At, Task: t.Task, Raw: t.Payload,
		},
	}, nil
}

func (s asynqShelf) list(ctx context.Context, queue string, limit int64) ([]deadView, error) {
	ids, err := s.ArchiveIDs(ctx, queue)
	if err != nil {
		return nil, err
	}
	slices.Reverse(ids)
	if limit > 0 {
		ids = ids[:min(int64(len(ids)), limit)]
	}
	views, err := s.views(ctx, queue, ids)
	for i := range views {
		views[i].Raw = nil
	}
	return views, err
}

// views reads tasks; one that has left the archive meanwhile is left out.
func (s asynqShelf) views(ctx context.Context, queue string, ids []string) ([]deadView, error) {
	var views []deadView
	for _, id := range ids {
		v, err := s.view(queue, id)
		switch {
		case errors.Is(err, errNoLetter):
			continue
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		views = append(views, *v)
	}
	return views, nil
}

// shelfPage is how many tasks are read before they are dealt with.
const shelfPage = 100

func (s asynqShelf) each(ctx context.Context, queue string, fn func([]deadView) error) error {
	ids, err := s.ArchiveIDs(ctx, queue)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(ids, shelfPage) {
		views, err := s.views(ctx, queue, page)
		if err != nil {
			return err
		}
		if err := fn(views); err != nil {
			return err
		}
	}
	return nil
}

func (s asynqShelf) read(_ context.Context, queue, id string) (*deadView, error) {
	return s.view(queue, id)
}

func (s asynqShelf) requeue(ctx context.Context, queue string, letters []deadView) ([]error, error) {
	return s.do(ctx, queue, letters, s.Requeue)
}

func (s asynqShelf) drop(ctx context.Context, queue string, letters []deadView) ([]error, error) {
	return s.do(ctx, queue, letters, s.Drop)
}

func (s asynqShelf) do(ctx context.Context, queue string, letters []deadView, act func(ctx context.Context, queue, id string) error) ([]error, error) {
	errs := make([]error, len(letters))
	for i, v := range letters {
		errs[i] = noLetter(act(ctx, queue, v.ID))
		if errs[i] != nil && !errors.Is(errs[i], errNoLetter) {
			return nil, errs[i]
		}
	}
	return errs, nil
}
