package faults_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/accuracy/observe"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// exact has buckets of which all that they have is asked for, of each kind and failure mode that counts.
const exact = `
domain: edge
policies:
  - {id: tokens, match: {bucket: tokens}, key: [tenant], algorithm: token-bucket, capacity: 20, refillPerSecond: 40, onStoreFailure: closed}
  - {id: log, match: {bucket: log}, key: [tenant], algorithm: sliding-log, limit: 30, window: 1s, onStoreFailure: closed}
  - {id: local, match: {bucket: local}, key: [tenant], algorithm: token-bucket, capacity: 20, refillPerSecond: 40, onStoreFailure: local}
  - {id: site, match: {bucket: site}, key: [tenant], algorithm: token-bucket, capacity: 300, refillPerHour: 1, onStoreFailure: closed}
  - {id: closed, match: {mode: closed}, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
`

// exactLimits are those of the policies, in the order in which each tenant has its buckets.
var exactLimits = []struct {
	id     string
	limits algorithm.Limits
}{
	{"tokens", tokenBucket(20, 40*60)},
	{"log", slidingLog(30, time.Second)},
	{"local", tokenBucket(20, 40*60)},
	{"site", tokenBucket(300, 1./60)},
}

const (
	tokensOf = iota
	logOf
	localOf
	siteOf
	kindsOf // how many buckets a tenant has
)

// exactTenants is how many tenants each shard has.
const exactTenants = 2

// exactness records what many callers are told, and judges it.
type exactness struct {
	*lab
	recorder *accuracy.Recorder
	tenants  []string // of a shard one after the other
	buckets  []accuracy.Bucket
}

// newExactness makes buckets that nobody has used. If not slotted, all of a request is decided at once.
func newExactness(l *lab, slotted bool) *exactness {
	e := &exactness{lab: l}
	for shard := range shards {
		for n := range exactTenants {
			e.tenants = append(e.tenants, tenantOf(shard, fmt.Sprint("exact-", n, "-", time.Now().UnixNano(), "-")))
		}
	}
	for _, tenant := range e.tenants {
		for _, kind := range exactLimits {
			b := accuracy.Bucket{Key: policy.NewKey(policy.Part{Name: "tenant", Value: tenant}, kind.id).String(), Limits: kind.limits, Fresh: true}
			if slotted {
				b.Group = tenant
			}
			e.buckets = append(e.buckets, b)
		}
	}
	e.recorder = accuracy.NewRecorder(e.buckets)
	return e
}

// part is a bucket and what it is asked for.
type part struct{ tenant, kind, cost int }

// request asks for parts: a descriptor for each. A cost of 0 only looks.
func (e *exactness) request(parts []part) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "edge"}
	for _, p := range parts {
		r.Descriptors = append(r.Descriptors, &ratelimit.RateLimitDescriptor{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{
				{Key: "bucket", Value: exactLimits[p.kind].id}, {Key: "tenant", Value: e.tenants[p.tenant]},
			},
			HitsAddend: wrapperspb.UInt64(uint64(p.cost)),
		})
	}
	return r
}

// any is a request that somebody may make.
func (e *exactness) any(random *rand.Rand) []part {
	tenant := random.IntN(len(e.tenants))
	switch n := random.IntN(10); {
	case n < 3:
		return []part{{tenant, tokensOf, 1 + random.IntN(3)}}
	case n < 5:
		return []part{{tenant, tokensOf, 1}, {tenant, logOf, 1}}
	case n < 7:
		return []part{{tenant, logOf, 1}, {random.IntN(len(e.tenants)), siteOf, 1}}
	default:
		return []part{{tenant, localOf, 1}}
	}
}

// ask makes a call and notes what it is told.
func (e *exactness) ask(w *accuracy.Worker, n int, parts []part) {
	ctx, cancel := context.WithTimeout(context.Background(), faults.CallTimeout)
	defer cancel()
	start := w.Now()
	got, err := e.fleet[n%len(e.fleet)].Decide(ctx, n/len(e.fleet), e.request(parts))
	entries := make([]accuracy.Entry, len(parts))
	for i, p := range parts {
		entries[i] = accuracy.Entry{
			Bucket: uint32(p.tenant*kindsOf + p.kind), Op: accuracy.Take, Cost: uint64(p.cost),
			Outcome: accuracy.Unknown, Source: accuracy.FromStore, Left: math.NaN(),
		}
		if p.cost == 0 {
			entries[i].Op, entries[i].Cost = accuracy.Peek, 1
		}
		if err == nil {
			observe.Tell(&entries[i], got, i)
		}
	}
	w.Note(start, entries...)
}

