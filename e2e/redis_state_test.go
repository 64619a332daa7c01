package e2e_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// shared is the cluster of 4 primaries and 4 replicas that tests use one after the other: a start takes seconds. testMain stops it.
var shared struct {
	mu      sync.Mutex
	cluster *redistest.Cluster
	dir     string
}

// useCluster gives a test the shared cluster, empty, and checks the lifetimes of what the test leaves in it. Tests that use it are not parallel.
// policies are the text of the policy file that the test ends with.
func useCluster(t *testing.T, policies string) *redistest.Cluster {
	t.Helper()
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		t.Skip(err)
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if shared.cluster == nil {
		require.NoError(t, startSharedCluster(ctx))
	}
	cluster := shared.cluster
	require.NoError(t, cluster.WaitReady(ctx))
	for _, primary := range primaries(t, cluster) {
		_, err := primary.Do(ctx, "FLUSHALL")
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			requireLifetimes(t, parse(t, policies), cluster.URLs(), primaries(t, cluster)...)
		}
	})
	return cluster
}

// startSharedCluster starts a cluster that outlives the test that is the first to need it, and with it that test's directory. No node is given
// up for dead because the machine is busy.
func startSharedCluster(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "envoy-rls-e2e-redis-"); err != nil {
		return err
	}
	shared.cluster, err = redistest.NewCluster(ctx, redistest.Options{Primaries: 4, ReplicasEach: 1, NodeTimeout: 5 * time.Second, Dir: shared.dir})
	return err
}

func stopSharedCluster() {
	if shared.cluster != nil {
		shared.cluster.Close()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}

func primaries(t *testing.T, cluster *redistest.Cluster) []*redistest.Server {
	t.Helper()
	nodes, err := cluster.Primaries(context.Background())
	require.NoError(t, err)
	require.Len(t, nodes, 4)
	return nodes
}

func parse(t *testing.T, policies string) *policy.Set {
	t.Helper()
	file, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return set
}

// keyForm is the form of a key, whose values in these tests need no escape.
var (
	keyForm = regexp.MustCompile(`^rl:\{([a-z]+):([^}]*)\}:([^:]+)((?::[a-z]+:[^:]+)*)$`)
	longer  = map[string]string{"t": "tenant", "ip": "ip", "u": "username", "k": "apiKey"}
)

// bucketOf finds the bucket of a key.
func bucketOf(set *policy.Set, name string) (ratelimit.Bucket, error) {
	parts := keyForm.FindStringSubmatch(name)
	if parts == nil {
		return ratelimit.Bucket{}, fmt.Errorf("key %q is not of the service", name)
	}
	var rest []policy.Part
	for words := strings.Split(parts[4], ":"); len(words) > 2; words = words[2:] {
		rest = append(rest, policy.Part{Name: longer[words[1]], Value: words[2]})
	}
	key := policy.NewKey(policy.Part{Name: longer[parts[1]], Value: parts[2]}, parts[3], rest...)
	if key.String() != name {
		return ratelimit.Bucket{}, fmt.Errorf("key %q read as %q", name, key)
	}
	for _, p := range set.Policies() {
		if p.ID == parts[3] {
			return ratelimit.Bucket{Key: key, Limits: p.Numbers.Limits, Op: ratelimit.Peek, Cost: 1}, nil
		}
	}
	return ratelimit.Bucket{}, fmt.Errorf("key %q is of no policy", name)
}

// openStore opens a store beside the service, to look at what it left.
func openStore(t *testing.T, urls []string) *redisbackend.Store {
	t.Helper()
	s, err := redisbackend.New(redisbackend.Options{URLs: urls, Timeout: patience})
	require.NoError(t, err)
	require.NoError(t, s.Start(context.Background()))
	return s
}

// look reads a bucket without changing it.
func look(t *testing.T, s *redisbackend.Store, b ratelimit.Bucket) ratelimit.Result {
	t.Helper()
	b.Op, b.Cost = ratelimit.Peek, 1
	r := s.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0]
	require.NoError(t, r.Err)
	return r
}

// toFull is how long a bucket in state r needs to be full again, at most.
func toFull(l algorithm.Limits, r ratelimit.Result) time.Duration {
	if l.Kind == algorithm.SlidingLog {
		return time.Duration(l.Window) * time.Microsecond
	}
	return time.Duration((l.Capacity-r.Remaining)/l.Rate) * time.Microsecond
}

// By keys that begin so the service's instances know of each other. They end when none has told of itself for as long as this.
const (
	instancesKey  = "rl:{instances}"
	instancesLife = 12 * time.Second
)

// requireLifetimes checks that every key will end, and a bucket's no later than a second after it is full again.
func requireLifetimes(t *testing.T, set *policy.Set, urls []string, nodes ...*redistest.Server) {
	t.Helper()
	s := openStore(t, urls)
	defer s.Close()
	for _, node := range nodes {
		names, err := node.Do(context.Background(), "KEYS", "*")
		require.NoError(t, err)
		needs := map[string]time.Duration{}
		for _, name := range names.([]any) {
			if strings.HasPrefix(name.(string), instancesKey) {
				needs[name.(string)] = instancesLife
				continue
			}
			b, err := bucketOf(set, name.(string))
			require.NoError(t, err)
			needs[name.(string)] = toFull(b.Limits, look(t, s, b))
		}
		lives, err := node.Do(context.Background(), "EVAL", `local lives = {}
			for i, key in ipairs(redis.call('KEYS', '*')) do lives[2 * i - 1], lives[2 * i] = key, redis.call('PTTL', key) end
			return lives`, 0)
		require.NoError(t, err)
		for pairs := lives.([]any); len(pairs) > 0; pairs = pairs[2:] {
			life := time.Duration(pairs[1].(int64)) * time.Millisecond
			require.GreaterOrEqual(t, life, time.Duration(0), "%v at %s has no lifetime", pairs[0], node.Addr())
			require.LessOrEqual(t, life, needs[pairs[0].(string)]+time.Second, "%v at %s", pairs[0], node.Addr())
		}
	}
}

// tenantsApart finds a tenant for each primary: key(tenant), the key of one of its buckets, is there.
func tenantsApart(t *testing.T, cluster *redistest.Cluster, key func(tenant string) policy.Key, prefix string) map[*redistest.Server]string {
	t.Helper()
	tenants := map[*redistest.Server]string{}
	for n := 0; len(tenants) < 4; n++ {
		require.Less(t, n, 1000)
		tenant := fmt.Sprint(prefix, n)
		primary, err := cluster.Primary(t.Context(), key(tenant).String())
		require.NoError(t, err)
		if tenants[primary] == "" {
			tenants[primary] = tenant
		}
	}
	return tenants
}

// ofTenant is the key of a policy that counts by tenant.
func ofTenant(policyID string) func(string) policy.Key {
	return func(tenant string) policy.Key {
		return policy.NewKey(policy.Part{Name: "tenant", Value: tenant}, policyID)
	}
}
