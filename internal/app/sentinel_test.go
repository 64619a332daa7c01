package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestSentinelPromotes: while sentinels replace the primary every decision is the store's or the policy's mode's, in time; the old primary, which
// says READONLY then, is left for the new one.
func TestSentinelPromotes(t *testing.T) {
	if !long() {
		t.Skip("takes seconds: ENVOY_RLS_LONG=1")
	}
	const timeout = 100 * time.Millisecond
	watch := redistest.StartSentinel(t, redistest.Options{})
	opts, log := options(t, byUser)
	opts.Store, opts.StoreTimeout = "redis", timeout
	for _, address := range watch.SentinelAddrs() {
		opts.Redis.URLs = append(opts.Redis.URLs, "redis://"+address+"?master_name="+redistest.SentinelMaster)
	}
	i := launch(t, opts, log)
	by := func() string {
		began := time.Now()
		answer := i.call("user", "ann", "mode", "open")
		require.Less(t, time.Since(began), timeout+late())
		return source(answer)
	}
	require.Equal(t, "store", by())
	agreed := make(chan error, 1)
	go func() {
		_, err := watch.Failover(t.Context())
		agreed <- err
	}()
	for waiting := true; waiting; {
		select {
		case err := <-agreed:
			require.NoError(t, err)
			waiting = false
		default:
			require.Contains(t, []string{"store", "open"}, by())
			time.Sleep(time.Millisecond)
		}
	}
	began := time.Now()
	require.Eventually(t, func() bool { return by() == "store" }, 10*time.Second, time.Millisecond)
	t.Logf("the store decides %v after the new primary is agreed on", time.Since(began))
	require.Less(t, time.Since(began), time.Second)
	require.Equal(t, 1.0, i.status().Store.Redis.Available)
}