// run has callers call until the fault is over and then for a while. The store is looked at in the end.
func (e *exactness) run(fault func()) *accuracy.Record {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	var all sync.WaitGroup
	for caller := range 16 {
		all.Go(func() {
			random, w := rand.New(rand.NewPCG(7, uint64(caller))), e.recorder.Worker()
			for ctx.Err() == nil {
				e.ask(w, random.IntN(1<<20), e.any(random))
				time.Sleep(time.Duration(random.Int64N(int64(15 * time.Millisecond))))
			}
		})
	}
	time.Sleep(exactLength() / 2)
	fault()
	time.Sleep(exactLength() / 2)
	cancel()
	all.Wait()
	time.Sleep(1100 * time.Millisecond) // for as long something may be given back, and a denial remembered
	w := e.recorder.Worker()
	for tenant := range e.tenants {
		for kind := range kindsOf {
			e.ask(w, tenant, []part{{tenant, kind, 0}})
		}
	}
	return e.recorder.Record()
}

// exactLength is for how long callers call beside the fault.
func exactLength() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("ENVOY_RLS_ACCURACY")); err == nil {
		return d
	}
	if long() {
		return 20 * time.Second
	}
	return 1200 * time.Millisecond
}

// lasts notes a fault of some buckets. what happens takes as long as do, and settles within a time after it.
func (e *exactness) lasts(why string, settles time.Duration, which func(shard, kind int) (capacities float64, concerned bool), do func()) {
	from := e.recorder.Now()
	do()
	to := e.recorder.Now() + settles.Nanoseconds()
	for i := range e.buckets {
		if gives, concerned := which(i/kindsOf/exactTenants, i%kindsOf); concerned {
			e.recorder.Fault(accuracy.Fault{Why: why, From: from, To: to, Buckets: []uint32{uint32(i)}, Capacities: gives})
		}
	}
}

// requireExact judges a record. What shares have decided although nothing was wrong (the machine stood still) counts as a fault of its own.
func (e *exactness) requireExact(r *accuracy.Record) *accuracy.Verdict {
	e.Helper()
	r.Faults = append(r.Faults, unplanned(r)...)
	v, err := accuracy.Check(r, accuracy.Options{})
	require.NoError(e, err)
	path := filepath.Join(e.ArtifactDir(), "record.jsonl")
	file, err := os.Create(path)
	require.NoError(e, err)
	require.NoError(e, r.Write(file))
	require.NoError(e, file.Close())
	require.NoError(e, v.WriteText(logged{e.T}))
	require.NoError(e, v.Err())
	require.Greater(e, v.Denials, 20)
	require.Greater(e, v.Readings, 100)
	require.Greater(e, v.Fullest.Admitted, v.Fullest.Bound/2)
	return v
}

// requireExactShares judges the record of a fault in which shares had to decide.
func (e *exactness) requireExactShares(r *accuracy.Record) {
	e.Helper()
	admitted := 0
	for _, entry := range r.Entries {
		if entry.Source == accuracy.FromLocal && entry.Passed {
			admitted++
		}
	}
	require.Positive(e, admitted, "by shares")
	e.requireExact(r)
}

// unplanned are the times outside of the known faults at which a bucket was decided by shares.
func unplanned(r *accuracy.Record) []accuracy.Fault {
	var found []accuracy.Fault
	for _, e := range r.Entries {
		if e.Source != accuracy.FromLocal || within(append(r.Faults, found...), e) {
			continue
		}
		found = append(found, accuracy.Fault{
			Why: "no answer of the store in time", From: e.Start - 1e9, To: e.End + 3e9, Buckets: []uint32{e.Bucket},
		})
	}
	return found
}

func within(known []accuracy.Fault, e accuracy.Entry) bool {
	for _, f := range known {
		for _, b := range f.Buckets {
			if b == e.Bucket && e.Start >= f.From && e.End <= f.To {
				return true
			}
		}
	}
	return false
}

// logged writes to a test's log.
type logged struct{ testing.TB }

func (l logged) Write(text []byte) (int, error) {
	l.Helper()
	l.Logf("%s", text)
	return len(text), nil
}
