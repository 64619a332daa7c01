package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
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

func TestConformance(t *testing.T) {
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient})
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{Store: s, AcrossTags: true, ReportsAt: true}
	})
}
