package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
	"github.com/envoy-rls/envoy-rls/internal/gcpace"
)

// benchmark is what bench is asked for.
type benchmark struct {
	scenarios []string
	list      bool
	show      string

	addr      string
	lab       choice
	admin     string
	pid       int
	redis     []string
	tls       clientTLS
	noFloor   bool
	rates     []string
	workers   int
	conns     int
	duration  time.Duration
	warmUp    time.Duration
	keys      uint64
	rounds    int
	timeout   time.Duration
	peak      string
	json      string
	markdown  string
	svg       string
	serveArgs []string
}

func newBench() *cobra.Command {
	b := benchmark{lab: choice{words: []string{"memory", "redis", "cluster"}}}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a rate limit service, and measure what its decisions cost",
		Long: `Loads a rate limit service (RLS v3), and measures how long its decisions take, what CPU they cost it and its Redis, and how many it
admits of a limit. Scenarios say what is called; --list names those that come with the program, --show prints one.

With --lab it starts on this machine what it measures: this program's serve with the scenario's policies and, as the lab needs them, a Redis or
a Redis Cluster of 4 primaries and 4 replicas, by the redis-server on the PATH; and beside it a server that decides nothing (the floor), to compare
with. With --addr it loads a service that runs, whoever made it; that one needs policies that go with the scenario, which --show has.

Rates in percent are of --peak: a number of calls a second, or "measured", which is what the service answers to the scenario's workers without a pause. The
default, 1500, is 75,000 calls a second on 50 instances. At a rate each call counts from when it was due, whether or not earlier ones have been answered.

CPU is that of processes on this machine, and needs Linux. A measurement that failed a call, called for other keys than the scenario has, or was
decided by others than its policies and the store, is not valid: it is marked, and the exit code is 1.`,
		Example: `  envoy-rls bench --list
  envoy-rls bench --lab memory --scenario one-policy
  envoy-rls bench --lab cluster --scenario one-slot,two-slots --json bench.json --markdown bench.md --svg plots
  envoy-rls bench --addr 127.0.0.1:8081 --admin 127.0.0.1:8080 --scenario mine.yaml --rate 5000/s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.flags(cmd)
	complete(cmd, "lab", b.lab.words)
	complete(cmd, "scenario", bench.Names())
	cmd.AddCommand(newFloor())
	return cmd
}

func (b *benchmark) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&b.scenarios, "scenario", []string{"one-policy"}, "scenarios to run: names, or paths of YAML files; may be repeated")
	f.BoolVar(&b.list, "list", false, "name the scenarios that come with the program")
	f.StringVar(&b.show, "show", "", "print the file of a scenario that comes with the program")
	f.Var(&b.lab, "lab", "start the service, with its buckets there")
	f.StringSliceVar(&b.serveArgs, "serve-arg", nil, "with --lab: a further argument for serve; may be repeated")
	f.BoolVar(&b.noFloor, "no-floor", false, "with --lab: do without the server that decides nothing")
	f.StringVar(&b.addr, "addr", "", "host:port of a service that runs")
	f.StringVar(&b.admin, "admin", "", "with --addr: host:port of its HTTP side, if it is an envoy-rls, to check who decided")
	f.IntVar(&b.pid, "pid", 0, "with --addr: its process, for its CPU; 0: the one on this machine that listens there")
	f.StringSliceVar(&b.redis, "redis", nil, "with --addr: host:port or redis:// URL of each Redis that it uses, for scripts and CPU")
	b.tls.flags(f)
	f.StringSliceVar(&b.rates, "rate", nil, "instead of the scenario's: 50%, 20000/s or closed; may be repeated")
	f.IntVar(&b.workers, "workers", 0, "instead of the scenario's: calls under way at a time")
	f.IntVar(&b.conns, "connections", 0, "instead of the scenario's: connections that they share")
	f.DurationVar(&b.duration, "duration", 0, "instead of the scenario's: how long to measure each")
	f.DurationVar(&b.warmUp, "warm-up", 0, "instead of the scenario's: how long to call before that")
	f.Uint64Var(&b.keys, "keys", 0, "instead of the scenario's: how many keys there are")
	f.IntVar(&b.rounds, "rounds", 1, "how often to measure each; the table has the medians")
	f.DurationVar(&b.timeout, "timeout", 10*time.Second, "how long a call may take")
	f.StringVar(&b.peak, "peak", strconv.Itoa(bench.PlannedPeak), "calls a second that 100% means, or measured")
	f.StringVar(&b.json, "json", "", "file to write all figures to, as JSON")
	f.StringVar(&b.markdown, "markdown", "", "file to write the table to, beside printing it")
	f.StringVar(&b.svg, "svg", "", "folder to write plots to")
}

func (b *benchmark) run(cmd *cobra.Command) error {
	switch {
	case b.list:
		return b.printList(cmd)
	case b.show != "":
		text, err := bench.Text(b.show)
		if err != nil {
			return misused("--show: %w", err)
		}
		fmt.Fprint(cmd.OutOrStdout(), text)
		return nil
	}
	if err := b.check(cmd.Flags()); err != nil {
		return err
	}
	scenarios, err := b.open(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer gcpace.Start()()
	out, err := b.measure(ctx, cmd, scenarios)
	if err != nil {
		return failed(err)
	}
	if err := b.write(cmd, out); err != nil {
		return faulty(err)
	}
	if n := out.Invalid(); n > 0 {
		return faulty(fmt.Errorf("%d of %d measurements are not valid", n, len(out.Rows)))
	}
	return nil
}

func (b *benchmark) printList(cmd *cobra.Command) error {
	for _, name := range bench.Names() {
		s, err := bench.Open(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%-16s %s\n", name, s.About)
	}
	return nil
}

// open reads the scenarios, with what the flags change in them. given tells whether a flag was.
func (b *benchmark) open(given func(flag string) bool) ([]*bench.Scenario, error) {
	var rates []bench.Rate
	for _, text := range b.rates {
		rate, err := bench.ParseRate(text)
		if err != nil {
			return nil, misused("--rate: %w", err)
		}
		rates = append(rates, rate)
	}
	if _, err := b.fixedPeak(); err != nil {
		return nil, err
	}
	var all []*bench.Scenario
	for _, name := range b.scenarios {
		s, err := bench.Open(name)
		if err != nil {
			return nil, faulty(err)
		}
		if b.lab.value != "" && s.Policies == "" {
			return nil, misused("scenario %s has no policies to start a service with", name)
		}
		if slices.Contains(s.Load.Faults, bench.ShardKilled) && b.lab.value != "cluster" {
			return nil, misused("scenario %s kills a shard, which takes --lab cluster", name)
		}
		b.override(s, rates, given)
		all = append(all, s)
	}
	return all, nil
}

func (b *benchmark) override(s *bench.Scenario, rates []bench.Rate, given func(flag string) bool) {
	if len(rates) > 0 {
		s.Load.Rates = rates
	}
	if given("workers") {
		s.Load.Workers = b.workers
	}
	if given("connections") {
		s.Load.Connections = b.conns
	}
	if given("duration") {
		s.Load.Duration = b.duration
	}
	if given("warm-up") {
		s.Load.WarmUp = b.warmUp
	}
	if given("keys") {
		s.Keys.Count = b.keys
	}
}

// fixedPeak is what 100 % means; 0 if it is to be measured.
func (b *benchmark) fixedPeak() (float64, error) {
	if b.peak == "measured" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(b.peak, 64)
	if err != nil || !(n > 0 && n < 1e9) {
		return 0, misused("--peak %s: want calls a second, or measured", b.peak)
	}
	return n, nil
}

func (b *benchmark) measure(ctx context.Context, cmd *cobra.Command, scenarios []*bench.Scenario) (*report.Report, error) {
	peak, err := b.fixedPeak()
	if err != nil {
		return nil, err
	}
	is := "as --peak has it"
	switch peak {
	case bench.PlannedPeak:
		is = "75,000 on 50 instances"
	case 0:
		is = "measured"
	}
	bar := newBar(cmd.ErrOrStderr())
	defer bar.clear()
	place, err := b.place(ctx)
	if err != nil {
		return nil, err
	}
	defer place.close()
	version, _ := build()
	out := &report.Report{Command: commandLine(os.Args), Started: time.Now().UTC(), Peak: peak, PeakIs: is, Machine: lab.Machine(version)}
	if place.redis != nil {
		if out.Machine.Redis, err = place.redis.Version(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range scenarios {
		rows, err := b.one(ctx, place, s, peak, bar)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, rows...)
	}
	return out, nil
}

// one measures a scenario.
func (b *benchmark) one(ctx context.Context, p *place, s *bench.Scenario, peak float64, bar *bar) ([]report.Row, error) {
	service, stop, err := p.service(ctx, s)
	if err != nil {
		return nil, err
	}
	defer stop()
	plan := lab.Plan{Scenario: s, Floor: p.floor, Service: service, Peak: peak, Rounds: b.rounds, Timeout: b.timeout, Progress: bar.show}
	if peak == 0 {
		if plan.Peak, err = plan.MeasurePeak(ctx, service); err != nil {
			return nil, err
		}
	}
	return plan.Run(ctx)
}
