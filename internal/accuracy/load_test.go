package accuracy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// The buckets of the loads: two users, each with tokens and a log, in a slot of theirs; and a site in another one.
const (
	users = 2
	site  = 2 * users
)

func loadBuckets() []accuracy.Bucket {
	var all []accuracy.Bucket
	for user := range users {
		group := fmt.Sprint("user", user)
		all = append(all,
			accuracy.Bucket{Key: key(group, "tokens").String(), Limits: tokens(5, 20), Group: group, Fresh: true},
			accuracy.Bucket{Key: key(group, "log").String(), Limits: log(8, 400*time.Millisecond), Group: group, Fresh: true})
	}
	return append(all, accuracy.Bucket{Key: key("site", "site").String(), Limits: tokens(50, 0.001), Group: "site", Fresh: true})
}

func key(group, id string) policy.Key {
	return policy.NewKey(policy.Part{Name: "tenant", Value: group}, id)
}

func bucketAt(i int, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	id, group := "site", "site"
	if i < site {
		id, group = []string{"tokens", "log"}[i%2], fmt.Sprint("user", i/2)
	}
	return ratelimit.Bucket{Key: key(group, id), Limits: loadBuckets()[i].Limits, Op: op, Cost: cost, OnFailure: policy.Local}
}

// request is a call that somebody may make.
func request(random *rand.Rand) []ratelimit.Bucket {
	user := random.IntN(users)
	mine, logged := bucketAt(2*user, ratelimit.Take, 1+random.Uint64N(3)), bucketAt(2*user+1, ratelimit.Take, 1)
	switch n := random.IntN(20); {
	case n < 8:
		return []ratelimit.Bucket{mine}
	case n < 12:
		return []ratelimit.Bucket{mine, logged}
	case n < 17:
		return []ratelimit.Bucket{logged, bucketAt(site, ratelimit.Take, 1)}
	case n < 19:
		mine.Op = ratelimit.Peek
		return []ratelimit.Bucket{mine}
	default:
		mine.Op = ratelimit.Refund
		return []ratelimit.Bucket{mine}
	}
}

// callers call a store for a time that does not really pass, and look at what is left in the end.
func callers(t *testing.T, make func() ratelimit.Store, n int, pace, length time.Duration) *accuracy.Record {
	t.Helper()
	var record *accuracy.Record
	synctest.Test(t, func(t *testing.T) {
		store := make()
		recorder := accuracy.NewRecorder(loadBuckets())
		end := time.Now().Add(length)
		var all sync.WaitGroup
		for caller := range n {
			all.Go(func() {
				random, w := rand.New(rand.NewPCG(1, uint64(caller))), recorder.Worker()
				for time.Now().Before(end) {
					time.Sleep(time.Duration(random.Int64N(int64(2 * pace))))
					w.Acquire(t.Context(), store, request(random))
				}
			})
		}
		all.Wait()
		time.Sleep(2 * time.Second) // until nothing is remembered, and all is given back
		w := recorder.Worker()
		for i := range loadBuckets() {
			w.Acquire(t.Context(), store, []ratelimit.Bucket{bucketAt(i, ratelimit.Peek, 1)})
		}
		record = recorder.Record()
	})
	return record
}

// distant is a store at the end of a line.
type distant struct {
	ratelimit.Store
	most time.Duration
}

func (d distant) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	time.Sleep(time.Duration(rand.Int64N(int64(d.most))))
	results = d.Store.Acquire(ctx, buckets, results)
	time.Sleep(time.Duration(rand.Int64N(int64(d.most))))
	return results
}

// slotted has a store for each user and one for the site, and gives back what one of them has taken when another denied. undos is how often
// that is done for each.
type slotted struct {
	stores map[string]ratelimit.Store
	undos  int
}

func newSlotted(undos int) *slotted {
	s := &slotted{stores: map[string]ratelimit.Store{}, undos: undos}
	for _, b := range loadBuckets() {
		if s.stores[b.Group] == nil {
			s.stores[b.Group] = distant{memory(), 2 * time.Millisecond}
		}
	}
	return s
}

