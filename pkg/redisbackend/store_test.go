package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// patient is for tests that are not about time: the machine may be busy.
const patient = 10 * time.Second

// open starts a store that ends with the test.
func open(t testing.TB, o redisbackend.Options) *redisbackend.Store {
	t.Helper()
	s, err := redisbackend.New(o)
	require.NoError(t, err)
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(s.Close)
	return s
}
