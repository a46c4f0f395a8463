package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Hangups says what SIGHUP means: for a worker and a scheduler it is the order
// to read their files again, for every other command a stop signal.
type Hangups struct{ taken atomic.Bool }

// Taken tells that SIGHUP is no stop signal in this process.
func (h *Hangups) Taken() bool { return h.taken.Load() }

type hangupsKey struct{}

// WithHangups lets commands take SIGHUP from whoever else listens to it.
func WithHangups(ctx context.Context, h *Hangups) context.Context {
	return context.WithValue(ctx, hangupsKey{}, h)
}

// takeHangups takes SIGHUP for the rest of the process's life; also where it was
// ignored (nohup), since it ends nothing. The channel is nil where the caller
// of [Main] has not asked for that.
func takeHangups(ctx context.Context) (orders <-chan os.Signal, stop func()) {
	h, ok := ctx.Value(hangupsKey{}).(*Hangups)
	if !ok {
		return nil, func() {}
	}
	h.taken.Store(true)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
