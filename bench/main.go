// Command bench measures Solobeat and its peers side by side, in one run on one
// machine, and writes a table of ratios. It starts all that it needs: private
// Redis servers on free ports, workers of each kind, a proxy that adds a delay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// group measures lines that belong together.
type group struct {
	name string
	run  func(context.Context, *bench) error
}

func groups() []group {
	return []group{
		{"throughput", throughput},
		{"delay", delay},
		{"latency", latency},
		{"idle", idle},
		{"guards", guards},
		{"renewals", renewals},
		{"locks", locks},
		{"waiter", waiter},
		{"jobs", jobs},
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "groups to run, with commas: "+strings.Join(names, ", ")+"; empty: all")
	rounds := flags.Int("rounds", 5, "rounds of each line")
	out := flags.String("o", "", "file to write the table to; a run of some groups or a tiny one needs another than the whole table's")
	tiny := flags.Bool("tiny", false, "few messages, one round: shows that the benchmarks work, measures nothing")
	sides := flags.String("sides", "", "of throughput only these workers, with commas: solobeat, prefork, threads, asynq, floor; lines that lack one are left out")
	kept := flags.String("messages", "", "file that keeps the messages that a Celery client made, for the next run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	began := time.Now()
	b, err := prepare(ctx, *rounds, *tiny, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.keepMessages(*kept); err != nil {
		return err
	}
	b.sides = *sides
	machine := b.machine(ctx, began)
	var failed error
	for _, g := range wanted {
		b.group = g.name
		if err := g.run(ctx, b); err != nil {
			b.say("failed: %v", err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", g.name, err))
		}
		if ctx.Err() != nil {
			return failed
		}
	}
	machine = append(machine, fmt.Sprintf("The run took %s; load at its end %s", time.Since(began).Round(time.Second), load()))
	if err := errors.Join(b.write(stdout, machine), failed); err != nil || *out == "" {
		return err // a table that lacks lines is shown, and not kept
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(b.write(f, machine), f.Close())
}

func choose(only string) ([]group, error) {
	all := groups()
	if only == "" {
		return all, nil
	}
	var chosen []group
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(g group) bool { return g.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no group %q; see -help", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
