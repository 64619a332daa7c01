package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
)

// TestOneLogLineForATransition: each node has its own, and not more than one a second, should it come and go.
func TestOneLogLineForATransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		a := &App{
			log:     slog.New(slog.NewTextHandler(&text, nil)),
			metrics: metrics.New(metrics.Options{Shared: func() metrics.Shared { return metrics.Shared{} }}),
		}
		tell := a.breakerChanged()
		fails := func(node string) {
			tell(fallback.Transition{Shard: node, From: fallback.StateClosed, To: fallback.StateOpen, Reason: "timeout", Next: 15 * time.Millisecond})
		}
		works := func(node string) {
			tell(fallback.Transition{Shard: node, From: fallback.StateHalfOpen, To: fallback.StateClosed, Reason: "timeout", After: time.Second})
		}
		count := func(s string) int { return strings.Count(text.String(), s) }
		fails("a")
		fails("b")
		works("b")
		require.Equal(t, 2, count("level=WARN"))
		require.Equal(t, 1, count("level=INFO"))
		require.Contains(t, text.String(), `a node of the store works again" node=b reason=timeout after=1s`)
		for range 10 { // closed again at once
			works("a")
			fails("a")
			tell(fallback.Transition{Shard: "a", From: fallback.StateOpen, To: fallback.StateHalfOpen, Reason: "timeout"})
			tell(fallback.Transition{Shard: "a", From: fallback.StateHalfOpen, To: fallback.StateOpen, Reason: "timeout"})
		}
		require.Equal(t, 2, count("level=WARN"))
		require.Equal(t, 2, count("level=INFO"))
		time.Sleep(time.Second)
		fails("a")
		require.Equal(t, 3, count("level=WARN"))
		require.Contains(t, text.String(), "unlogged=10")
		tell(fallback.Transition{Shard: "b", From: fallback.StateOpen, To: fallback.StateClosed, Reason: fallback.ReasonGone})
		require.Contains(t, text.String(), "others have its buckets")
	})
}
