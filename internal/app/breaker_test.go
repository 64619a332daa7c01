package app_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

const byUser = `domain: edge
policies:
  - {id: open, match: {mode: open}, key: [user], algorithm: token-bucket, capacity: 1000000, refillPerDay: 1000000, onStoreFailure: open}
  - {id: closed, match: {mode: closed}, key: [user], algorithm: token-bucket, capacity: 1000000, refillPerDay: 1000000, onStoreFailure: closed}
`

// breakerTimeout is the store timeout of these tests: a busy machine must not look like a failing shard.
const breakerTimeout = 500 * time.Millisecond

// late is how much longer a call may take: the machine may be busy. In the long form it is taken to do nothing else.
func late() time.Duration {
	if long() {
		return 400 * time.Millisecond
	}
	return 4500 * time.Millisecond
}

// shardedInstance is a service on a cluster, and for each of its primaries a user whose buckets are there.
type shardedInstance struct {
	*instance
	cluster   *redistest.Cluster
	primaries []*redistest.Server
	users     []string
}

func onShards(t *testing.T, cluster *redistest.Cluster) *shardedInstance {
	t.Helper()
	opts, log := options(t, byUser)
	opts.Store, opts.StoreTimeout, opts.Redis.URLs = "redis", breakerTimeout, cluster.URLs()
	s := &shardedInstance{instance: launch(t, opts, log), cluster: cluster}
	var err error
	s.primaries, err = cluster.Primaries(t.Context())
	require.NoError(t, err)
	for _, p := range s.primaries {
		for n := 0; ; n++ {
			user := fmt.Sprint("user", n)
			at, err := cluster.Primary(t.Context(), "rl:{user:"+user+"}:open")
			require.NoError(t, err)
			if at == p {
				s.users = append(s.users, user)
				break
			}
		}
	}
	return s
}

// by says who decided a call, and how long that took.
func (s *shardedInstance) by(shard int, mode string) (by string, took time.Duration) {
	s.t.Helper()
	began := time.Now()
	answer := s.call("user", s.users[shard], "mode", mode)
	took = time.Since(began)
	require.Equal(s.t, source(answer) != "closed", answer.GetOverallCode() == rlsv3.RateLimitResponse_OK)
	return source(answer), took
}

// source is who decided.
func source(answer *rlsv3.RateLimitResponse) string {
	return answer.GetDynamicMetadata().GetFields()["source"].GetStringValue()
}

// node is what the status page says of a node.
func (s *shardedInstance) node(address string) admin.NodeStatus {
	s.t.Helper()
	nodes := s.status().Store.Redis.Nodes
	i := slices.IndexFunc(nodes, func(n admin.NodeStatus) bool { return n.Node == address })
	if i < 0 {
		return admin.NodeStatus{}
	}
	return nodes[i]
}

// outage makes calls to all shards for a while, and enough of them, of which the first fails.
func (s *shardedInstance) outage(lasting time.Duration) {
	s.t.Helper()
	var victims []time.Duration
	for began := time.Now(); time.Since(began) < lasting || len(victims) <= 10; {
		for shard := range s.users {
			by, took := s.by(shard, "open")
			require.Less(s.t, took, breakerTimeout+late())
			if shard > 0 {
				require.Equal(s.t, "store", by, "shard %d is well", shard)
				continue
			}
			require.Equal(s.t, "open", by)
			victims = append(victims, took)
		}
		by, took := s.by(0, "closed")
		require.Equal(s.t, "closed", by)
		require.Less(s.t, took, breakerTimeout+late())
	}
	slices.Sort(victims)
	s.t.Logf("%d calls to the failed shard: half of them in %v, all in %v", len(victims), victims[len(victims)/2], victims[len(victims)-1])
	require.Less(s.t, victims[len(victims)/2], breakerTimeout/2, "most do not wait for it")
}

// nodeTimeout changes how soon a node counts as dead.
func nodeTimeout(t *testing.T, cluster *redistest.Cluster, timeout time.Duration) {
	t.Helper()
	for _, n := range cluster.Nodes {
		_, err := n.Do(t.Context(), "CONFIG", "SET", "cluster-node-timeout", timeout.Milliseconds())
		require.NoError(t, err)
	}
}

