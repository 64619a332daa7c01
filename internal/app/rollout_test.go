package app_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// onEachStore runs a test on memory, on one Redis and, in the long form, on a cluster.
func onEachStore(t *testing.T, policies string, test func(*testing.T, *instance, *redistest.Server)) {
	t.Run("memory", func(t *testing.T) {
		opts, log := options(t, policies)
		opts.MaxBuckets = 10_000 // none has to be forgotten
		test(t, launch(t, opts, log), nil)
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.StartStandalone(t)
		test(t, onRedis(t, policies, server.URL()), server)
	})
	t.Run("cluster", func(t *testing.T) {
		if !long() {
			t.Skip("takes seconds: ENVOY_RLS_LONG=1")
		}
		cluster := redistest.StartCluster(t, redistest.Options{Primaries: 3, ReplicasEach: -1, NodeTimeout: time.Minute})
		test(t, onRedis(t, policies, cluster.URLs()...), nil)
	})
}

// versioned are policies in which every number tells the version. For the same request, a and b count in slots of their own on a cluster; whose
// is only for the exact counts of a test. The algorithm of b is another one in every second version.
func versioned(version int, whose string) string {
	b := fmt.Sprintf("algorithm: token-bucket, capacity: %d, refillPerMinute: 60000", 500_000+version)
	if version%2 == 1 {
		b = fmt.Sprintf("algorithm: sliding-log, limit: %d, window: 1s", 500_000+version)
	}
	return fmt.Sprintf(`domain: edge
policies:
  - {id: a, match: {ip: "*"}, key: [ip], algorithm: token-bucket, capacity: %d, refillPerMinute: 60000, onStoreFailure: closed}
  - {id: b, match: {user: "*"}, key: [user], %s, onStoreFailure: closed}
  - {id: whose, match: {who: "*"}, key: [who], %s, onStoreFailure: closed}
`, 100_000+version, b, whose)
}

// traffic are calls at a steady rate until it is stopped.
type traffic struct {
	t         *testing.T
	i         *instance
	stop      chan struct{}
	callers   sync.WaitGroup
	began     time.Time
	decisions atomic.Int64
	mixed     atomic.Int64
	versions  sync.Map // those that decided
}

// startTraffic begins to call 2,000 times a second.
func startTraffic(t *testing.T, i *instance) *traffic {
	tr := &traffic{t: t, i: i, stop: make(chan struct{}), began: time.Now()}
	const callers, rate = 20, 2000
	for c := range callers {
		tr.callers.Go(func() {
			for n := 0; ; n++ {
				due := tr.began.Add(time.Duration(n*callers+c) * time.Second / rate)
				pause := time.NewTimer(time.Until(due))
				select {
				case <-tr.stop:
					pause.Stop()
					return
				case <-pause.C:
				}
				if !tr.call(n*callers + c) {
					return
				}
			}
		})
	}
	return tr
}

var quotas = regexp.MustCompile(`"([ab])";q=(\d+)`)

// call makes one call, and checks that both policies that decided about it are of one version.
func (tr *traffic) call(n int) bool {
	client := strconv.Itoa(n % 500)
	answer, err := tr.i.rls.ShouldRateLimit(tr.t.Context(), request("edge", "remote_address", "10.0.0."+strconv.Itoa(n%200), "user", "user-"+client))
	if !assert.NoError(tr.t, err) {
		return false
	}
	versions := map[string]int{}
	for _, m := range quotas.FindAllStringSubmatch(header(answer, "RateLimit-Policy"), -1) {
		q, err := strconv.Atoi(m[2])
		assert.NoError(tr.t, err)
		versions[m[1]] = q % 100_000
	}
	if len(versions) != 2 || versions["a"] != versions["b"] {
		tr.mixed.Add(1)
	}
	tr.versions.Store(versions["a"], true)
	tr.decisions.Add(1)
	return assert.Equal(tr.t, rlsv3.RateLimitResponse_OK, answer.GetOverallCode(), "there is room for all; %v", answer)
}

// await waits for some decisions to be made.
func (tr *traffic) await(n int64) {
	tr.t.Helper()
	require.Eventually(tr.t, func() bool { return tr.decisions.Load() >= n }, patience, time.Millisecond)
}

// end stops the calls and tells how many decisions were made of two versions, and by how many versions in all.
func (tr *traffic) end() (mixed int64, versions int) {
	close(tr.stop)
	tr.callers.Wait()
	tr.versions.Range(func(any, any) bool { versions++; return true })
	took := time.Since(tr.began)
	tr.t.Logf("%d decisions in %v (%.0f a second) by %d versions", tr.decisions.Load(), took.Round(time.Millisecond),
		float64(tr.decisions.Load())/took.Seconds(), versions)
	return tr.mixed.Load(), versions
}

const (
	tokens    = "algorithm: token-bucket, capacity: %d, refillPerDay: 1"
	logOfADay = "algorithm: sliding-log, limit: %d, window: 24h"
)

