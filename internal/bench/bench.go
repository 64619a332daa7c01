// Package bench makes rate limit calls (RLS v3) to any server and measures how long they take.
//
// A [Scenario] says what is called. [Dial] connects to a server, [Load.Run] calls it in one of two ways. In a closed loop each worker makes one
// call after the other, so the server sets the pace; that is the way to measure what a call costs. In an open loop calls are due at a
// constant rate whatever the server does, and each counts from the moment it was due: a server that stalls shows all that would have had to wait.
// That is the way to measure latency. Latencies are kept in an HDR histogram, exact to three digits.
package bench

import (
	"fmt"
	"time"
)

// Scenario is a kind of load, as a YAML file has it. See docs/bench.md.
type Scenario struct {
	Name  string
	About string // one line, for people

	Domain string
	Keys   Keys
	Calls  []Call
	Load   Shape

	// DecidedBy are the sources that may decide, in the words of the metric envoy_rls_decisions_total. Usually store alone.
	DecidedBy []string
	// Limit is what a policy should admit of all calls, and Exactly whether it is what counts here: accuracy is the calls allowed by it. 0: not looked at.
	Limit int64
	// Buckets that are filled are made before: as many calls as there are keys, each once.
	Fill bool
	// Policies is the policy file that a service of our own is started with. Empty: the scenario has none.
	Policies string
}

// Call is a kind of call in a scenario.
type Call struct {
	Weight      int    // of all calls, beside those of the other kinds; at least 1
	Cost        uint32 // 0: not sent, which is 1
	Descriptors []Descriptor
	Policies    int // how many policies decide it; 0: not known
}

// Descriptor is one of a call's, its entries in the order of the file.
type Descriptor []Entry

// Entry is one entry of a descriptor.
type Entry struct {
	Key   string
	Value Template
}

// Shape is how a scenario's calls are made.
type Shape struct {
	Workers     int    // calls under way at a time: in a closed loop exactly, in an open one at most
	Connections int    // that they share
	Rates       []Rate // one measurement each
	Duration    time.Duration
	WarmUp      time.Duration
	Faults      []Fault // one measurement at each rate each
}

// Rate is how many calls are made.
type Rate struct {
	// PerSecond, above zero, is a constant rate. Share, above zero, is one as a share of what the server is meant to bear. Else the loop is closed.
	PerSecond, Share float64
}

// String is the rate as a scenario has it.
func (r Rate) String() string {
	switch {
	case r.PerSecond > 0:
		return fmt.Sprintf("%g/s", r.PerSecond)
	case r.Share > 0:
		return fmt.Sprintf("%g%%", r.Share*100)
	}
	return "closed"
}

// Of is the rate in calls a second where peak is what the server is meant to bear; 0 is a closed loop.
func (r Rate) Of(peak float64) float64 {
	if r.PerSecond > 0 {
		return r.PerSecond
	}
	return r.Share * peak
}

// Fault is what happens to the store meanwhile.
type Fault string

// The faults.
const (
	Healthy     Fault = "healthy"
	ShardKilled Fault = "shard-killed"
)

// PlannedPeak is how many calls a second an instance is planned for, if nothing else is said: 75,000 on 50 instances.
const PlannedPeak = 1500