// recovers waits until the store decides for the shard that failed: in the long form for a second at most.
func (s *shardedInstance) recovers() {
	s.t.Helper()
	most := patience
	if long() {
		most = time.Second
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between calls, as from a client
		if by, _ := s.by(0, "closed"); by == "store" {
			return
		}
		require.Less(s.t, time.Since(began), most)
	}
}

// TestShardFails: the keys of one shard are decided by their policies' mode, in time, and the others by the store; and everything that tells
// of it says so.
func TestShardFails(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	t.Run("stopped and continued", func(t *testing.T) {
		nodeTimeout(t, cluster, 15*time.Second) // who is stopped is not replaced
		s := onShards(t, cluster)
		victim := s.primaries[0].Addr()
		gauge := `envoy_rls_store_breaker_state{node="` + victim + `"}`
		require.Equal(t, "0", s.metric(gauge))
		require.Equal(t, "1", s.metric("envoy_rls_store_available"))
		require.NoError(t, s.primaries[0].Pause())
		s.outage(800 * time.Millisecond)
		require.NotEqual(t, "0", s.metric(gauge))
		require.Equal(t, "0.75", s.metric("envoy_rls_store_available"))
		require.Equal(t, 0.75, s.status().Store.Redis.Available)
		told := s.node(victim)
		require.NotEqual(t, "closed", told.Breaker)
		require.Contains(t, []string{"timeout", "unsent", "connection", "dial"}, told.Reason, "a connection is given up at the same time")
		require.WithinDuration(t, time.Now(), *told.Since, 10*time.Second)
		code, _ := s.page("/readyz")
		require.Equal(t, http.StatusOK, code)
		require.True(t, s.logged(`level=WARN msg="a node of the store fails; each policy's onStoreFailure decides for it" node=`+victim))

		require.NoError(t, s.primaries[0].Resume())
		s.recovers()
		require.Equal(t, "0", s.metric(gauge))
		require.Equal(t, "closed", s.node(victim).Breaker)
		require.True(t, s.logged(`level=INFO msg="a node of the store works again" node=`+victim))
		require.Contains(t, s.text(), `envoy_rls_unanswered_buckets_total{mode="open",reason="withheld"}`)
	})
	t.Run("killed, and a replica promoted", func(t *testing.T) {
		nodeTimeout(t, cluster, time.Second)
		s := onShards(t, cluster)
		victim := s.primaries[0]
		victim.Kill()
		s.outage(300 * time.Millisecond)
		promotion := make(chan error, 1)
		go func() {
			_, err := cluster.AwaitPromotion(context.Background(), victim)
			promotion <- err
		}()
		for waiting := true; waiting; {
			select {
			case err := <-promotion:
				require.NoError(t, err)
				waiting = false
			default:
				_, took := s.by(0, "open")
				require.Less(t, took, breakerTimeout+late())
				time.Sleep(time.Millisecond)
			}
		}
		s.recovers()
		require.Eventually(t, func() bool {
			s.by(0, "open")
			n := s.node(victim.Addr())
			return n.Node == "" || n.Breaker == "closed"
		}, 5*time.Second, 50*time.Millisecond, "nothing is kept back for the node that is gone")
	})
}

// logged reports whether the log has a text, without showing all of it.
func (s *shardedInstance) logged(text string) bool { return strings.Contains(s.log.String(), text) }

func (s *shardedInstance) text() string {
	_, body := s.page("/metrics")
	return body
}

// TestAnswersBeforeTheCallersDeadline: a call whose own time ends before the store's is answered by the policy's mode, and not by an error.
func TestAnswersBeforeTheCallersDeadline(t *testing.T) {
	server := redistest.StartStandalone(t)
	opts, log := options(t, modes)
	opts.Store, opts.StoreTimeout, opts.Redis.URLs = "redis", 10*time.Second, []string{server.URL()}
	i := launch(t, opts, log)
	require.NoError(t, server.Pause())
	t.Cleanup(func() { require.NoError(t, server.Resume()) }) // before the service stops
	var err error
	for range 5 { // a busy machine may need more than the 5 ms that an answer is given
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		var answer *rlsv3.RateLimitResponse
		answer, err = i.rls.ShouldRateLimit(ctx, request("edge", "remote_address", hostname, "mode", "closed"))
		cancel()
		if err == nil {
			require.Equal(t, "closed", source(answer))
			return
		}
	}
	require.NoError(t, err)
}
