package redisbackend_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestFieldClusterFailover(t *testing.T) {
	cluster := shared.Cluster(t)
	reloads := make(chan redisbackend.Reason, 1000)
	s := open(t, redisbackend.Options{URLs: cluster.URLs(), OnReload: func(r redisbackend.Reason) {
		select {
		case reloads <- r:
		default:
		}
	}})
	b := take(key("failover", "p"))
	eventually(t, s, b)
	primary, err := cluster.Primary(t.Context(), b.Key.String())
	require.NoError(t, err)

	promoted, err := cluster.Failover(t.Context(), primary)
	require.NoError(t, err)
	require.Less(t, decidesSoon(t, s, b, 2*time.Second).Remaining, 98.5, "the new primary knows the bucket")

	promoted.Kill()
	began := time.Now()
	eventually(t, s, b)
	t.Logf("decides %v after kill -9 of a primary, at a node timeout of 1 s", time.Since(began))
	require.Equal(t, primary.Addr(), s.Node(b.Key.Bytes()))
	require.NotEmpty(t, reloads)
}

// nodeTimeout changes, for the test, how soon a node counts as dead: else after a second.
func nodeTimeout(t *testing.T, c *redistest.Cluster, timeout time.Duration) {
	t.Helper()
	set := func(d time.Duration) {
		for _, n := range c.Nodes {
			if n.Running() {
				_, err := n.Do(context.Background(), "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
				require.NoError(t, err)
			}
		}
	}
	set(timeout)
	t.Cleanup(func() { set(time.Second) })
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	const password = "of-all-of-them"
	watch := redistest.StartSentinel(t, redistest.Options{Password: password})
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	var urls []string
	for _, address := range watch.SentinelAddrs() {
		urls = append(urls, "redis://"+address+"?master_name="+redistest.SentinelMaster)
	}
	s := open(t, redisbackend.Options{URLs: urls, Timeout: time.Second, PasswordFile: file})
	b := take(key("sentinel", "p"))
	require.InDelta(t, 99, eventually(t, s, b).Remaining, 0.01)
	require.True(t, strings.HasPrefix(s.Node(b.Key.Bytes()), "sentinel:"))
	_, err := watch.Failover(t.Context())
	require.NoError(t, err)
	began := time.Now()
	eventually(t, s, b)
	t.Logf("decides %v after the new primary is agreed on", time.Since(began))

	for _, sentinel := range watch.Sentinels { // they get a password of their own
		_, err := sentinel.Do(t.Context(), "ACL", "SETUSER", "default", ">for-sentinels")
		require.NoError(t, err)
	}
	other := filepath.Join(t.TempDir(), "sentinels")
	require.NoError(t, os.WriteFile(other, []byte("for-sentinels\n"), 0o600))
	without := open(t, redisbackend.Options{URLs: urls, Timeout: time.Second, PasswordFile: file})
	require.Error(t, one(t.Context(), without, b).Err)
	with := open(t, redisbackend.Options{URLs: urls, Timeout: time.Second, PasswordFile: file, SentinelPasswordFile: other})
	eventually(t, with, b)
}
