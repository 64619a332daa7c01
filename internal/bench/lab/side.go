package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// Side is a server that is measured, and what is known of it.
type Side struct {
	Name  string
	Addr  string      // host:port, where calls go
	TLS   *tls.Config // nil: plain text
	Admin string      // host:port of its HTTP side; empty: it is none of ours, or not to be asked
	Debug string      // host:port of its profiles; empty: none
	Pid   int         // 0: not known
	Redis *Redis      // where its buckets are; nil: in its memory, or not known

	process *childproc.Process // nil: not started by us
	log     string             // path
}

// Stop ends a server that was started here, at once.
func (s *Side) Stop() {
	if s.process != nil {
		s.process.Kill()
	}
}

// Sample is what one measurement saw of a server.
type Sample struct {
	*bench.Result
	CPU       time.Duration    // of the server; 0: not known
	Nodes     []NodeUse        // of its Redis
	Decisions map[string]int64 // buckets decided, by source; nil: not known
}

// CPUPerCall is in microseconds; 0 if it is not known.
func (s *Sample) CPUPerCall() float64 { return perCall(s.CPU, s.Result) }

// RedisCPU is the processor time of the nodes that ran scripts.
func (s *Sample) RedisCPU() (sum time.Duration) {
	for _, n := range s.Nodes {
		if n.Primary {
			sum += n.CPU
		}
	}
	return sum
}

// RedisCPUPerCall is in microseconds.
func (s *Sample) RedisCPUPerCall() float64 { return perCall(s.RedisCPU(), s.Result) }

func perCall(d time.Duration, r *bench.Result) float64 {
	return float64(d) / float64(time.Microsecond) / float64(max(1, r.Total()))
}

// Scripts is how many scripts were run.
func (s *Sample) Scripts() (n int64) {
	for i := range s.Nodes {
		n += s.Nodes[i].Scripts
	}
	return n
}

// Batch is how many runs of a script a node found at a time.
func (s *Sample) Batch() float64 {
	var reads int64
	for i := range s.Nodes {
		reads += s.Nodes[i].Reads
	}
	return float64(s.Scripts()) / float64(max(1, reads))
}

// ScriptsPerCall is how many scripts were run for a call.
func (s *Sample) ScriptsPerCall() float64 {
	return float64(s.Scripts()) / float64(max(1, s.Total()))
}

// StoreShare is the share of the decisions that came from those sources; false if it is not known.
func (s *Sample) StoreShare(sources ...string) (float64, bool) {
	if s.Decisions == nil {
		return 0, false
	}
	var all, by int64
	for _, n := range s.Decisions {
		all += n
	}
	for _, source := range sources {
		by += s.Decisions[source]
	}
	return float64(by) / float64(max(1, all)), all > 0
}

// Measure makes calls, and says what they took. during, if set, is called when the load begins, and awaited.
func (s *Side) Measure(ctx context.Context, c *bench.Client, l bench.Load, calls *bench.Calls, during func(context.Context) error) (*Sample, error) {
	before, err := s.use(ctx, true)
	if err != nil {
		return nil, err
	}
	happened := make(chan error, 1)
	if during != nil {
		go func() { happened <- during(ctx) }()
	} else {
		happened <- nil
	}
	result, err := l.Run(ctx, c, calls)
	if err := errors.Join(err, <-happened); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	after, err := s.use(ctx, false)
	if err != nil {
		return nil, err
	}
	out := &Sample{Result: result, CPU: after.cpu - before.cpu, Nodes: since(after.nodes, before.nodes)}
	if before.decisions != nil {
		out.Decisions = map[string]int64{}
		for source, n := range after.decisions {
			if d := n - before.decisions[source]; d != 0 {
				out.Decisions[source] = d
			}
		}
	}
	return out, nil
}

// use is what a server has used up to a moment.
type use struct {
	cpu       time.Duration
	nodes     map[string]NodeUse
	decisions map[string]int64
}

// use asks for the metrics outside of the time that is measured, since to answer takes CPU.
func (s *Side) use(ctx context.Context, begins bool) (u use, err error) {
	ask := func() {
		if s.Admin != "" && err == nil {
			u.decisions, err = decisions(ctx, s.Admin)
		}
	}
	if begins {
		ask()
	}
	if s.Pid != 0 && err == nil {
		u.cpu, err = CPU(s.Pid)
	}
	if s.Redis != nil && err == nil {
		u.nodes, err = s.Redis.use(ctx, begins)
	}
	if !begins {
		ask()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
	}
	return u, err
}

// Check says what speaks against a measurement of a healthy server. It is not what the scenario says if calls failed, keys were called for too
// often or too seldom, others than the scenario's sources decided, or others than its policies.
func (s *Sample) Check(scenario *bench.Scenario) []string {
	var wrong []string
	for code, n := range s.Errors {
		wrong = append(wrong, fmt.Sprintf("%d of %d calls failed: %s", n, s.Total(), code))
	}
	if s.Total() == 0 {
		wrong = append(wrong, "no call was made")
	}
	if s.Deviation > bench.MaxDeviation {
		wrong = append(wrong, fmt.Sprintf("the keys called for are %.1f standard deviations from those that should have been", s.Deviation))
	}
	if s.Decisions == nil {
		return wrong
	}
	if share, _ := s.StoreShare(scenario.DecidedBy...); len(s.Decisions) == 0 {
		wrong = append(wrong, "no policy decided: the service needs the policies of the scenario, and its domain")
	} else if share < 1 {
		wrong = append(wrong, fmt.Sprintf("not all was decided by %v: %v", scenario.DecidedBy, s.Decisions))
	}
	var want, got int64
	for i, c := range scenario.Calls {
		if c.Policies == 0 {
			return wrong // not known how many
		}
		want += int64(c.Policies) * int64(s.Made[i])
	}
	for _, n := range s.Decisions {
		got += n
	}
	if got != want {
		wrong = append(wrong, fmt.Sprintf("policies decided %d times, want %d", got, want))
	}
	return wrong
}