// TestRolloutUnderLoad: while 2,000 decisions a second are made, a lower capacity cuts a bucket at its next call, a higher one adds nothing, a new
// algorithm keeps the share that is spent, no call fails, and none is decided by parts of two versions.
func TestRolloutUnderLoad(t *testing.T) {
	version := 0
	next := func(i *instance, format string, n int) {
		version++
		require.NoError(t, i.reload(versioned(version, fmt.Sprintf(format, n))))
	}
	rounds := 3
	if long() {
		rounds = 200
	}
	onEachStore(t, versioned(0, fmt.Sprintf(tokens, 1000)), func(t *testing.T, i *instance, _ *redistest.Server) {
		tr := startTraffic(t, i)
		for round := range rounds {
			who := fmt.Sprint("somebody ", round)
			next(i, tokens, 1000)
			require.Equal(t, 1, i.admitted(1, "who", who))
			next(i, tokens, 10)
			require.Equal(t, 10, i.admitted(15, "who", who), "a lower capacity cuts")
			next(i, tokens, 1000)
			require.Zero(t, i.admitted(5, "who", who), "a higher one adds nothing")

			other := fmt.Sprint("another ", round)
			next(i, tokens, 10)
			require.Equal(t, 4, i.admitted(4, "who", other))
			next(i, logOfADay, 20)
			require.Equal(t, 12, i.admitted(20, "who", other), "4 of 10 are 8 of 20")
			next(i, tokens, 10)
			require.Zero(t, i.admitted(5, "who", other))
		}
		tr.await(100)
		mixed, versions := tr.end()
		require.Zero(t, mixed)
		require.Greater(t, versions, 2)
		_, metrics := i.page("/metrics")
		require.NotContains(t, metrics, "envoy_rls_unanswered_buckets_total{")
		require.NotContains(t, metrics, `envoy_rls_grpc_errors_total{code="Unknown"}`)
	})
}

// TestField_500ReloadsUnderLoad: goroutines, file descriptors and Redis connections stay within 5 of where they were.
func TestField_500ReloadsUnderLoad(t *testing.T) {
	reloads := 50
	if long() {
		reloads = 500
	}
	onEachStore(t, versioned(0, fmt.Sprintf(tokens, 1)), func(t *testing.T, i *instance, server *redistest.Server) {
		connections := func() int64 {
			if server == nil {
				return 0
			}
			info, err := server.Info(t.Context(), "clients")
			require.NoError(t, err)
			n, err := strconv.ParseInt(info["connected_clients"], 10, 64)
			require.NoError(t, err)
			return n
		}
		calm := func(work func()) { // what is open differs from moment to moment while calls are made
			tr := startTraffic(t, i)
			tr.await(100)
			work()
			mixed, _ := tr.end()
			require.Zero(t, mixed)
		}
		calm(func() { require.NoError(t, i.reload(versioned(1, fmt.Sprintf(tokens, 1)))) })
		goroutines, files, clients := runtime.NumGoroutine(), openDescriptors(t), connections()
		calm(func() {
			for n := range reloads {
				require.NoError(t, i.reload(versioned(2+n, fmt.Sprintf(tokens, 1))))
			}
		})
		require.Eventually(t, func() bool {
			return runtime.NumGoroutine() <= goroutines+5 && openDescriptors(t) <= files+5 && connections() <= clients+5
		}, patience, 10*time.Millisecond, "goroutines %d, file descriptors %d, Redis connections %d before", goroutines, files, clients)
		require.Equal(t, strconv.Itoa(reloads+2), i.metric(`envoy_rls_reload_total{result="success"}`))
	})
}

// TestShadowIsCountedBesideTheEnforced: what a shadow policy would have denied is counted beside what the enforced one decided, and changes nothing;
// enforced later, it starts with full buckets.
func TestShadowIsCountedBesideTheEnforced(t *testing.T) {
	policies := func(mode string) string {
		return "domain: edge\npolicies:\n" +
			"  - {id: now, key: [ip], algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: open}\n" +
			"  - {id: next, key: [ip], algorithm: token-bucket, capacity: 2, refillPerDay: 1, onStoreFailure: open, mode: " + mode + "}\n"
	}
	onEachStore(t, policies("shadow"), func(t *testing.T, i *instance, _ *redistest.Server) {
		decided := func(policy, outcome string) string {
			return i.metric(fmt.Sprintf(`envoy_rls_decisions_total{outcome=%q,policy=%q,source="store"}`, outcome, policy))
		}
		require.Equal(t, 4, i.admitted(4, "ip", hostname))
		require.Equal(t, []string{"4", "0"}, []string{decided("now", "allowed"), decided("now", "denied")})
		require.Equal(t, []string{"2", "2"}, []string{decided("next", "shadow-allowed"), decided("next", "shadow-denied")})
		require.NotContains(t, header(i.call("ip", "203.0.113.99"), "RateLimit-Policy"), "next")
		require.NoError(t, i.reload(policies("enforce")))
		require.Equal(t, 1, i.admitted(5, "ip", hostname), "one is left of the policy that was enforced all along")
		require.Equal(t, 2, i.admitted(5, "ip", "203.0.113.8"))
	})
}
