// Command rlsbench measures what envoy-rls is held to (bars.yaml). It runs envoy-rls and a server that decides nothing (cmd/floor), sends both the
// same calls in turn, and compares the CPU that each spends per call; with a Redis also what that spends, beside variants of envoy-rls: its script does
// nothing, each call goes to Redis by itself, or none is merged with its like. It also compares latencies, memory, and how cost grows.
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
	"strings"
	"syscall"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
	"github.com/envoy-rls/envoy-rls/internal/gcpace"
)

func main() {
	gcpace.Start()
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
	rounds      int
	duration    time.Duration
	warmUp      time.Duration
	workers     int
	connections int
	keys        uint64
	manyKeys    uint64
	rate        float64
	sameRate    bool
	server      string
	rows        string
	list        bool
	check       bool
	json        string
	markdown    string
	svg         string
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("rlsbench", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.rows, "rows", "", "rows whose name has one of these `texts`, separated by semicolons; all if empty")
	flags.BoolVar(&o.list, "list", false, "name the rows and their bars")
	flags.BoolVar(&o.check, "check", false, "fail if a row misses a bar")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each server is measured; the medians are told")
	flags.DurationVar(&o.duration, "time", 2*time.Second, "how long a server is measured each time")
	flags.DurationVar(&o.warmUp, "warm-up", 500*time.Millisecond, "how long it is called before that")
	flags.IntVar(&o.workers, "workers", 64, "calls under way at a time")
	flags.IntVar(&o.connections, "connections", 4, "connections that they share")
	flags.Uint64Var(&o.keys, "keys", 100_000, "different keys")
	flags.Uint64Var(&o.manyKeys, "many-keys", 2_000_000, "different keys where memory and growth are measured")
	flags.Float64Var(&o.rate, "rate", 0, "calls a second at most; 0: as many as the workers can make")
	flags.BoolVar(&o.sameRate, "same-rate", true, "call variants no faster than envoy-rls just was; false: as fast as they can")
	flags.StringVar(&o.server, "server", "", "envoy-rls `binary`; built from this repository if none is given")
	flags.StringVar(&o.json, "json", "", "`file` to write all figures to")
	flags.StringVar(&o.markdown, "markdown", "", "`file` to write the tables to, beside printing them")
	flags.StringVar(&o.svg, "svg", "", "`folder` to write plots to")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rate < 0 {
		return o, errors.New("rate must not be below zero")
	}
	if o.rounds < 1 || o.duration <= 0 || o.warmUp <= 0 || o.workers < 1 || o.connections < 1 || o.keys < 1 || o.manyKeys < 1 {
		return o, errors.New("rounds, time, warm-up, workers, connections, keys and many-keys must be above zero")
	}
	return o, nil
}

// chosen are the rows that the options name.
func (o options) chosen() ([]row, error) {
	var out []row
	for _, r := range rows() {
		for text := range strings.SplitSeq(o.rows, ";") {
			if strings.Contains(r.name, strings.TrimSpace(text)) {
				out = append(out, r)
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no row's name has %q; -list names them", o.rows)
	}
	return out, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	l, err := newLineup(o, stderr)
	if err != nil {
		return err
	}
	defer l.close()
	if o.list {
		return l.printList(stdout, chosen)
	}
	out := &outcome{Machine: lab.Machine("of this tree"), Command: strings.Join(append([]string{"rlsbench"}, args...), " "), Started: time.Now().UTC()}
	for i, r := range chosen {
		fmt.Fprintf(stderr, "[%d/%d] %s\n", i+1, len(chosen), r.name)
		got, err := r.measure(ctx, l, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		l.complete(got)
		out.add(got)
	}
	for _, r := range l.stores {
		if out.Machine.Redis, err = r.Version(ctx); err != nil {
			return err
		}
	}
	if err := out.write(o, stdout); err != nil {
		return err
	}
	return out.verdict(o.check)
}

func (l *lineup) printList(w io.Writer, chosen []row) error {
	for _, r := range chosen {
		for what, limit := range l.limits[r.name] {
			if _, err := fmt.Fprintf(w, "%s: %s: at most %g\n", r.name, explained(what), limit.most); err != nil {
				return err
			}
		}
	}
	return nil
}
