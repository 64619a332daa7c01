package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// perFill is how many buckets a call makes that fills a store.
const perFill = 50

// filling is a scenario whose calls make a bucket for each of the keys of one-policy, many at a time.
func filling(s *bench.Scenario) (*bench.Scenario, error) {
	var descriptors []string
	for i := range perFill {
		descriptors = append(descriptors, fmt.Sprintf("{ plan: daily, api_key: 'k{key*%d+%d}' }", perFill, i))
	}
	calls := (s.Keys.Count + perFill - 1) / perFill
	text := fmt.Sprintf("keys: { count: %d, draw: sequence }\ncalls: [{ policies: %d, descriptors: [%s] }]\n", calls, perFill, strings.Join(descriptors, ", "))
	return bench.Parse("filling", policy.Text{Path: "filling", Data: []byte(text)})
}

// fill makes all buckets of a server with the policies of one-policy.
func (l *lineup) fill(ctx context.Context, one *side) error {
	s, err := filling(one.scenario)
	if err != nil {
		return err
	}
	load := bench.Load{Workers: 16, Duration: time.Hour, Calls: int64(s.Keys.Count)}
	sample, err := one.Measure(ctx, one.client, load, s.Make("fill", 0), nil)
	if err != nil {
		return err
	}
	if wrong := sample.Check(s); len(wrong) > 0 {
		return fmt.Errorf("filling: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// measureHeap fills a server's memory, and says what a bucket takes of it.
func measureHeap(ctx context.Context, l *lineup, row row) (*result, error) {
	r := &result{row: row}
	defer l.leave(r)
	s, err := row.open(l.manyKeys)
	if err != nil {
		return r, err
	}
	one, err := l.enter(ctx, r, envoyRLS, s)
	if err != nil {
		return r, err
	}
	before, err := one.Heap(ctx)
	if err != nil {
		return r, err
	}
	if err := l.fill(ctx, one); err != nil {
		return r, err
	}
	after, err := one.Heap(ctx)
	if err != nil {
		return r, err
	}
	buckets, err := one.Buckets(ctx)
	if err != nil {
		return r, err
	}
	if buckets < float64(l.manyKeys) {
		r.invalid = append(r.invalid, fmt.Sprintf("%.0f buckets are alive, want %d", buckets, l.manyKeys))
	}
	l.add(r, ofBytes, (after-before)/buckets)
	return r, nil
}

// measureLayout holds what buckets take in Redis against a hash with the same key, the largest of many.
func measureLayout(ctx context.Context, l *lineup, row row) (*result, error) {
	r := &result{row: row}
	defer l.leave(r)
	s, err := row.open(l.keys)
	if err != nil {
		return r, err
	}
	one, err := l.enter(ctx, r, envoyRLS, s)
	if err != nil {
		return r, err
	}
	if err := l.round(ctx, r, one, bench.Load{}); err != nil {
		return r, err
	}
	ratio, err := one.Redis.OfHash(ctx, ":daily")
	l.add(r, ofHash, ratio)
	return r, err
}

// measureSpread calls servers in turn, and says how far the dearest is from the cheapest.
func measureSpread(ctx context.Context, l *lineup, r *result) (*result, error) {
	for range l.rounds {
		for _, one := range r.sides {
			if err := l.round(ctx, r, one, bench.Load{Rate: l.rate}); err != nil {
				return r, err
			}
		}
	}
	least, most := math.Inf(1), 0.0
	for _, one := range r.sides {
		cpu := one.by(r.sides[0], (*lab.Sample).CPUPerCall)
		least, most = min(least, cpu), max(most, cpu)
	}
	l.add(r, ofSpread, most/least)
	return r, nil
}

// measurePolicies compares servers with few policies and with many, one of which decides each call.
func measurePolicies(ctx context.Context, l *lineup, row row) (*result, error) {
	r := &result{row: row}
	defer l.leave(r)
	text, err := bench.Text(row.scenario)
	if err != nil {
		return r, err
	}
	for _, n := range []string{"10", "1000", "10000"} {
		of := strings.NewReplacer("count: 10000\n", "count: "+n+"\n", "key%10000", "key%"+n).Replace(text)
		s, err := bench.Parse(row.scenario, policy.Text{Path: row.scenario, Data: []byte(of)})
		if err != nil {
			return r, err
		}
		s.Keys.Count = l.keys
		one, err := l.enter(ctx, r, envoyRLS, s)
		if err != nil {
			return r, err
		}
		one.Name = n + " policies"
	}
	return measureSpread(ctx, l, r)
}

// measureKeys compares a server with few keys and one with many, all of which have buckets.
func measureKeys(ctx context.Context, l *lineup, row row) (*result, error) {
	r := &result{row: row}
	defer l.leave(r)
	for _, n := range []uint64{1000, l.manyKeys} {
		s, err := row.open(n)
		if err != nil {
			return r, err
		}
		one, err := l.enter(ctx, r, envoyRLS, s)
		if err != nil {
			return r, err
		}
		if err := l.fill(ctx, one); err != nil {
			return r, err
		}
		one.Name = fmt.Sprintf("%d keys", n)
	}
	return measureSpread(ctx, l, r)
}
