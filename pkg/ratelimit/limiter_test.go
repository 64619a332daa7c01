package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// recorder is a Store that notes what it is asked, and answers by policy id with what it was told.
type recorder struct {
	asked   []string
	answers map[string]ratelimit.Result // by key; others admit
}

func (s *recorder) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	names := map[ratelimit.Op]string{ratelimit.Take: "take", ratelimit.Peek: "peek", ratelimit.Refund: "refund", ratelimit.Force: "force", ratelimit.Undo: "undo"}
	for _, b := range buckets {
		s.asked = append(s.asked, fmt.Sprintf("%s %d %s", names[b.Op], b.Cost, b.Key))
		r, ok := s.answers[b.Key.String()]
		if !ok {
			r = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 5}
		}
		results = append(results, r)
	}
	return results
}

func set(t testing.TB, text string) *policy.Set {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(text))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	return s
}

const policies = `
domain: edge
policies:
  - {id: user, match: {user: "*"}, key: [user], algorithm: token-bucket, capacity: 20, refillPerMinute: 60, onStoreFailure: open}
  - {id: tenant, match: {tenant: "*"}, key: [tenant], algorithm: token-bucket, capacity: 1000, refillPerMinute: 60, onStoreFailure: local}
  - {id: login, match: {login: "*"}, key: [ip], algorithm: sliding-log, limit: 10, window: 60s, onStoreFailure: closed}
  - {id: usage, match: {model: "*"}, key: [model], algorithm: token-bucket, capacity: 100, refillPerMinute: 60, charge: postpaid, overdraft: 50, onStoreFailure: open}
  - {id: bill, match: {bill: "*"}, key: [bill], algorithm: token-bucket, capacity: 100, refillPerMinute: 60, charge: postpaid, onStoreFailure: closed}
  - {id: trial, match: {trial: "*"}, key: [trial], algorithm: token-bucket, capacity: 3, refillPerMinute: 60, mode: shadow, onStoreFailure: closed}
  - {id: none, match: {none: "*"}, key: [none], algorithm: sliding-log, limit: 0, window: 1h, onStoreFailure: open}
`

