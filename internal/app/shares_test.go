package app_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

const shares = `domain: edge
policies:
  - {id: local, match: {mode: local}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
  - {id: kept, match: {mode: kept}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local, reconcile: false}
  - {id: log, match: {mode: log}, key: [tenant], algorithm: sliding-log, limit: 100, window: 30d, onStoreFailure: local}
  - {id: login, match: {mode: closed}, key: [tenant], algorithm: sliding-log, limit: 100, window: 30d, onStoreFailure: closed}
`

// sharing starts four instances on one Redis, which know each other.
func sharing(t *testing.T, server *redistest.Server, timeout time.Duration) []*instance {
	t.Helper()
	all := make([]*instance, 4)
	for n := range all {
		opts, log := options(t, shares)
		opts.Store, opts.StoreTimeout, opts.Redis.URLs = "redis", timeout, []string{server.URL()}
		all[n] = newInstance(t, opts, log)
		require.NoError(t, all[n].Start(t.Context()))
		all[n].connect()
		t.Cleanup(func() { require.NoError(t, all[n].Stop(context.Background())) })
	}
	for _, i := range all {
		require.Eventually(t, func() bool { return i.metric("envoy_rls_instances") == "4" }, 10*time.Second, 20*time.Millisecond)
		require.Equal(t, 4, i.status().Store.Redis.Instances)
	}
	return all
}

// left is what an answer says that the bucket has left.
func left(t *testing.T, answer *rlsv3.RateLimitResponse) int {
	t.Helper()
	_, text, _ := strings.Cut(header(answer, "RateLimit"), "r=")
	text, _, _ = strings.Cut(text, ";")
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// TestField_LocalShares: with Redis killed, a key that nobody has used is admitted its limit by all instances together, one that was seen what
// each has seen of it, a closed login nothing. Redis is charged for it when it is back.
func TestField_LocalShares(t *testing.T) {
	server := redistest.StartStandalone(t)
	all := sharing(t, server, 2*time.Second)
	most := map[string]int{}
	for _, mode := range []string{"local", "kept", "log"} {
		for n, spent := range []int{50, 7, 13, 1} {
			var answer *rlsv3.RateLimitResponse
			for range spent {
				answer = all[n].call("tenant", "seen", "mode", mode)
			}
			most[mode] += int(math.Floor(float64(left(t, answer)) / 4))
		}
	}
	server.Kill()
	admitted := func(mode, tenant string) (sum int) {
		for _, i := range all {
			sum += i.admitted(30, "tenant", tenant, "mode", mode)
		}
		return sum
	}
	for mode, most := range most {
		unseen, seen := admitted(mode, "unseen"), admitted(mode, "seen")
		t.Logf("%s: %d of a key that nobody had used, at most 100; %d of one that was seen, at most %d", mode, unseen, seen, most)
		require.Equal(t, 100, unseen)
		require.Equal(t, most, seen)
	}
	require.Zero(t, admitted("closed", "login"))
	denied := header(all[0].call("tenant", "unseen", "mode", "local"), "RateLimit")
	wait, none := strings.CutPrefix(denied, `"local";r=0;t=`)
	require.True(t, none, denied)
	seconds, err := strconv.Atoi(wait)
	require.NoError(t, err)
	require.InDelta(t, 4*24*3600, seconds, 60, "a quarter of the refill: four days for a token, less what has passed since")

	require.NoError(t, server.Restart(t.Context())) // and empty
	for _, i := range all {
		require.Eventually(t, func() bool { return i.metric("envoy_rls_local_owing_buckets") == "0" }, 20*time.Second, 20*time.Millisecond)
	}
	peek := func(mode, tenant string) int {
		var answer *rlsv3.RateLimitResponse
		require.Eventually(t, func() bool {
			answer = all[0].call("tenant", tenant, "mode", mode)
			return answer.GetDynamicMetadata().GetFields()["source"].GetStringValue() == "store"
		}, 10*time.Second, 20*time.Millisecond)
		return left(t, answer)
	}
	require.Equal(t, 0, peek("local", "unseen"))
	require.Equal(t, 100-most["local"]-1, peek("local", "seen"))
	require.Equal(t, 100-most["log"]-1, peek("log", "seen"))
	require.Equal(t, 99, peek("kept", "unseen"))
}

// TestField_LocalSharesFlapping: however often Redis hangs and goes on, the instances admit one limit, and Redis another.
func TestField_LocalSharesFlapping(t *testing.T) {
	up, rounds := 300*time.Millisecond, 4
	if long() {
		up, rounds = 2*time.Second, 15
	}
	server := redistest.StartStandalone(t)
	all := sharing(t, server, 20*time.Millisecond)
	total := 0
	hammer := func(until time.Time) {
		for n := 0; n < len(all) || time.Now().Before(until); n++ { // each is called
			total += all[n%len(all)].admitted(1, "tenant", "acme", "mode", "local")
		}
	}
	for range rounds {
		require.NoError(t, server.Pause())
		hammer(time.Now().Add(up))
		require.NoError(t, server.Resume())
		hammer(time.Now().Add(up))
	}
	lost := 0 // at most: calls that Redis may have carried out, and whose requests may have been denied
	for _, i := range all {
		for _, result := range []string{"timeout", "connection"} {
			n, _ := strconv.Atoi(i.metric(`envoy_rls_store_calls_total{node="` + server.Addr() + `",result="` + result + `"}`))
			lost += n
		}
	}
	t.Logf("%d admitted, at most 200; %d may have been lost", total, lost)
	require.LessOrEqual(t, total, 200)
	require.GreaterOrEqual(t, total+lost, 100)
	for n, i := range all {
		require.NotEqual(t, "", i.metric(`envoy_rls_decisions_total{outcome="allowed",policy="local",source="local"}`), "instance %d", n)
	}
}

// TestField_LocalSharesOfAColdStart: without Redis an instance counts on as many as it was told of, and says so if it was told of none.
func TestField_LocalSharesOfAColdStart(t *testing.T) {
	server := redistest.StartStandalone(t)
	server.Kill()
	for instances, want := range map[int]int{0: 100, 1: 100, 3: 33, 4: 25, 101: 0} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			opts, log := options(t, shares)
			opts.Store, opts.Redis.URLs, opts.Instances = "redis", []string{server.URL()}, instances
			i := newInstance(t, opts, log)
			require.NoError(t, i.Start(t.Context()))
			i.connect()
			t.Cleanup(func() { require.NoError(t, i.Stop(context.Background())) })
			require.Equal(t, want, i.admitted(110, "tenant", "acme", "mode", "local"))
			require.Equal(t, fmt.Sprint(max(instances, 1)), i.metric("envoy_rls_instances"))
			warnings := strings.Count(log.String(), "takes itself for the only one")
			require.Equal(t, map[bool]int{true: 1}[instances == 0], warnings)
		})
	}
	for _, instances := range []int{-1, 1025} {
		opts, _ := options(t, shares)
		opts.Store, opts.Redis.URLs, opts.Instances = "redis", []string{server.URL()}, instances
		_, err := app.New(opts)
		require.ErrorContains(t, err, "instances: ")
	}
	opts, _ := options(t, shares)
	opts.Instances = 2
	_, err := app.New(opts)
	require.ErrorContains(t, err, "instances: the store is memory; want store redis")
}
