package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// keysOf is a store that notes keys, by policy, and admits everything.
type keysOf struct{ keys []string }

func (k *keysOf) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	k.keys = k.keys[:0]
	for _, b := range buckets {
		k.keys = append(k.keys, b.Key.String())
		results = append(results, ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore})
	}
	return results
}

// decide makes one request pass a limiter and returns the keys that it made.
func decide(l *ratelimit.Limiter, store *keysOf, entries ...string) []string {
	r := l.Begin([]byte("edge"))
	defer r.Release()
	for n := 0; n < len(entries); n += 2 {
		r.Add(0, []byte(entries[n]), []byte(entries[n+1]))
	}
	r.Check(context.Background())
	return store.keys
}

const perTenant = `
domain: edge
policies:
  - {id: api, key: [apiKey], hashTag: tenant, onMissingKey: skip, algorithm: token-bucket, capacity: 10, refillPerMinute: 1, onStoreFailure: open}
  - {id: ceiling, key: [tenant], algorithm: token-bucket, capacity: 1000, refillPerDay: 1000, onStoreFailure: open}
`

// TestTenantsSpreadEvenly: the keys of 100,000 tenants are spread over four primaries within 5 % of even, whatever tenants are called.
func TestTenantsSpreadEvenly(t *testing.T) {
	t.Parallel()
	store := &keysOf{}
	l := ratelimit.New(ratelimit.Options{Store: store})
	l.Use(parse(t, perTenant))
	for name, tenant := range map[string]func(n int) string{
		"numbers":          func(n int) string { return fmt.Sprint(n) },
		"names":            func(n int) string { return fmt.Sprintf("tenant-%05d", n) },
		"hexadecimal":      func(int) string { return fmt.Sprintf("%016x", rand.Uint64()) },
		"host names":       func(n int) string { return fmt.Sprintf("shop-%d.example.com", n) },
		"names in braces":  func(n int) string { return fmt.Sprintf("{x}%d", n) },
		"too long to show": func(n int) string { return strings.Repeat("long", 30) + fmt.Sprint(n) },
	} {
		t.Run(name, func(t *testing.T) {
			const tenants, nodes = 100_000, 4
			var of [nodes]int
			for n := range tenants {
				keys := decide(l, store, "tenant", tenant(n), "api_key", "k")
				require.Len(t, keys, 2)
				require.Equal(t, harness.Slot(keys[0]), harness.Slot(keys[1]), "one tenant, one slot: %q", keys)
				of[harness.Slot(keys[1])*nodes/16384]++
			}
			t.Logf("%v", of)
			for node, n := range of {
				require.InEpsilon(t, tenants/nodes, n, 0.05, "primary %d", node)
			}
		})
	}
}

// TestValuesCannotSteerASlot: whatever clients send, a key has one pair of braces, right after its prefix, around what its policy says.
func TestValuesCannotSteerASlot(t *testing.T) {
	t.Parallel()
	store := &keysOf{}
	l := ratelimit.New(ratelimit.Options{Store: store})
	l.Use(parse(t, perTenant))
	nasty := rapid.StringOf(rapid.RuneFrom([]rune("{}%:#a \x00\n€")))
	rapid.Check(t, func(t *rapid.T) {
		tenant, apiKey, other := nasty.Draw(t, "tenant"), nasty.Draw(t, "apiKey"), nasty.Draw(t, "another apiKey")
		keys := append([]string(nil), decide(l, store, "tenant", tenant, "api_key", apiKey)...)
		require.Len(t, keys, 2)
		for _, key := range keys {
			require.True(t, strings.HasPrefix(key, "rl:{t:"), key)
			require.Equal(t, 1, strings.Count(key, "{"), key)
			require.Equal(t, 1, strings.Count(key, "}"), key)
		}
		require.Equal(t, harness.Slot(keys[0]), harness.Slot(keys[1]), "%q", keys)
		again := decide(l, store, "tenant", tenant, "api_key", other)
		require.Equal(t, harness.Slot(keys[0]), harness.Slot(again[0]), "what a client sends beside its tenant decided the slot: %q", again)
	})
}

