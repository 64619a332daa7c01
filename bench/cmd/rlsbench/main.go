// Command rlsbench measures what a decision costs: it runs envoy-rls and a server that decides nothing (cmd/floor), sends both
// the same calls in turn, and prints the CPU time each spent per call. With -store redis it also starts a Redis, measures what that
// spends, and does the same with variants of envoy-rls: its script does nothing, each call goes to Redis by itself, or none is merged with its like.
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
	"slices"
	"strings"
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
	store    string
	server   string
	only     string
	maxRatio float64
	check    bool
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
	flags.StringVar(&o.only, "only", "", "rows whose name has this `text`; all if empty")
	flags.Float64Var(&o.load.rate, "rate", 0, "calls a second in all; 0: as many as the workers can make")
	flags.StringVar(&o.store, "store", storeMemory, "where envoy-rls keeps its buckets: memory, or redis (needs redis-server)")
	flags.StringVar(&o.server, "server", "", "envoy-rls `binary`; built from this repository if none is given")
	flags.Float64Var(&o.maxRatio, "max-ratio", 0, "fail if the first row's ratio to the floor is above this; 0: never")
	flags.BoolVar(&o.check, "check", false, "fail if a row misses a bar")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.store != storeMemory && o.store != storeRedis {
		return o, fmt.Errorf("-store %q: want memory or redis", o.store)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.load.rate < 0 {
		return o, errors.New("rate must not be below zero")
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
	servers, stop, err := start(ctx, o.store, o.server, stderr)
	if err != nil {
		return err
	}
	defer stop()

	var rows []row
	for _, s := range scenarios(o.store) {
		if !strings.Contains(s.name, o.only) {
			continue
		}
		fmt.Fprintf(stderr, "%s: %d rounds of %v for each server\n", s.name, o.rounds, o.duration)
		r, err := measure(ctx, servers, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return fmt.Errorf("no row's name has %q", o.only)
	}
	if o.store == storeRedis {
		err = printRedisTable(stdout, rows)
	} else {
		err = printTable(stdout, rows)
	}
	if err != nil {
		return err
	}
	if missed := printBars(stdout, rows); o.check && missed > 0 {
		return fmt.Errorf("%d bars missed", missed)
	}
	if ratio := rows[0].ratio(); o.maxRatio > 0 && ratio > o.maxRatio {
		return fmt.Errorf("%s: %.2f of the floor's CPU per call, above %.2f", rows[0].scenario.name, ratio, o.maxRatio)
	}
	return nil
}

// measure calls the servers in turn, so that whatever else the machine does befalls all.
func measure(ctx context.Context, servers []*server, s scenario, o options) (row, error) {
	servers = slices.DeleteFunc(slices.Clone(servers), func(srv *server) bool { return srv.variant && !slices.Contains(s.against, srv.name) })
	r := row{scenario: s, sides: make([]side, len(servers))}
	l := o.load
	if s.rate > 0 {
		l.rate = s.rate
	}
	for i, srv := range servers {
		r.sides[i].server = srv.name
		if srv.name == "floor" {
			continue
		}
		if err := l.verify(ctx, srv, s); err != nil {
			return r, err
		}
	}
	for range o.rounds {
		for i, srv := range servers {
			if _, err := l.run(ctx, srv, s, o.warmUp); err != nil {
				return r, err
			}
			got, err := l.run(ctx, srv, s, o.duration)
			if err != nil {
				return r, err
			}
			r.sides[i].samples = append(r.sides[i].samples, got)
		}
	}
	return r, nil
}
