package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/accuracy/observe"
	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// exactRun is what accuracy run is asked for.
type exactRun struct {
	judge    judge
	addrs    []string
	tls      clientTLS
	scenario string
	policies string
	rate     string
	workers  int
	duration time.Duration
	fresh    bool
	record   string
}

func newAccuracyRun() *cobra.Command {
	var r exactRun
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Call a service, record what it says, and judge it",
		Long: `Calls running instances of a service with the calls of a benchmark scenario (envoy-rls bench --list), records what they say, and
judges it. The instances must have the policies that --policies or else the scenario has: they say which buckets a call is about. The buckets are used up
by it: call for keys that nobody else has.

Of a descriptor that several policies use, only the overall verdict is judged.`,
		Example: `  envoy-rls accuracy run --addr 127.0.0.1:8081 --scenario mine.yaml --policies config/policies.yaml --rate 2000/s --duration 10m
  envoy-rls accuracy run --addr one:8081 --addr two:8081 --scenario accuracy --fresh --record record.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&r.addrs, "addr", nil, "host:port of an instance; may be repeated")
	r.tls.flags(f)
	f.StringVar(&r.scenario, "scenario", "accuracy", "what is called: the name of a scenario, or the path of a YAML file")
	f.StringVar(&r.policies, "policies", "", "policy file, or directory, that the instances have; empty: the scenario's")
	f.StringVar(&r.rate, "rate", "closed", "calls a second, such as 2000/s; closed: as many as the workers get answers to")
	f.IntVar(&r.workers, "workers", 0, "instead of the scenario's: calls under way at a time")
	f.DurationVar(&r.duration, "duration", 10*time.Second, "how long to call; a record takes 100 bytes of memory for each call and bucket")
	f.BoolVar(&r.fresh, "fresh", false, "nobody has used the buckets before: denials are judged from the first one on")
	f.StringVar(&r.record, "record", "", "file to write the record to")
	r.judge.flags(f)
	complete(cmd, "scenario", bench.Names())
	return cmd
}

func (r *exactRun) run(cmd *cobra.Command) error {
	load, scenario, set, err := r.open()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := r.dial(ctx, scenario, set, load.Workers)
	if err != nil {
		return failed(err)
	}
	defer c.close()
	name := "accuracy-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	_, err = load.Run(ctx, c, scenario.Make(name, uint64(time.Now().UnixNano())))
	if err := errors.Join(c.faults.err(), err); err != nil {
		return failed(err)
	}
	record := c.recorder.Record()
	if r.record != "" {
		if err := writeRecord(r.record, record); err != nil {
			return faulty(err)
		}
	}
	if len(record.Entries) == 0 {
		return faulty(errors.New("no policy applies to any of the calls"))
	}
	return r.judge.run(cmd, record)
}

// open reads what the flags name, and checks them.
func (r *exactRun) open() (bench.Load, *bench.Scenario, *policy.Set, error) {
	none := bench.Load{}
	if len(r.addrs) == 0 {
		return none, nil, nil, misused("say what to call: --addr HOST:PORT")
	}
	if err := r.judge.check(); err != nil {
		return none, nil, nil, err
	}
	rate, err := bench.ParseRate(r.rate)
	if err != nil || rate.Share > 0 {
		return none, nil, nil, misused("--rate %s: want calls a second, such as 2000/s, or closed", r.rate)
	}
	if r.duration <= 0 || r.workers < 0 {
		return none, nil, nil, misused("--duration and --workers must be above zero")
	}
	s, err := bench.Open(r.scenario)
	if err != nil {
		return none, nil, nil, faulty(err)
	}
	set, err := r.policySet(s)
	if err != nil {
		return none, nil, nil, err
	}
	if r.workers == 0 {
		r.workers = s.Load.Workers
	}
	return bench.Load{Workers: r.workers, Rate: rate.PerSecond, Open: rate.PerSecond > 0, Duration: r.duration}, s, set, nil
}

func (r *exactRun) policySet(s *bench.Scenario) (*policy.Set, error) {
	if r.policies != "" {
		set, err := policy.Load(r.policies)
		if err != nil {
			return nil, faulty(err)
		}
		return set, nil
	}
	if s.Policies == "" {
		return nil, misused("scenario %s has no policies: give those of the service with --policies", s.Name)
	}
	file, err := policy.Parse(s.Name, []byte(s.Policies))
	if err != nil {
		return nil, faulty(err)
	}
	set, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		return nil, faulty(err)
	}
	return set, nil
}

// recording is a caller that notes what the instances say.
type recording struct {
	clients   []*bench.Client
	observers []*observe.Observer // one for each worker
	recorder  *accuracy.Recorder
	faults    firstError
}

// firstError keeps the first error that one of many callers meets.
type firstError struct{ at atomic.Pointer[error] }

func (f *firstError) note(err error) {
	if err != nil {
		f.at.CompareAndSwap(nil, &err)
	}
}

func (f *firstError) err() error {
	if at := f.at.Load(); at != nil {
		return *at
	}
	return nil
}

func (r *exactRun) dial(ctx context.Context, s *bench.Scenario, set *policy.Set, workers int) (*recording, error) {
	trust, err := r.tls.config()
	if err != nil {
		return nil, err
	}
	c := &recording{recorder: accuracy.NewRecorder(nil)}
	for _, addr := range r.addrs {
		client, err := bench.Dial(ctx, bench.Target{Addr: addr, TLS: trust, Connections: s.Load.Connections})
		if err != nil {
			c.close()
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	for range workers {
		c.observers = append(c.observers, observe.New(c.recorder, set, r.fresh))
	}
	return c, nil
}

// Call implements [bench.Caller].
func (c *recording) Call(ctx context.Context, worker int, request []byte) (bench.Verdict, error) {
	o := c.observers[worker]
	start := o.Now()
	reply, err := c.clients[worker%len(c.clients)].Ask(ctx, worker/len(c.clients), request)
	c.faults.note(o.Note(start, request, reply, err))
	if err != nil {
		return 0, err
	}
	return bench.VerdictOf(reply)
}

func (c *recording) close() {
	for _, client := range c.clients {
		_ = client.Close() // fails only if it is closed
	}
}
