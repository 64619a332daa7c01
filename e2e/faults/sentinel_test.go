package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestField_SentinelFailover: sentinels have the replica take over, by request, so that the old primary goes on as a replica and answers READONLY, and
// then from a primary that was killed. Each time the store decides again within a second, without a restart.
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
		do   func()
	}{
		{"failover", func() {
			_, err := watch.Failover(t.Context())
			require.NoError(t, err)
		}},
		{"kill -9", func() {
			old, err := watch.Primary(t.Context())
			require.NoError(t, err)
			require.NoError(t, watch.WaitReady(t.Context()))
			old.Kill()
			_, err = watch.AwaitPromotion(t.Context(), old)
			require.NoError(t, err)
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			load := l.start(l.mix)
			time.Sleep(before)
			s := faults.Span{From: load.Mark(fault.name)}
			fault.do()
			s.To = load.Mark("promoted")
			time.Sleep(after)
			r := load.Stop()
			l.show(r)
			l.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(s, victim), r.CheckAgain(s.To, victim, time.Second))
			l.requireInTime(r, r.CheckInTime(storeTimeout), r.CheckAlone(s.To, victim, time.Second))
		})
	}
}