func memory() ratelimit.Store { return memorybackend.New(memorybackend.Options{}) }

func (s *slotted) Acquire(ctx context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	results := make([]ratelimit.Result, len(buckets))
	parts := map[string][]int{}
	for i, b := range buckets {
		for _, known := range loadBuckets() {
			if known.Key == b.Key.String() {
				parts[known.Group] = append(parts[known.Group], i)
			}
		}
	}
	denied := map[string]bool{}
	for group, at := range parts {
		for n, r := range s.ask(ctx, group, pick(buckets, at)) {
			results[at[n]] = r
			denied[group] = denied[group] || r.Outcome == ratelimit.Denied
		}
	}
	for group, at := range parts {
		if len(denied) < 2 || denied[group] || !anyOf(denied) {
			continue
		}
		back := pick(buckets, at)
		for n := range back {
			r := &results[at[n]]
			back[n].Op, back[n].Before, back[n].At = ratelimit.Undo, r.Before, r.At
			r.Remaining += float64(back[n].Cost)
		}
		for range s.undos {
			s.ask(ctx, group, back)
		}
	}
	return results
}

func (s *slotted) ask(ctx context.Context, group string, buckets []ratelimit.Bucket) []ratelimit.Result {
	return s.stores[group].Acquire(ctx, buckets, nil)
}

// failing is a store that cannot be reached for a part of each second.
type failing struct {
	ratelimit.Store
	began time.Time
}

var errGone = errors.New("gone")

func (f failing) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if time.Since(f.began)%time.Second < 600*time.Millisecond {
		return f.Store.Acquire(ctx, buckets, results)
	}
	results = make([]ratelimit.Result, len(buckets))
	for i := range results {
		results[i].Err = errGone
	}
	return results
}

// fleet is instances that take calls in turn, and decide by their shares while the store that they share fails.
type fleet struct {
	instances []*fallback.Store
	calls     atomic.Uint64
}

func (f *fleet) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return f.instances[f.calls.Add(1)%uint64(len(f.instances))].Acquire(ctx, buckets, results)
}

// newFleet has three instances, which know of each other or take themselves for the only ones.
func newFleet(acquainted bool) *fleet {
	const n = 3
	f, store := &fleet{}, failing{memory(), time.Now()}
	for i := range n {
		who := fallback.Instances{Count: n, Index: i}
		if !acquainted {
			who = fallback.Instances{}
		}
		f.instances = append(f.instances, fallback.New(fallback.Options{
			Store: store, Local: memory(), Instances: func() fallback.Instances { return who },
		}))
	}
	return f
}

func pick(buckets []ratelimit.Bucket, at []int) []ratelimit.Bucket {
	var picked []ratelimit.Bucket
	for _, i := range at {
		picked = append(picked, buckets[i])
	}
	return picked
}

func anyOf(all map[string]bool) bool {
	for _, v := range all {
		if v {
			return true
		}
	}
	return false
}

// TestStoresKeepTheirLimits: what stores in memory do is judged, and found to be right.
func TestStoresKeepTheirLimits(t *testing.T) {
	length := 6 * time.Second
	if long() {
		length = 10 * time.Minute
	}
	for _, test := range []struct {
		name string
		make func() ratelimit.Store
	}{
		{"memory", memory},
		{"memory at the end of a line", func() ratelimit.Store { return distant{memory(), 5 * time.Millisecond} }},
		{"behind a cache of denials", func() ratelimit.Store {
			return rejectcache.New(rejectcache.Options{Store: distant{memory(), 5 * time.Millisecond}})
		}},
		{"several slots", func() ratelimit.Store { return newSlotted(1) }},
		{"shares, while it fails", func() ratelimit.Store { return newFleet(true) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := callers(t, test.make, 10, 20*time.Millisecond, length)
			v, err := accuracy.Check(r, accuracy.Options{})
			require.NoError(t, err)
			require.NoError(t, v.Err())
			require.Greater(t, v.Denials, 300)
			require.Greater(t, v.Readings, 300)
			require.Greater(t, v.Fullest.Admitted, v.Fullest.Bound-1.5, "it is called for all that it has")
		})
	}
}
