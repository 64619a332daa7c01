package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

var (
	capacityDesc  = desc("policy_capacity", "The most that a bucket of a token bucket policy holds, overrides apart.", "policy")
	refillDesc    = desc("policy_refill_per_second", "What a bucket of a token bucket policy gets each second, overrides apart.", "policy")
	limitDesc     = desc("policy_limit", "The most that a sliding log policy admits in any window, overrides apart.", "policy")
	windowDesc    = desc("policy_window_seconds", "The window of a sliding log policy, overrides apart.", "policy")
	overridesDesc = desc("policy_overrides", "How many of a policy's overrides are in force: those whose time is not up.", "policy")
)

var numbersDescs = []*prometheus.Desc{capacityDesc, refillDesc, limitDesc, windowDesc, overridesDesc}

// collectNumbers gives the numbers of the policy in force, so that use can be shown as a share of them.
func (c *counts) collectNumbers(ch chan<- prometheus.Metric, rule *policy.Policy) {
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, c.id)
	}
	n := &rule.Numbers
	switch n.Kind {
	case algorithm.TokenBucket:
		gauge(capacityDesc, n.Capacity)
		gauge(refillDesc, n.Refill/time.Duration(n.Unit).Seconds())
	case algorithm.SlidingLog:
		gauge(limitDesc, n.Capacity)
		gauge(windowDesc, (time.Duration(n.Window) * time.Microsecond).Seconds())
	}
	inForce, now := 0, time.Now()
	for i := range rule.Overrides {
		if !rule.Overrides[i].Expired(now) {
			inForce++
		}
	}
	if len(rule.Overrides) > 0 {
		gauge(overridesDesc, float64(inForce))
	}
}
