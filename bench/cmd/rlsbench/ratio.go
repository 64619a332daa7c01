package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
)

// side is a server with what was measured of it.
type side struct {
	*lab.Side
	scenario *bench.Scenario
	client   *bench.Client
	samples  []*lab.Sample
}

// median is the middle of what f says of the samples.
func (s *side) median(f func(*lab.Sample) float64) float64 { return lab.Median(s.samples, f) }

// by is the middle of the ratios of what f says of this side and of another in the same round: what the machine does meanwhile befalls both. It may
// become slower by a third within a row.
func (s *side) by(other *side, f func(*lab.Sample) float64) float64 {
	rounds := make([]int, min(len(s.samples), len(other.samples)))
	for i := range rounds {
		rounds[i] = i
	}
	return lab.Median(rounds, func(i int) float64 { return f(s.samples[i]) / f(other.samples[i]) })
}

// result is what a row came to.
type result struct {
	row     row
	sides   []*side
	bars    []bar
	invalid []string // why it must not be used
}

// add notes a figure that the row has a limit for. Nothing takes no CPU or memory, or less; only a latency may be below the floor's.
func (l *lineup) add(r *result, what string, got float64) {
	limit, has := l.limits[r.row.name][what]
	switch {
	case !has: // nor may there be any: of scripts, say, without a Redis
	case math.IsNaN(got) || math.IsInf(got, 0) || got <= 0 && what != ofP99:
		r.invalid = append(r.invalid, explained(what)+": nothing came of the measurement")
	default:
		r.bars = append(r.bars, newBar(r.row.name, what, got, limit))
	}
}

// complete notes the limits of a row for which there is no figure.
func (l *lineup) complete(r *result) {
	for what := range l.limits[r.row.name] {
		has := slices.ContainsFunc(r.bars, func(b bar) bool { return b.What == what })
		if why := explained(what) + ": not measured"; !has && len(r.invalid) == 0 {
			r.invalid = append(r.invalid, why)
		}
	}
}

// enter starts a server for a row and connects to it.
func (l *lineup) enter(ctx context.Context, r *result, name string, s *bench.Scenario) (*side, error) {
	server := l.floor
	if name != floorProgram {
		var err error
		if server, err = l.start(ctx, name, r.row.store, s); err != nil {
			return nil, err
		}
	}
	c, err := l.dial(ctx, server)
	one := &side{Side: server, scenario: s, client: c}
	r.sides = append(r.sides, one)
	return one, err
}

// begin starts the floor, envoy-rls and the row's variants, in this order. What has entered leaves by leave, after an error as well.
func (l *lineup) begin(ctx context.Context, row row) (*result, error) {
	r := &result{row: row}
	s, err := row.open(l.keys)
	if err != nil {
		return r, err
	}
	if err := l.startFloor(ctx); err != nil {
		return r, err
	}
	for _, name := range append([]string{floorProgram, envoyRLS}, row.against...) {
		if _, err := l.enter(ctx, r, name, s); err != nil {
			return r, err
		}
	}
	return r, nil
}

// leave ends what entered. What was measured stays.
func (l *lineup) leave(r *result) {
	for _, s := range r.sides {
		if s.client != nil {
			_ = s.client.Close() // all calls have ended
		}
		if s.Side != l.floor {
			s.Stop()
		}
	}
}

// round calls a server for a while, after a warm-up, and checks it. rate is how many calls a second are made at most; 0: no bound.
func (l *lineup) round(ctx context.Context, r *result, s *side, load bench.Load) error {
	load.Workers = max(load.Workers, l.workers)
	calls := s.scenario.Make(fmt.Sprintf("r%08x", rand.Uint32()), rand.Uint64())
	warm := load
	warm.Duration = l.warmUp
	if _, err := warm.Run(ctx, s.client, calls); err != nil {
		return err
	}
	load.Duration = l.duration
	sample, err := s.Measure(ctx, s.client, load, calls, nil)
	if err != nil {
		return err
	}
	s.samples = append(s.samples, sample)
	for _, why := range sample.Check(s.scenario) {
		if why = s.Name + ": " + why; !slices.Contains(r.invalid, why) {
			r.invalid = append(r.invalid, why)
		}
	}
	return nil
}

// measureRatio calls the floor, envoy-rls and its variants in turn, so that whatever else the machine does befalls all. A variant is called no faster
// than envoy-rls just was (unless the options say otherwise), so that Redis has the same to do.
func measureRatio(ctx context.Context, l *lineup, row row) (*result, error) {
	r, err := l.begin(ctx, row)
	defer l.leave(r)
	if err != nil {
		return r, err
	}
	for range l.rounds {
		for i, one := range r.sides {
			load := bench.Load{Rate: l.rate}
			if ours := r.sides[1].samples; i > 1 && l.sameRate {
				load.Rate = ours[len(ours)-1].PerSecond()
			}
			if err := l.round(ctx, r, one, load); err != nil {
				return r, err
			}
		}
	}
	ours := r.sides[1]
	l.add(r, ofServer, r.ofFloor(ours))
	l.add(r, ofScripts, ours.median((*lab.Sample).ScriptsPerCall))
	for _, variant := range []struct{ name, what string }{{emptyScript, ofEmpty}, {oneByOne, ofOneByOne}, {unmerged, ofUnmerged}} {
		if slices.Contains(row.against, variant.name) {
			l.add(r, variant.what, r.ofVariant(variant.name))
		}
	}
	return r, nil
}

// ofFloor is a server's CPU per call by the floor's.
func (r *result) ofFloor(s *side) float64 {
	return s.by(r.sides[0], (*lab.Sample).CPUPerCall)
}

// ofVariant is the Redis CPU per call of envoy-rls by that of a variant.
func (r *result) ofVariant(name string) float64 {
	for _, s := range r.sides {
		if s.Name == name {
			return r.sides[1].by(s, (*lab.Sample).RedisCPUPerCall)
		}
	}
	return math.NaN()
}

// measureLatency finds how many calls a second the floor bears at most, and makes half as many of both servers in turn.
func measureLatency(ctx context.Context, l *lineup, row row) (*result, error) {
	r, err := l.begin(ctx, row)
	defer l.leave(r)
	if err != nil {
		return r, err
	}
	floor, ours := r.sides[0], r.sides[1]
	if err := l.round(ctx, r, floor, bench.Load{}); err != nil {
		return r, err
	}
	rate := floor.samples[0].PerSecond() / 2
	floor.samples = nil
	for range l.rounds {
		for _, one := range r.sides {
			if err := l.round(ctx, r, one, bench.Load{Open: true, Rate: rate, Workers: openWorkers}); err != nil {
				return r, err
			}
		}
	}
	l.add(r, ofP99, ours.median(p99)-floor.median(p99))
	return r, nil
}

// openWorkers are enough to keep the rate while a server stands still for a tenth of a second.
const openWorkers = 2000

// p99 is in milliseconds.
func p99(s *lab.Sample) float64 { return float64(s.Latency.At(0.99)) / float64(time.Millisecond) }
