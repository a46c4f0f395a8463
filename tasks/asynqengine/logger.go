package asynqengine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logger passes on what asynq says: some faults show only there. Its news are
// debug lines here, and so is the end of a task, which the chain tells of.
type logger struct{ log *slog.Logger }

func (l logger) say(level slog.Level, args []any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "asynq: "+text)
}

func (l logger) Debug(args ...any) { l.say(slog.LevelDebug, args) }
func (l logger) Info(args ...any)  { l.say(slog.LevelDebug, args) }
func (l logger) Warn(args ...any)  { l.say(slog.LevelWarn, args) }
func (l logger) Error(args ...any) { l.say(slog.LevelError, args) }
func (l logger) Fatal(args ...any) { l.say(slog.LevelError, args) }
