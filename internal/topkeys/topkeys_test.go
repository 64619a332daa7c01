package topkeys_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/topkeys"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policies = `
policies:
  - {id: free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: skip, algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open}
  - {id: login, key: [ip, username], onMissingKey: skip, algorithm: sliding-log, limit: 2, window: 1h, onStoreFailure: open, expose: never}
  - {id: trial, match: {plan: trial}, key: [tenant, ip, username], mode: shadow, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open, onMissingKey: skip}
  - {id: site, match: {plan: all}, key: [], algorithm: token-bucket, capacity: 2, refillPerDay: 1, onStoreFailure: open}
  - {id: reports, match: {plan: paid}, key: [tenant], charge: postpaid, algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: open, onMissingKey: skip}
`

type service struct {
	*ratelimit.Limiter
	keys *topkeys.Keys
}

func load(t testing.TB, text string) *policy.Set {
	t.Helper()
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(text)})
	require.NoError(t, err)
	return set
}

func start(t testing.TB, text string) service {
	t.Helper()
	s := service{keys: topkeys.New()}
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 12, Now: func() int64 { return 1 }})
	set := load(t, text)
	s.Limiter = ratelimit.New(ratelimit.Options{Store: store, Policies: set, OnDecision: s.keys.Count})
	s.keys.Use(set)
	return s
}

func (s service) call(t testing.TB, n int, attributes ...string) {
	t.Helper()
	r := ratelimit.Request{Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		r.Attributes[attributes[i]] = attributes[i+1]
	}
	for range n {
		_, err := s.Check(t.Context(), r)
		require.NoError(t, err)
	}
}

func (s service) of(id string) topkeys.Policy {
	for _, p := range s.keys.Top(10) {
		if p.Policy == id {
			return p
		}
	}
	return topkeys.Policy{}
}

func TestAllowedAndDenied(t *testing.T) {
	s := start(t, policies)
	s.call(t, 10, "plan", "free", "apiKey", "secret1", "tenant", "customer-42")
	s.call(t, 4, "plan", "free", "apiKey", "secret2", "tenant", "customer-43")
	s.call(t, 1, "plan", "free", "apiKey", "secret2") // skipped for want of a tenant
	free := s.of("free")
	require.Len(t, free.Allowed, 2)
	require.Len(t, free.Denied, 2)
	require.Equal(t, 7.0, free.Denied[0].Calls)
	require.Equal(t, 1.0, free.Denied[1].Calls)
	require.Zero(t, free.Denied[0].Error)
	require.Equal(t, 3.0, free.Allowed[0].Calls)
	require.Equal(t, []topkeys.Part{{Attribute: "tenant", Ending: "-42"}, {Attribute: "apiKey", Ending: free.Denied[0].Parts[1].Ending}}, free.Denied[0].Parts)
	require.Len(t, free.Denied[0].Parts[1].Ending, 4)
}

func TestWhatIsNotTaken(t *testing.T) {
	s := start(t, policies)
	s.call(t, 2, "plan", "paid", "tenant", "customer-42")
	_, err := s.Check(t.Context(), ratelimit.Request{Attributes: map[string]string{"plan": "paid", "tenant": "customer-42"}, Cost: 3})
	require.NoError(t, err)
	_, err = s.Refund(t.Context(), ratelimit.Request{Attributes: map[string]string{"plan": "paid", "tenant": "customer-42"}, Cost: 3})
	require.NoError(t, err)
	require.Equal(t, 2.0, s.of("reports").Allowed[0].Calls, "what is reported and given back is not a call")

	res, err := s.Reserve(t.Context(), ratelimit.Request{Attributes: map[string]string{"plan": "free", "apiKey": "k", "tenant": "t"}, Cost: 2})
	require.NoError(t, err)
	_, err = res.Commit(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1.0, s.of("free").Allowed[0].Calls)
}

func TestHiddenForm(t *testing.T) {
	s := start(t, policies)
	s.call(t, 3, "ip", "203.0.113.77", "username", "alice@example.com")
	s.call(t, 2, "plan", "trial", "tenant", "acme", "ip", "2001:db8:1:2::9", "username", "bo:b}{é@example.com\x00")
	s.call(t, 3, "plan", "all")
	trial, login, site := s.of("trial"), s.of("login"), s.of("site")
	require.True(t, login.Hidden)
	require.Empty(t, login.Denied[0].Parts)
	require.Len(t, trial.Allowed, 1)
	require.Len(t, trial.Denied, 1, "what would be denied")
	require.Equal(t, []topkeys.Part{{Attribute: "tenant", Ending: "e"}, {Attribute: "ip", Ending: ":/64"}, {Attribute: "username", Ending: "m%00"}}, trial.Denied[0].Parts)
	require.Empty(t, site.Denied[0].Parts)
	require.Equal(t, 1.0, site.Denied[0].Calls)
	text, err := json.Marshal(s.keys.Top(10))
	require.NoError(t, err)
	for _, secret := range []string{"alice", "203.0", "acme", "example", "2001"} {
		require.NotContains(t, string(text), secret)
	}
}

func TestEnding(t *testing.T) {
	for value, want := range map[string]string{"": "", "ab": "", "abc": "c", "acme": "e", "alice1": "e1", "0123456789": "789", "0123456789abcdef": "cdef", "ééé": "é", "a\xffb": "b"} {
		require.Equal(t, want, topkeys.Ending(value), value)
	}
}

func TestResolve(t *testing.T) {
	s := start(t, policies)
	s.call(t, 5, "plan", "free", "apiKey", "secret1", "tenant", "acme")
	item := s.of("free").Denied[0]
	require.NotContains(t, item.ID, "acme")
	got, ok := s.keys.Resolve(item.ID)
	require.True(t, ok)
	require.Equal(t, "free", got.Policy)
	require.Equal(t, 3.0, got.Numbers.Capacity)
	require.True(t, strings.HasPrefix(got.Key.String(), "rl:{t:acme}:free:k:ak_"), got.Key)
	for _, id := range []string{"", "x", "0", strings.ToUpper(item.ID) + "0", "+" + item.ID[1:], "0x" + item.ID, "0000000000000000"} {
		_, ok := s.keys.Resolve(id)
		require.False(t, ok, id)
	}
	_, ok = topkeys.New().Resolve(item.ID)
	require.False(t, ok)
}

func TestWhatIsLongAgoFades(t *testing.T) {
	s := start(t, policies)
	s.call(t, 100, "plan", "free", "apiKey", "old", "tenant", "t")
	for range 10 * topkeys.HalfLife {
		s.keys.Tick()
	}
	require.Empty(t, s.keys.Top(10), "a tenth of a call is not shown")
	s.call(t, 4, "plan", "free", "apiKey", "new", "tenant", "t")
	require.Len(t, s.of("free").Denied, 1)
	require.Equal(t, 1.0, s.of("free").Denied[0].Calls)
	for range 20 * topkeys.HalfLife {
		s.keys.Tick()
	}
	require.Empty(t, s.keys.Top(10))
}

func TestReload(t *testing.T) {
	s := start(t, policies)
	s.call(t, 5, "plan", "free", "apiKey", "k1", "tenant", "customer-42")
	s.call(t, 3, "plan", "all")
	id := s.of("free").Denied[0].ID
	changed := load(t, `policies: [{id: free, match: {plan: free}, key: [tenant, apiKey], onMissingKey: skip, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}]`)
	s.call(t, 1, "plan", "all") // by the old set, which is in force still
	s.keys.Use(changed)
	s.call(t, 1, "plan", "all")
	require.Len(t, s.keys.Top(10), 1, "a policy that is gone has no keys")
	require.Equal(t, id, s.of("free").Denied[0].ID)
	_, ok := s.keys.Resolve(id)
	require.True(t, ok)
	s.Use(changed)
	s.call(t, 2, "plan", "free", "apiKey", "k1", "tenant", "customer-42")
	require.Equal(t, 4.0, s.of("free").Denied[0].Calls, "a policy that stays keeps its keys")
	s.keys.Use(load(t, `policies: [{id: free, match: {plan: free}, key: [ip], onMissingKey: skip, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}]`))
	require.Equal(t, id, s.of("free").Denied[0].ID)
	require.Empty(t, s.of("free").Denied[0].Parts, "a key of other parts cannot be told")
}

func TestListsAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range topkeys.MaxLists + 100 {
		fmt.Fprintf(&text, "  - {id: p%d, match: {plan: p%d}, key: [tenant], onMissingKey: skip, algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open}\n", i, i)
	}
	s := start(t, text.String())
	for i := range topkeys.MaxLists + 100 {
		s.call(t, 1, "plan", "p"+strconv.Itoa(i), "tenant", "t")
	}
	require.Len(t, s.keys.Top(1), topkeys.MaxLists)
	const more = 30_000
	for range more {
		s.call(t, 1, "plan", "p"+strconv.Itoa(topkeys.MaxLists+1), "tenant", "t")
	}
	require.InEpsilon(t, more, s.keys.Uncounted(), 0.5, "ten standard deviations")
	for range 20 * topkeys.HalfLife {
		s.keys.Tick()
	}
	s.call(t, 1, "plan", "p"+strconv.Itoa(topkeys.MaxLists+1), "tenant", "t")
	require.Len(t, s.keys.Top(1), 1, "what has faded makes room")
}

// TestManyKeys calls with far more keys than are kept, of which one is called often, from several goroutines.
func TestManyKeys(t *testing.T) {
	s := start(t, policies)
	const each, every, workers = 5000, 10, 4
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				name := "hot"
				if i%every != 0 {
					name = strconv.Itoa(w*each + i)
				}
				_, err := s.Check(context.Background(), ratelimit.Request{Attributes: map[string]string{"plan": "free", "tenant": "t", "apiKey": name}})
				if err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	free := s.of("free")
	hot := free.Denied[0]
	require.InDelta(t, each*workers/every-3, hot.Calls, each*workers/32)
	require.Greater(t, hot.Calls-hot.Error, 0.9*each*workers/every)
	require.LessOrEqual(t, len(s.keys.Top(1 << 20)[0].Allowed), 128)
}

func TestCountAllocatesNothing(t *testing.T) {
	s := start(t, policies)
	decisions := churn(t, s, 1000)
	i := 0
	require.Zero(t, testing.AllocsPerRun(5000, func() {
		s.keys.Count(&decisions[i%len(decisions)])
		i++
	}))
}

// churn makes decisions about n distinct keys that can be counted again and again.
func churn(t testing.TB, s service, n int) []ratelimit.Decision {
	t.Helper()
	set := s.Set()
	var list []ratelimit.Decision
	for i := range n {
		key := policy.NewKey(policy.Part{Name: "tenant", Value: "customer-1"}, "free", policy.Part{Name: "apiKey", Value: fmt.Sprintf("ak_%016x", i)})
		p := set.Policies()[0]
		list = append(list, ratelimit.Decision{
			Set: set, Allowed: true, Took: time.Microsecond,
			Hits:   []policy.Hit{{Policy: p, Numbers: &p.Numbers, Key: key}},
			Checks: []ratelimit.Check{{Policy: p, Numbers: &p.Numbers, Op: ratelimit.Take, Result: ratelimit.Result{Outcome: ratelimit.Admitted}}},
		})
	}
	for i := range list {
		s.keys.Count(&list[i])
	}
	return list
}

func BenchmarkCount(b *testing.B) {
	for name, n := range map[string]int{"one key": 1, "twenty keys": 20, "a million keys": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			s := start(b, policies)
			decisions := churn(b, s, n)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := len(name) * 7919
				for pb.Next() {
					s.keys.Count(&decisions[i%n])
					i++
				}
			})
		})
	}
}
