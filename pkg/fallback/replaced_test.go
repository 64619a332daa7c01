package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
)

// TestReplaced: what an operator has done to a bucket of the store counts for the share, too.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		ask(s, cost(b, 90))
		h.set(true, false)
		require.Equal(t, 2, drain(t, s, b), "a quarter of the 10 that are left")
		s.Replaced(b.Key, 100)
		require.Equal(t, int64(0), s.Debts().Buckets, "the store is not charged for what was before")
		require.Equal(t, 25, drain(t, s, b))
		s.Replaced(b.Key, 40)
		require.Equal(t, 10, drain(t, s, b))
		h.set(false, false)
		time.Sleep(3 * time.Second)
		require.Equal(t, uint64(10), h.forcedOf(b))
	})
}

// TestRefunded: what was admitted locally still counts.
func TestRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		ask(s, cost(b, 90))
		s.Refunded(b.Key, 50)
		h.set(true, false)
		require.Equal(t, 12, drain(t, s, b), "a quarter of the 50")
		s.Refunded(b.Key, 100)
		require.Zero(t, drain(t, s, b))
		require.Equal(t, int64(1), s.Debts().Buckets)
	})
}

func TestReplacedWithoutAShare(t *testing.T) {
	s := fallback.New(fallback.Options{Store: newHub()})
	t.Cleanup(s.Close)
	s.Replaced(local("a", daily).Key, 1)
	s.Refunded(local("a", daily).Key, 1)
}
