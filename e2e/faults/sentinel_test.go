package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestField_SentinelFailover: sentinels have the replica take over, by request, so that the old primary goes on as a replica and answers READONLY, which
// may not even be felt, and then from a primary that was killed. Each time the store decides again within a second, without a restart.
func TestField_SentinelFailover(t *testing.T) {
	watch := redistest.StartSentinel(t, redistest.Options{})
	var urls []string
	for _, address := range watch.SentinelAddrs() {
		urls = append(urls, "redis://"+address+"?master_name="+redistest.SentinelMaster)
	}
	l := newLab(t, labSetup{urls: urls})
	l.warm()
	for _, fault := range []struct {
		name string
		felt bool
		do   func()
	}{
		{"failover", false, func() {
			_, err := watch.Failover(t.Context())
			require.NoError(t, err)
		}},
		{"kill -9", true, func() {
			old, err := watch.Primary(t.Context())
			require.NoError(t, err)
			require.NoError(t, watch.WaitReady(t.Context()))
			old.Kill()
			_, err = watch.AwaitPromotion(t.Context(), old)
			require.NoError(t, err)
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			r, s := l.suffer(l.start(l.mix), fault.name, fault.do)
			l.show(r)
			l.require(r.CheckAnswered(), r.CheckModes(), r.CheckAgain(s.To, victim, time.Second))
			if fault.felt {
				l.require(r.CheckTrace(s, victim))
			}
			l.requireInTime(r, r.CheckInTime(storeTimeout), r.CheckAlone(s.To, victim, time.Second))
		})
	}
}
