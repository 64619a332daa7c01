package redisbackend_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// TestShadowBesideAFailure: a request is denied by the mode of a policy whose bucket, in a slot of its own, cannot be read. The shadow in the
// slot of an enforced bucket that admitted is given back with it, and the one that was only looked at is not.
func TestShadowBesideAFailure(t *testing.T) {
	cluster := shared.Cluster(t)
	s := open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient})
	keys := keysApart(t, s, "shadow beside", 3)
	enforced, elsewhere, spoilt := take(keys[0]), take(keys[1]), take(keys[2])
	beside := take(key("shadow beside0", "trial")) // the first of keysApart
	require.Equal(t, redisbackend.Slot(keys[0].Bytes()), redisbackend.Slot(beside.Key.Bytes()))
	beside.Shadow, elsewhere.Shadow, spoilt.OnFailure = true, true, policy.Closed
	one(t.Context(), s, elsewhere)

	owner, err := cluster.Primary(t.Context(), keys[2].String())
	require.NoError(t, err)
	c := redis.NewClient(&redis.Options{Addr: owner.Addr(), DisableIdentity: true})
	defer c.Close()
	require.NoError(t, c.LPush(t.Context(), keys[2].String(), "x").Err())
	defer c.Del(t.Context(), keys[2].String())

	undone := 0
	f := fallback.New(fallback.Options{Store: s, Shard: s.Node, OnUndo: func(_ *ratelimit.Bucket, err error) {
		require.NoError(t, err)
		undone++
	}})
	r := f.Acquire(t.Context(), []ratelimit.Bucket{enforced, beside, elsewhere, spoilt}, nil)
	f.Close()
	require.Equal(t, ratelimit.FromClosed, r[3].Source)
	require.Equal(t, 2, undone)
	for i, want := range map[*ratelimit.Bucket]float64{&enforced: 100, &beside: 100, &elsewhere: 99} {
		i.Op = ratelimit.Peek
		require.InDelta(t, want, one(t.Context(), s, *i).Remaining, 0.01, i.Key.String())
	}
}
