package redisbackend_test

import (
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{ReplicasEach: -1})
	s := open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient})
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Harness {
			return storetest.Harness{Store: sinceNow(s), ReportsAt: true}
		})
	})
}