func TestCharges(t *testing.T) {
	type group struct {
		attribute string
		n         uint64
		own       bool
		refund    bool
	}
	user, tenant := group{attribute: "user"}, group{attribute: "tenant"}
	own := func(g group, n uint64) group { g.own, g.n = true, n; return g }
	back := func(g group, n uint64) group { g.own, g.n, g.refund = true, n, true; return g }
	tests := []struct {
		name   string
		cost   uint64 // 0: not set
		groups []group
		want   []string
	}{
		{"nothing said costs 1", 0, []group{user}, []string{"take 1 rl:{user:x}:user"}},
		{"the request's cost", 7, []group{user, tenant}, []string{"take 7 rl:{user:x}:user", "take 7 rl:{t:x}:tenant"}},
		{"a descriptor's own wins for what it feeds", 7, []group{own(user, 2), tenant}, []string{"take 2 rl:{user:x}:user", "take 7 rl:{t:x}:tenant"}},
		{"own 0 looks only", 7, []group{own(user, 0)}, []string{"peek 1 rl:{user:x}:user"}},
		{"own negative gives back", 0, []group{back(user, 3)}, []string{"refund 3 rl:{user:x}:user"}},
		{"several: the largest", 0, []group{own(user, 2), own(user, 5), own(user, 0)}, []string{"take 5 rl:{user:x}:user"}},
		{"several: peek only if all are 0", 0, []group{own(user, 0), own(user, 0)}, []string{"peek 1 rl:{user:x}:user"}},
		{"several: refund only if all are negative", 0, []group{back(user, 9), own(user, 1)}, []string{"take 1 rl:{user:x}:user"}},
		{"several: the largest refund", 0, []group{back(user, 2), back(user, 4)}, []string{"refund 4 rl:{user:x}:user"}},
		{"a look beside a group that costs what the request does", 0, []group{own(user, 0), user}, []string{"take 1 rl:{user:x}:user"}},
		{"a refund beside one", 3, []group{back(user, 9), user}, []string{"take 3 rl:{user:x}:user"}},
		{"a cost of its own beside one wins", 7, []group{own(user, 2), user}, []string{"take 2 rl:{user:x}:user"}},
		{"postpaid: a look beside one", 0, []group{own(group{attribute: "model"}, 0), {attribute: "model"}}, []string{"peek 1 rl:{model:x}:usage"}},
		{"refund and peek look only", 0, []group{back(user, 2), own(user, 0)}, []string{"peek 1 rl:{user:x}:user"}},
		{"refund of nothing looks only", 0, []group{back(user, 0)}, []string{"peek 1 rl:{user:x}:user"}},
		{"postpaid without a cost looks", 0, []group{{attribute: "model"}}, []string{"peek 1 rl:{model:x}:usage"}},
		{"postpaid with a cost reports", 0, []group{own(group{attribute: "model"}, 400)}, []string{"force 400 rl:{model:x}:usage"}},
		{"postpaid gives back", 0, []group{back(group{attribute: "model"}, 4)}, []string{"refund 4 rl:{model:x}:usage"}},
		{"cost of all the bucket", 20, []group{user}, []string{"take 20 rl:{user:x}:user"}},
		{"more than the bucket", 21, []group{user}, nil},
		{"more than any bucket", math.MaxUint64, []group{user}, nil},
		{"a sibling that can never pass", 21, []group{user, tenant}, nil},
		{"a report is carried out though another denies", 21, []group{user, own(group{attribute: "model"}, 5)}, []string{"force 5 rl:{model:x}:usage"}},
		{"a shadow that can never pass stops nothing", 4, []group{user, {attribute: "trial"}}, []string{"take 4 rl:{user:x}:user"}},
		{"limit 0", 0, []group{{attribute: "none"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s recorder
			l := ratelimit.New(ratelimit.Options{Store: &s})
			l.Use(set(t, policies))
			r := l.Begin([]byte("edge"))
			defer r.Release()
			if tt.cost > 0 {
				r.SetCost(tt.cost)
			}
			for i, g := range tt.groups {
				require.True(t, r.Add(i, []byte(g.attribute), []byte("x")))
				if g.own {
					r.SetGroupCost(i, g.n, g.refund)
				}
			}
			r.Check(t.Context())
			require.Equal(t, tt.want, s.asked)
		})
	}
}

func TestDecisions(t *testing.T) {
	denied := ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromStore, Wait: time.Second}
	failed := ratelimit.Result{Err: errors.New("gone")}
	by := func(o ratelimit.Outcome, s ratelimit.Source) ratelimit.Result {
		return ratelimit.Result{Outcome: o, Source: s}
	}
	type answers = map[string]ratelimit.Result
	tests := []struct {
		name       string
		attributes []string
		cost       uint64
		partial    bool
		answers    answers
		allowed    bool
		sources    []string // of the checks
		known      []bool
	}{
		{"nothing applies", nil, 1, false, nil, true, nil, nil},
		{"admitted", []string{"user"}, 1, false, nil, true, []string{"store"}, []bool{true}},
		{"denied", []string{"user"}, 1, false, answers{"rl:{user:x}:user": denied}, false, []string{"store"}, []bool{true}},
		{"one of two denies", []string{"user", "tenant"}, 1, false, answers{"rl:{t:x}:tenant": denied}, false, []string{"store", "store"}, []bool{true, true}},
		{"a shadow denies", []string{"trial"}, 1, false, answers{"rl:{trial:x}:trial:shadow": denied}, true, []string{"store"}, []bool{true}},
		{"a shadow fails", []string{"trial"}, 1, false, answers{"rl:{trial:x}:trial:shadow": failed}, true, []string{"closed"}, []bool{false}},
		{"never", []string{"user"}, 21, false, nil, false, []string{"never"}, []bool{false}},
		{"never, and a sibling that is not asked", []string{"user", "tenant"}, 21, false, nil, false, []string{"never", ""}, []bool{false, false}},
		{"missing key", []string{"login"}, 1, false, nil, false, []string{"missing-key"}, []bool{false}},
		{"the store fails, open", []string{"user"}, 1, false, answers{"rl:{user:x}:user": failed}, true, []string{"open"}, []bool{false}},
		{"the store fails, closed", []string{"login", "ip"}, 1, false, answers{loginKey: failed}, false, []string{"closed"}, []bool{false}},
		{"the store fails, a report to a closed policy", []string{"bill"}, 7, false, answers{"rl:{bill:x}:bill": failed}, true, []string{"open"}, []bool{false}},
		{"a decorator answers for the store", []string{"user", "tenant"}, 1, false, answers{"rl:{user:x}:user": by(ratelimit.Admitted, ratelimit.FromOpen), "rl:{t:x}:tenant": by(ratelimit.Denied, ratelimit.FromClosed)}, false, []string{"open", "closed"}, []bool{false, false}},
		{"known to be empty, and a sibling that was not asked", []string{"user", "tenant"}, 1, false, answers{"rl:{user:x}:user": by(ratelimit.Denied, ratelimit.FromCache), "rl:{t:x}:tenant": by(0, ratelimit.FromCache)}, false, []string{"cache", "cache"}, []bool{true, false}},
		{"cut short: closed policies deny", []string{"user"}, 1, true, nil, false, []string{"open", "open", "closed", "open", "closed", "closed", "open"}, make([]bool, 7)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var told *ratelimit.Decision
			s := &recorder{answers: tt.answers}
			l := ratelimit.New(ratelimit.Options{Store: s, OnDecision: func(d *ratelimit.Decision) { told = d }})
			l.Use(set(t, policies))
			r := l.Begin([]byte("edge"))
			defer r.Release()
			r.SetCost(tt.cost)
			for i, a := range tt.attributes {
				r.Add(i, []byte(a), []byte("x"))
			}
			if tt.partial {
				r.SetPartial()
			}
			d := r.Check(t.Context())
			require.Same(t, told, d)
			require.Equal(t, tt.allowed, d.Allowed)
			var sources []string
			var known []bool
			for _, c := range d.Checks {
				sources, known = append(sources, c.Result.Source.String()), append(known, c.Known)
			}
			require.Equal(t, tt.sources, sources)
			require.Equal(t, tt.known, known)
			if tt.partial {
				require.Empty(t, s.asked)
			}
		})
	}
}

