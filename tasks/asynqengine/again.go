package asynqengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/tasks"
)

// Again sends a task by an id that may have been used before, as [Client.Send]
// does: where asynq still keeps one that is done or archived, that is dropped.
// False says that one of this id is still to run.
func (c *Client) Again(ctx context.Context, r *tasks.Request) (sent bool, err error) {
	inspector := asynq.NewInspectorFromRedisClient(c.cfg.Client)
	for range 3 { // it may come to its end between two looks
		if sent, err := c.Send(ctx, r); sent || err != nil {
			return sent, err
		}
		info, err := inspector.GetTaskInfo(r.Queue, r.ID)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound):
			continue
		case err != nil:
			return false, fmt.Errorf("asynqengine: send %s again: %w", r.Name, err)
		case info.State != asynq.TaskStateCompleted && info.State != asynq.TaskStateArchived:
			return false, nil
		}
		if err := inspector.DeleteTask(r.Queue, r.ID); err != nil && !errors.Is(err, asynq.ErrTaskNotFound) {
			return false, fmt.Errorf("asynqengine: send %s again: %w", r.Name, err)
		}
	}
	return false, nil
}
