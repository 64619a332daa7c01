package metrics_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// verdicts is a store that answers everything alike.
type verdicts ratelimit.Result

func (v verdicts) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	for range buckets {
		results = append(results, ratelimit.Result(v))
	}
	return results
}

const logins = `  - {id: login, key: [ip, username], algorithm: sliding-log, limit: 10, window: 60s, onStoreFailure: closed}
  - {id: login-per-ip, match: {route: "POST /login"}, key: [ip], algorithm: sliding-log, limit: 100, window: 60s, onStoreFailure: closed}
  - {id: other, key: [tenant], onMissingKey: skip, algorithm: sliding-log, limit: 100, window: 60s, onStoreFailure: open}
`

// door denies logins, as told by the result.
type door struct {
	t       testing.TB
	metrics *metrics.Metrics
	limiter *ratelimit.Limiter
}

func newDoor(t testing.TB, policies string, r ratelimit.Result) *door {
	m := metrics.New(metrics.Options{})
	s := load(t, policies)
	m.Use(s)
	return &door{t, m, ratelimit.New(ratelimit.Options{Store: verdicts(r), Policies: s, OnDecision: m.OnDecision})}
}

var denied = ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromStore}

func (d *door) knock(ip, name string) {
	c := d.limiter.Begin([]byte("edge"))
	defer c.Release()
	c.AddString(0, "ip", ip)
	c.AddString(0, "username", name)
	c.Check(context.Background())
}

// names is the gauge of a policy; -1: there is none.
func (d *door) names(policy string) int {
	for _, line := range exposed(d.t, d.metrics, "denied_usernames") {
		if value, ok := strings.CutPrefix(line, `denied_usernames_per_address{policy="`+policy+`"} `); ok {
			n, err := strconv.Atoi(value)
			require.NoError(d.t, err)
			return n
		}
	}
	return -1
}

// TestManyNamesOfOneAddress: the address with the most names counts, however many others there are.
func TestManyNamesOfOneAddress(t *testing.T) {
	d := newDoor(t, logins, denied)
	require.Zero(t, d.names("login"))
	require.Zero(t, d.names("login-per-ip"))
	require.Equal(t, -1, d.names("other"), "it knows neither")
	for n := range 300 {
		d.knock(fmt.Sprintf("198.51.100.%d", n%250), "alice") // many machines, one name
		d.knock("203.0.113.7", "bob")                         // one machine, one name
	}
	require.Equal(t, 1, d.names("login"))
	for n := range 40 {
		d.knock("203.0.113.7", fmt.Sprintf("user%d", n))
	}
	require.InDelta(t, 41, d.names("login"), 20)
	require.Zero(t, d.names("login-per-ip"), "its route does not match")
	for n := range 5000 {
		d.knock("203.0.113.8", fmt.Sprintf("user%d", n))
	}
	require.Equal(t, 266, d.names("login"))
}

// TestAnotherPolicyDenies: the names count for the policy that denies, be it one that does not count by them.
func TestAnotherPolicyDenies(t *testing.T) {
	const perIP = "  - {id: per-ip, key: [ip], algorithm: sliding-log, limit: 0, window: 60s, onStoreFailure: closed}\n" +
		"  - {id: per-name, key: [username], algorithm: sliding-log, limit: 100, window: 60s, mode: shadow, onStoreFailure: closed}\n"
	d := newDoor(t, strings.Replace(perIP, "limit: 0", "limit: 9", 1), denied)
	for n := range 20 {
		d.knock("203.0.113.7", fmt.Sprintf("user%d", n))
	}
	require.InDelta(t, 20, d.names("per-ip"), 12)
	require.Zero(t, d.names("per-name"), "a shadow denies nobody")
}

// TestOnlyDenialsOfBuckets: neither who is let through counts, nor whom a policy denies because the store fails.
func TestOnlyDenialsOfBuckets(t *testing.T) {
	for name, r := range map[string]ratelimit.Result{
		"admitted": {Outcome: ratelimit.Admitted, Source: ratelimit.FromStore},
		"failed":   {Err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t, logins, r)
			for n := range 40 {
				d.knock("203.0.113.7", fmt.Sprintf("user%d", n))
			}
			require.Zero(t, d.names("login"))
		})
	}
}

// TestForgetsAfterAMinute: the last whole minute counts, too, and nothing before it.
func TestForgetsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, logins, denied)
		d.knock("203.0.113.7", "alice")
		time.Sleep(time.Minute)
		require.Equal(t, 1, d.names("login"))
		d.knock("203.0.113.7", "bob")
		require.Equal(t, 1, d.names("login"), "each minute by itself")
		time.Sleep(2 * time.Minute)
		require.Zero(t, d.names("login"))
	})
}

// TestAFloodHidesNobody: the names of one address are seen among those of many more than there is room for.
func TestAFloodHidesNobody(t *testing.T) {
	d := newDoor(t, logins, denied)
	for n := range 40_000 {
		d.knock(fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255), "alice")
		if n%1000 == 0 {
			d.knock("203.0.113.7", fmt.Sprintf("user%d", n/1000))
		}
	}
	require.InDelta(t, 40, d.names("login"), 20)
}

// TestEstimateOfNames compares with the exact number, over any mix of few addresses.
func TestEstimateOfNames(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := newDoor(t, logins, denied)
		exact := map[string]map[int]bool{}
		most := 0
		for range rapid.IntRange(1, 200).Draw(r, "calls") {
			ip := fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 5).Draw(r, "ip"))
			name := rapid.IntRange(0, 60).Draw(r, "name")
			d.knock(ip, strconv.Itoa(name))
			if exact[ip] == nil {
				exact[ip] = map[int]bool{}
			}
			exact[ip][name] = true
			most = max(most, len(exact[ip]))
		}
		require.InDelta(r, most, d.names("login"), 3+float64(most)*0.7)
	})
}

func BenchmarkDenial(b *testing.B) {
	d := newDoor(b, logins, denied)
	b.ReportAllocs()
	for b.Loop() {
		d.knock("203.0.113.7", "alice")
	}
}
