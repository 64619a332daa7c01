package lab

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

// Plan is a scenario with the servers it is made on.
type Plan struct {
	Scenario *bench.Scenario
	Floor    *Side // nil: none
	Service  *Side
	Peak     float64 // what 100 % is, in calls a second
	Rounds   int     // of each measurement; the servers take turns
	// Timeout is how long a call may take; 0: 10 s.
	Timeout time.Duration
	// Progress, if set, is told what is being done, and how much of that is.
	Progress func(what string, done float64)
}

// Run makes all measurements of the plan. A row whose checks fail says so; the error is for what could not be measured at all.
func (p Plan) Run(ctx context.Context) ([]report.Row, error) {
	r := &runner{Plan: p, clients: map[*Side]*bench.Client{}}
	defer r.close()
	for _, side := range p.sides() {
		c, err := bench.Dial(ctx, bench.Target{Addr: side.Addr, TLS: side.TLS, Connections: p.Scenario.Load.Connections, Timeout: p.Timeout})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.Name, err)
		}
		r.clients[side] = c
	}
	if p.Scenario.Fill {
		var err error
		if r.perKey, err = r.fill(ctx); err != nil {
			return nil, err
		}
	}
	var rows []report.Row
	for _, fault := range p.Scenario.Load.Faults {
		for _, rate := range p.Scenario.Load.Rates {
			more, err := r.measure(ctx, fault, rate)
			if err != nil {
				return rows, fmt.Errorf("%s, %s: %w", p.Scenario.Name, rate, err)
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

func (p Plan) sides() []*Side {
	if p.Floor == nil {
		return []*Side{p.Service}
	}
	return []*Side{p.Floor, p.Service}
}

// MeasurePeak measures how many calls a second a server answers when as many as the scenario has workers are under way all the time.
func (p Plan) MeasurePeak(ctx context.Context, side *Side) (float64, error) {
	s := *p.Scenario
	s.Load.Faults, s.Load.Rates, s.Fill, s.Limit = []bench.Fault{bench.Healthy}, []bench.Rate{{}}, false, 0
	p.Scenario, p.Floor, p.Service, p.Rounds = &s, nil, side, 1
	rows, err := p.Run(ctx)
	if err != nil {
		return 0, err
	}
	return rows[0].PerSecond, nil
}

// runner is a plan under way.
type runner struct {
	Plan
	clients map[*Side]*bench.Client
	perKey  *float64
}

func (r *runner) close() {
	for _, c := range r.clients {
		_ = c.Close() // all calls have ended
	}
}

// measure makes the measurements of one fault and rate.
func (r *runner) measure(ctx context.Context, fault bench.Fault, rate bench.Rate) ([]report.Row, error) {
	sides := r.sides()
	if fault != bench.Healthy {
		sides = []*Side{r.Service} // the floor has no store that could fail
	}
	samples := map[*Side][]*Sample{}
	for range max(1, r.Rounds) {
		for _, side := range sides {
			sample, err := r.once(ctx, side, fault, rate)
			if err != nil {
				return nil, err
			}
			samples[side] = append(samples[side], sample)
		}
	}
	var rows []report.Row
	for _, side := range sides {
		rows = append(rows, r.row(side, fault, rate, samples[side], samples[r.Floor]))
	}
	if last := &rows[len(rows)-1]; r.Service.Redis != nil && fault == bench.Healthy && last.ScriptsPerCall != nil {
		cpu, err := r.Service.Redis.emptyScript(ctx, samples[r.Service])
		if err != nil {
			return nil, err
		}
		if cpu > 0 {
			last.EmptyCPU = known(cpu)
		}
	}
	return rows, nil
}

// once warms a server up and measures it.
func (r *runner) once(ctx context.Context, side *Side, fault bench.Fault, rate bench.Rate) (*Sample, error) {
	s := r.Scenario
	calls := s.Make(newRun(), rand.Uint64())
	perSecond := rate.Of(r.Peak)
	what := fmt.Sprintf("%s, %s, %s", s.Name, rate, side.Name)
	load := bench.Load{Workers: s.Load.Workers, Rate: perSecond, Open: perSecond > 0}
	if s.Load.WarmUp > 0 {
		load.Duration, load.Progress = s.Load.WarmUp, r.telling(what+": warming up")
		if _, err := load.Run(ctx, r.clients[side], calls); err != nil {
			return nil, err
		}
		if s.Limit > 0 {
			calls = s.Make(newRun(), rand.Uint64()) // what is to be counted begins with a full bucket
		}
	}
	if load.Open {
		load.Workers = openWorkers(s.Load.Workers, perSecond)
	}
	load.Duration, load.Progress = s.Load.Duration, r.telling(what)
	if fault == bench.Healthy {
		return side.Measure(ctx, r.clients[side], load, calls, nil)
	}
	if side.Redis == nil {
		return nil, fmt.Errorf("fault %s needs a cluster of our own", fault)
	}
	sample, err := side.Measure(ctx, r.clients[side], load, calls, side.Redis.KillShard)
	if err != nil {
		return nil, err
	}
	r.telling("mending the cluster")(0)
	return sample, side.Redis.Mend(ctx)
}

// openWorkers are enough for a server that takes a fifth of a second for each call.
func openWorkers(least int, perSecond float64) int {
	const most = 5000
	return max(least, min(int(perSecond/5), most))
}

func newRun() string { return fmt.Sprintf("r%08x", rand.Uint32()) }

func (r *runner) telling(what string) func(float64) {
	return func(done float64) {
		if r.Progress != nil {
			r.Progress(what, done)
		}
	}
}

// fill makes each key's bucket, and tells the bytes of one, if that can be known.
func (r *runner) fill(ctx context.Context) (*float64, error) {
	bytes, keys, err := r.memory(ctx)
	if err != nil {
		return nil, err
	}
	s := *r.Scenario
	s.Keys.Draw = bench.Sequence
	load := bench.Load{Workers: s.Load.Workers, Duration: time.Hour, Calls: int64(s.Keys.Count)}
	result, err := load.Run(ctx, bench.Observed(r.clients[r.Service], int64(s.Keys.Count), r.telling(s.Name+": filling")), s.Make(newRun(), 0))
	if err != nil {
		return nil, err
	}
	if result.Failed() > 0 {
		return nil, fmt.Errorf("filling: %v", result.Errors)
	}
	bytesAfter, keysAfter, err := r.memory(ctx)
	if err != nil || keysAfter <= keys {
		return nil, err
	}
	return known((bytesAfter - bytes) / (keysAfter - keys)), nil
}

// memory is what buckets take, and how many there are; 0 where that is not known.
func (r *runner) memory(ctx context.Context) (bytes, keys float64, err error) {
	side := r.Service
	switch {
	case side.Redis != nil:
		nodes, err := side.Redis.use(ctx, true)
		for _, n := range nodes {
			if n.Primary {
				bytes, keys = bytes+float64(n.Memory), keys+float64(n.Keys)
			}
		}
		return bytes, keys, err
	case side.Admin != "" && side.Debug != "":
		if keys, err = side.Buckets(ctx); err != nil {
			return 0, 0, err
		}
		bytes, err = side.Heap(ctx)
	}
	return bytes, keys, err
}

// Median is the middle of what f says of the samples; of an even number the mean of both middle ones, of none 0.
func Median[T any](samples []T, f func(T) float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	values := make([]float64, 0, len(samples))
	for _, s := range samples {
		values = append(values, f(s))
	}
	slices.SortFunc(values, cmp.Compare[float64])
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func known(v float64) *float64 { return &v }
