// Command rlsbench measures what a decision costs: it runs envoy-rls with the memory store and a server that decides nothing
// (cmd/floor), sends both the same calls in turn, and prints the CPU time each spent per call.
//
// CPU time per call is what counts: on a machine that others use, or that runs the client too, it moves far less than
// throughput or latency, and the ratio of two servers that are measured in turn moves least of all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "rlsbench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	rounds   int
	duration time.Duration
	warmUp   time.Duration
	load     load
	server   string
	maxRatio float64
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("rlsbench", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.rounds, "rounds", 5, "how often each server is measured; the medians are printed")
	flags.DurationVar(&o.duration, "time", 2*time.Second, "how long a server is measured each time")
	flags.DurationVar(&o.warmUp, "warm-up", 500*time.Millisecond, "how long it is called before that")
	flags.IntVar(&o.load.workers, "workers", 64, "calls under way at a time")
	flags.IntVar(&o.load.connections, "connections", 4, "connections that they share")
	flags.Uint64Var(&o.load.keys, "keys", 100_000, "different API keys")
	flags.StringVar(&o.server, "server", "", "envoy-rls `binary`; built from this repository if none is given")
	flags.Float64Var(&o.maxRatio, "max-ratio", 0, "fail if the first row's ratio to the floor is above this; 0: never")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 1 || o.duration <= 0 || o.load.workers < 1 || o.load.connections < 1 || o.load.keys < 1 {
		return o, errors.New("rounds, time, workers, connections and keys must be above zero")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	servers, stop, err := start(ctx, o.server, stderr)
	if err != nil {
		return err
	}
	defer stop()

	var rows []row
	for _, s := range scenarios() {
		if err := o.load.verify(ctx, servers.ours, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(stderr, "%s: %d rounds of %v for each server\n", s.name, o.rounds, o.duration)
		r, err := measure(ctx, servers, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, r)
	}
	if err := printTable(stdout, rows); err != nil {
		return err
	}
	if ratio := rows[0].ratio(); o.maxRatio > 0 && ratio > o.maxRatio {
		return fmt.Errorf("%s: %.2f of the floor's CPU per call, above %.2f", rows[0].scenario.name, ratio, o.maxRatio)
	}
	return nil
}

// measure calls the servers in turn, so that whatever else the machine does befalls both.
func measure(ctx context.Context, servers pair, s scenario, o options) (row, error) {
	r := row{scenario: s}
	for range o.rounds {
		for _, side := range []struct {
			server  *server
			samples *[]sample
		}{{servers.floor, &r.floor}, {servers.ours, &r.ours}} {
			if _, err := o.load.run(ctx, side.server, s, o.warmUp); err != nil {
				return r, err
			}
			got, err := o.load.run(ctx, side.server, s, o.duration)
			if err != nil {
				return r, err
			}
			*side.samples = append(*side.samples, got)
		}
	}
	return r, nil
}