// loginKey is where address "x" is counted: it is none, and has a bucket of its own.
var loginKey = policy.NewKey(policy.Part{Name: "ip", Value: "#2d711642b726b04401627ca9fbac32f5"}, "login").String()

func TestSkippedAndUnknown(t *testing.T) {
	s := &recorder{}
	l := ratelimit.New(ratelimit.Options{Store: s})
	r := l.Begin([]byte("edge"))
	d := r.Check(t.Context())
	require.True(t, d.Allowed, "no policies yet")
	require.False(t, d.DomainKnown)
	r.Release()

	l.Use(set(t, "domain: edge\npolicies:\n  - {id: a, match: {plan: free}, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}"))
	r = l.Begin([]byte("edge"))
	r.Add(3, []byte("plan"), []byte("free"))
	d = r.Check(t.Context())
	require.True(t, d.Allowed)
	require.True(t, d.DomainKnown)
	require.Len(t, d.Skipped, 1)
	require.Equal(t, "tenant", d.Skipped[0].Missing)
	require.Equal(t, uint64(1<<3), d.Used)
	r.Release()

	r = l.Begin([]byte("other"))
	require.False(t, r.Check(t.Context()).DomainKnown)
	r.Release()
	require.Empty(t, s.asked)
}

func TestTooManyGroups(t *testing.T) {
	s := &recorder{}
	l := ratelimit.New(ratelimit.Options{Store: s})
	l.Use(set(t, policies))
	for _, group := range []int{-1, policy.MaxGroups} {
		for name, add := range map[string]func(*ratelimit.Call){
			"a fact": func(r *ratelimit.Call) { require.False(t, r.Add(group, []byte("user"), []byte("x"))) },
			"a cost": func(r *ratelimit.Call) { r.SetGroupCost(group, 1, false) },
		} {
			r := l.Begin([]byte("edge"))
			add(r)
			require.False(t, r.Check(t.Context()).Allowed, "%s in group %d: closed policies may be meant", name, group)
			r.Release()
		}
	}
	require.Empty(t, s.asked)
}

func TestStricter(t *testing.T) {
	check := func(outcome ratelimit.Outcome, source ratelimit.Source, remaining float64, wait time.Duration, known bool) *ratelimit.Check {
		return &ratelimit.Check{Known: known, Result: ratelimit.Result{Outcome: outcome, Source: source, Remaining: remaining, Wait: wait}}
	}
	order := []*ratelimit.Check{ // each stricter than the next
		check(ratelimit.Denied, ratelimit.FromNever, 0, 0, false),
		check(ratelimit.Denied, ratelimit.FromStore, 0, time.Hour, true),
		check(ratelimit.Denied, ratelimit.FromStore, 0, time.Second, true),
		check(ratelimit.Admitted, ratelimit.FromStore, 0.5, 0, true),
		check(ratelimit.Admitted, ratelimit.FromStore, 56, 0, true),
		check(ratelimit.Admitted, ratelimit.FromOpen, 0, 0, false),
	}
	for i, a := range order {
		for j, b := range order {
			require.Equal(t, i < j, ratelimit.Stricter(a, b), "%d %d", i, j)
		}
	}
}
