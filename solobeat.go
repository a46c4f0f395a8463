// Package solobeat makes a worker of one's own: the stock command with Go
// handlers beside the commands of its configuration.
//
//	func main() {
//		var reg tasks.Registry
//		tasks.Register(&reg, "reports.hourly", hourly)
//		solobeat.Main(&reg)
//	}
//
// The program has all subcommands of solobeat: `./reports worker -c
// solobeat.yaml` runs the handlers. Programs that only want the lock or the
// record import lockguard or idempotency instead; they link nothing else.
package solobeat

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

// Main runs the command that os.Args names, with handlers for `worker`, and
// exits the process. It must be called first thing in main, since commands
// start the program a second time as their guardian. It ends in order on
// SIGINT, SIGTERM, SIGHUP and SIGQUIT; SIGABRT is what prints its goroutines.
// `worker` and `scheduler` read their files again on SIGHUP.
func Main(handlers *tasks.Registry) {
	guardian.RunIfChild() // does not return in a guardian process
	ctx, stop := stopContext()
	code := cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Environ(), handlers)
	stop()
	os.Exit(code)
}

// stopContext ends with the first stop signal, whose cause names it. Later ones
// change nothing. SIGHUP is none where the command has taken it.
func stopContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, hangups := make(chan os.Signal, 16), &cli.Hangups{}
	if stop := stopSignals(); len(stop) > 0 { // none would mean all
		signal.Notify(signals, stop...)
	}
	go func() {
		for ctx.Err() == nil {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP || !hangups.Taken() {
					cancel(&cli.SignalError{Signal: s})
				}
			case <-ctx.Done():
			}
		}
	}()
	return cli.WithHangups(ctx, hangups), func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// stopSignals are those that end the program in order. One that the caller
// had it ignore (nohup; the background jobs of a shell script) stays ignored.
func stopSignals() []os.Signal {
	var stop []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			stop = append(stop, s)
		}
	}
	return stop
}
