package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimiter makes a limiter on a store of its own, in memory unless store is given.
func newLimiter(t testing.TB, policies string, store ratelimit.Store) *ratelimit.Limiter {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	if store == nil {
		store = memorybackend.New(memorybackend.Options{})
	}
	l := ratelimit.New(ratelimit.Options{Store: store})
	l.Use(set)
	return l
}

// newMiddleware makes one with a limiter by policies, unless o has one.
func newMiddleware(t testing.TB, policies string, o httplimit.Options) *httplimit.Middleware {
	t.Helper()
	if o.Limiter == nil {
		o.Limiter = newLimiter(t, policies, nil)
	}
	m, err := httplimit.New(o)
	require.NoError(t, err)
	return m
}

// newServer is a handler that says hello, behind a middleware.
func newServer(t testing.TB, policies string, o httplimit.Options) http.Handler {
	t.Helper()
	return newMiddleware(t, policies, o).Handler(http.HandlerFunc(hello))
}

func hello(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) }

// downStore never answers.
type downStore struct{}

func (downStore) Acquire(_ context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	results := make([]ratelimit.Result, len(buckets))
	for i := range results {
		results[i].Err = errors.New("down")
	}
	return results
}