// TestTenantsSpreadOverPrimaries does with real calls what TestTenantsSpreadEvenly reckons: a tenth as many in the short form, whose chance of
// being more uneven than is asked for is below one in a million.
func TestTenantsSpreadOverPrimaries(t *testing.T) {
	cluster := useCluster(t, perTenant)
	f := startFleet(t, fleetSetup{policies: perTenant, instances: 1, urls: cluster.URLs(), timeout: 10 * time.Second})
	tenants, within := 2000, 0.3
	if long() {
		tenants, within = 100_000, 0.05
	}
	o, next := &outcome{}, make(chan int)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := range next {
				o.call(f, n, harness.Attributes("tenant", fmt.Sprint("tenant-", n)))
			}
		})
	}
	for n := range tenants {
		next <- n
	}
	close(next)
	all.Wait()
	require.Equal(t, fmt.Sprint(tenants, " allowed, 0 denied"), o.String())
	require.Zero(t, f.unanswered(t))
	slot, err := cluster.Slot(t.Context(), "rl:{t:tenant-1}:ceiling")
	require.NoError(t, err)
	require.Equal(t, slot, harness.Slot("rl:{t:tenant-1}:ceiling"))
	for i, primary := range primaries(t, cluster) {
		size, err := primary.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		t.Logf("primary %d has %v of %d keys", i, size, tenants)
		require.InEpsilon(t, tenants/4, size, within)
	}
}

const (
	fast = `
domain: edge
policies:
  - {id: rate, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerMinute: 100, onStoreFailure: closed}
`
	slow = `
domain: edge
policies:
  - {id: rate, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 100, onStoreFailure: closed}
`
)

// TestField_DrainedAndReloadedToAPerDayRate: a bucket that is drained and then refills by the day admits at most one call in the next two minutes.
// The long form waits for them, the short one moves the server's clock.
func TestField_DrainedAndReloadedToAPerDayRate(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t, redistest.Options{MovingClock: !long()})
	f := startFleet(t, fleetSetup{policies: fast, urls: []string{server.URL()}, timeout: 2 * time.Second})
	request := harness.Attributes("tenant", "acme")
	drained := false
	for n := 0; n < 10_000 && !drained; n++ {
		allowed, err := f.call(0, request)
		require.NoError(t, err)
		drained = !allowed
	}
	require.True(t, drained)
	f.reload(t, slow)
	o := &outcome{}
	for n := range 13 {
		o.call(f, n, request)
		switch {
		case long():
			time.Sleep(10 * time.Second)
		case n < 12:
			require.NoError(t, server.SetClock(time.Duration(n+1)*10*time.Second))
			// Other numbers, since what is known of the denial would answer for a second.
			f.reload(t, strings.Replace(slow, "PerDay: 100", fmt.Sprint("PerDay: ", 100+(n+1)%2), 1))
		}
	}
	t.Logf("%v in two minutes", o)
	require.LessOrEqual(t, o.allowed, 1)
	require.Zero(t, o.errors)
	require.Zero(t, f.unanswered(t))
	asked := f.sum(t, "envoy_rls_decisions_total", `outcome="denied"`, `source="store"`)
	require.GreaterOrEqual(t, asked, 12, "the store decided")
	requireLifetimes(t, parse(t, slow), []string{server.URL()}, server)
}

// TestLimiterKeysAreThoseOfTheService: the checks of keys here read them as the service makes them.
func TestLimiterKeysAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	set := parse(t, loginTrio)
	store := &keysOf{}
	l := ratelimit.New(ratelimit.Options{Store: store})
	l.Use(set)
	keys := decide(l, store, "route", "POST /auth/login", "remote_address", "192.0.2.7", "username", "ann")
	require.Equal(t, []string{"rl:{ip:192.0.2.7}:login:u:ann", "rl:{u:ann}:per-username", "rl:{ip:192.0.2.7}:per-ip"}, keys)
	for i, key := range keys {
		b, err := bucketOf(set, key)
		require.NoError(t, err)
		require.Equal(t, set.Policies()[i].Numbers.Limits, b.Limits)
	}
	_, err := bucketOf(set, policy.NewKey(policy.Part{Name: "ip", Value: "x"}, "none").String())
	require.Error(t, err)
}
