package celery

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// eventIdent is what events tell as sw_ident.
const eventIdent = "solobeat"

// eventLoop tells Celery's monitors that this worker is there.
func (e *Engine) eventLoop(ctx context.Context) {
	e.event(ctx, wire.EventOnline)
	t := time.NewTicker(e.tune.event)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
			defer cancel()
			e.event(last, wire.EventOffline)
			return
		case <-t.C:
			e.event(ctx, wire.EventHeartbeat)
		}
	}
}

// event publishes one event. Nobody may be listening, and nothing depends on
// it, so a failure is left to the next one.
func (e *Engine) event(ctx context.Context, kind string) {
	payload, err := wire.EncodeEvent(wire.WorkerEvent{
		Type: kind, Hostname: e.NodeName(), PID: os.Getpid(), Clock: e.eventTick.Add(1), Freq: e.tune.event,
		Active: e.Active(), Processed: int(e.processed.Load()), Loadavg: loadavg(),
		Ident: eventIdent, Version: e.cfg.Version, System: system(), Time: time.Now(),
	})
	if err != nil {
		e.log.Error("event cannot be encoded", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.tune.event)
	defer cancel()
	if err := e.rdb.Publish(ctx, e.keys.prefix+wire.EventChannel(e.rdb.Options().DB, kind), payload).Err(); err != nil {
		e.log.Debug("event was not published", "type", kind, "error", err)
	}
}

func system() string {
	if runtime.GOOS == "linux" {
		return "Linux" // as Python's platform.system says it
	}
	return runtime.GOOS
}

// loadavg is the machine's; zeros where it is not known.
func loadavg() [3]float64 {
	var l [3]float64
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return l
	}
	for i, f := range strings.Fields(string(text)) {
		if i == len(l) {
			break
		}
		l[i], _ = strconv.ParseFloat(f, 64)
	}
	return l
}
