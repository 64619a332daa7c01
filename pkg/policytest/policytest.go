// Package policytest runs tests of policies: files that say what should be answered to which request, when.
//
// A test is a timeline of calls. They are decided as a service decides them, on empty buckets in memory and by a clock that
// only the timeline moves, so that an hour takes no time and a test has the same result on every machine.
package policytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// File is a file of tests, read and checked by itself.
type File struct {
	Path string
	// Policies are the policy files that are tested, as paths; relative ones are meant from where the file is. Empty if the file names none.
	Policies []string
	// Now is what time it is when each test begins, for overrides with an until. The zero Time: the time of the run.
	Now   time.Time
	Tests []Test

	source []byte
	ids    []named
}

// named is a policy that a test names.
type named struct {
	pos policy.Position
	id  string
}

// Test is one timeline of calls. Every test begins with full buckets.
type Test struct {
	Name  string
	Pos   policy.Position
	Steps []Step
}

// Step is a call, or several that are equal.
type Step struct {
	Pos     policy.Position
	At      time.Duration // since the beginning of the test; never before that of the previous step
	Repeat  int           // how often the call is made, at least 1
	Every   time.Duration // between repeated calls
	Request descriptors.Request
	Expect  []Expectation
	// domainGiven says that the request's domain is written, if only as nothing.
	domainGiven bool
}

// Expectation is one thing that must be so about the answers of a step.
type Expectation struct {
	Pos  policy.Position
	last bool // of the last answer only
	// check says what was expected and what came instead; both empty if that is the same.
	check func(*answer) (want, got string)
}

// Result is what became of one test.
type Result struct {
	Name   string        `json:"name"`
	File   string        `json:"file"`
	Line   int           `json:"line"`
	Passed bool          `json:"passed"`
	Faults policy.Faults `json:"faults,omitempty"` // each at an expectation that was not met
}

// Check finds policies that f names and set does not have. The error is of type [policy.Faults].
func (f *File) Check(set *policy.Set) error {
	var known []string
	for _, p := range set.Policies() {
		known = append(known, p.ID)
	}
	var faults policy.Faults
	for _, n := range f.ids {
		if !slices.Contains(known, n.id) {
			faults = append(faults, policy.Fault{Pos: n.pos, Hint: policy.DidYouMean(n.id, known), Message: fmt.Sprintf("there is no policy %q", n.id)})
		}
	}
	return policy.Quote(faults, policy.Text{Path: f.Path, Data: f.source})
}

// Run runs the tests of f under set.
func (f *File) Run(ctx context.Context, set *policy.Set) []Result {
	var results []Result
	for i := range f.Tests {
		t := &f.Tests[i]
		r := Result{Name: t.Name, File: f.Path, Line: t.Pos.Line}
		faults := t.run(ctx, set, f.Now)
		r.Passed = len(faults) == 0
		if !r.Passed {
			_ = policy.Quote(faults, policy.Text{Path: f.Path, Data: f.source}) // in place
			r.Faults = faults
		}
		results = append(results, r)
	}
	return results
}

func (t *Test) run(ctx context.Context, set *policy.Set, begin time.Time) policy.Faults {
	if begin.IsZero() {
		begin = time.Now()
	}
	var at time.Duration
	now := func() time.Time { return begin.Add(at) }
	limiter := ratelimit.New(ratelimit.Options{
		Store:    memorybackend.New(memorybackend.Options{MaxBuckets: maxCalls, Now: func() int64 { return 1 + at.Microseconds() }}),
		Policies: set.WithClock(now),
	})
	var faults policy.Faults
	for i := range t.Steps {
		s := &t.Steps[i]
		if domains := set.Domains(); !s.domainGiven && len(domains) == 1 {
			s.Request.Domain = []byte(domains[0])
		}
		failed := make([]bool, len(s.Expect))
		for n := range s.Repeat {
			at = s.At + time.Duration(n)*s.Every
			a := ask(ctx, limiter, &s.Request)
			for j, e := range s.Expect {
				if failed[j] || e.last && n < s.Repeat-1 {
					continue
				}
				if want, got := e.check(a); want != got {
					failed[j] = true
					faults = append(faults, mismatch(s, e.Pos, n, at, want, got))
				}
			}
		}
	}
	return faults
}
