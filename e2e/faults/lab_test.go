package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// mixed has a policy for each failure mode that denies nobody while it is counted, and one that does.
const mixed = `
domain: edge
policies:
  - {id: local, match: {mode: local}, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: local}
  - {id: open, match: {mode: open}, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: open}
  - {id: closed, match: {mode: closed}, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
  - {id: scarce, match: {mode: scarce}, key: [tenant], algorithm: token-bucket, capacity: 40, refillPerDay: 1, onStoreFailure: closed}
`

const (
	scarcity   = 40 // what the scarce policy admits
	shards     = 4
	tenantsPer = 20 // for each shard, in turn
	slotsPer   = 16384 / shards
	perSecond  = 2000
)

// lab is a cluster, instances of the service on it, and tenants whose keys are known to be on one shard.
type lab struct {
	*testing.T
	cluster *redistest.Cluster
	fleet   []*harness.Instance
	tenants [shards][]string
	witness *faults.Witness

	args, env []string // of the service
}

// labSetup says what a lab is like. The zero value of all but the cluster, or the server, is good.
type labSetup struct {
	cluster   *redistest.Cluster
	server    *redistest.Server // in place of the cluster
	urls      []string          // none: the cluster's
	policies  string            // none: mixed
	instances int               // 0: 2; negative: none
	timeout   time.Duration
	args, env []string // further ones of the service
}

// newLab starts a lab that ends with the test. The cluster is emptied.
func newLab(t *testing.T, s labSetup) *lab {
	t.Helper()
	l := &lab{T: t, cluster: s.cluster}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if s.cluster != nil {
		for shard := range shards {
			_, err := l.primary(shard).Do(ctx, "FLUSHALL")
			require.NoError(t, err)
		}
		require.NoError(t, s.cluster.WaitReady(ctx)) // with that replicas are sent something
	}
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if s.policies == "" {
		s.policies = mixed
	}
	require.NoError(t, os.WriteFile(policies, []byte(s.policies), 0o600))
	if s.timeout == 0 {
		s.timeout = storeTimeout
	}
	args := []string{"serve", "--policies", policies, "--store", "redis", "--store-timeout", s.timeout.String(), "--drain-delay", "0s"}
	switch {
	case s.server != nil:
		s.urls = []string{s.server.URL()}
	case s.urls == nil:
		s.urls = s.cluster.URLs()
	}
	for _, url := range s.urls {
		args = append(args, "--redis-url", url)
	}
	l.args, l.env = append(args, s.args...), s.env
	for range cmp.Or(s.instances, 2) {
		i, err := harness.StartInstance(ctx, service, l.args, l.env)
		require.NoError(t, err)
		l.fleet = append(l.fleet, i)
		t.Cleanup(i.Stop)
	}
	l.findTenants()
	var err error
	l.witness, err = faults.StartWitness()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.witness.Stop()) })
	return l
}

// primary is the present primary of a shard, whose number is that of its slots.
func (l *lab) primary(shard int) *redistest.Server {
	l.Helper()
	node, err := l.cluster.Owner(l.Context(), shard*slotsPer)
	require.NoError(l, err)
	return node
}

// findTenants finds tenants for each shard. No two tests have the same.
func (l *lab) findTenants() {
	for n, missing := 0, shards*tenantsPer; missing > 0; n++ {
		tenant := fmt.Sprint(strings.ToLower(l.Name()), "-", n)
		shard := shardOf(tenant)
		if len(l.tenants[shard]) < tenantsPer {
			l.tenants[shard] = append(l.tenants[shard], tenant)
			missing--
		}
	}
}

// shardOf is where all buckets of a tenant are.
func shardOf(tenant string) int {
	return harness.Slot(policy.NewKey(policy.Part{Name: "tenant", Value: tenant}, "any").String()) / slotsPer
}

// mix asks about all shards and failure modes in turn. One call in ten is about the scarce bucket of its shard.
func (l *lab) mix(n int) faults.Call {
	shard, turn := n%shards, n/shards
	mode, tenant := []string{"local", "open", "closed"}[turn%3], l.tenants[shard][turn/3%tenantsPer]
	c := faults.Call{Shard: shard, Policy: mode, Mode: mode}
	if turn%10 == 0 {
		c.Policy, c.Mode, tenant = "scarce", "closed", l.tenants[shard][0]
	}
	c.Request = harness.Attributes("mode", c.Policy, "tenant", tenant)
	return c
}

// ask makes call n of a load: on which instance does not depend on what it is about.
func (l *lab) ask(ctx context.Context, n int, c faults.Call) (harness.Answer, error) {
	return l.askOne(ctx, int(uint32(n)*2654435761>>16), c.Request)
}

// askOne makes call n on one instance after the other.
func (l *lab) askOne(ctx context.Context, n int, r *rls.RateLimitRequest) (harness.Answer, error) {
	return l.fleet[n%len(l.fleet)].Ask(ctx, n/len(l.fleet), r)
}

// start begins to ask, at the pace of the suite. It ends with the test at the latest.
func (l *lab) start(next func(n int) faults.Call) *faults.Load {
	l.Helper()
	load := faults.StartLoad(faults.LoadOptions{PerSecond: perSecond, Next: next, Ask: l.ask}, l.witness)
	l.Cleanup(func() { load.Stop() })
	return load
}

// warm waits until the store decides about every shard, which makes the connections.
func (l *lab) warm() {
	l.Helper()
	for _, i := range l.fleet {
		l.warmOne(i)
	}
}

// warmOne does so for one instance.
func (l *lab) warmOne(i *harness.Instance) {
	l.Helper()
	for shard := range shards {
		// Not one of those whose calls are counted.
		request := harness.Attributes("mode", "closed", "tenant", tenantOf(shard, "warm-"))
		require.Eventually(l, func() bool {
			a, err := i.Ask(l.Context(), shard, request)
			return err == nil && a.Source == "store"
		}, patience, time.Millisecond)
	}
}

// show prints the timeline and writes it to a file, and says how long decisions took.
func (l *lab) show(r *faults.Record) {
	l.Helper()
	timeline := r.Timeline()
	path := filepath.Join(l.ArtifactDir(), "timeline.txt")
	require.NoError(l, os.WriteFile(path, []byte(timeline), 0o600))
	all := r.Select(always)
	late := 0
	for _, d := range all {
		if d.Late > 10*time.Millisecond {
			late++
		}
	}
	l.Logf("%s\n%d decisions: p50 %v, p99 %v, p99.9 %v, slowest %v\nthe machine stood still for %.1f %% of the time; %d calls were made more than 10 ms late",
		timeline, len(all), faults.Quantile(all, 0.5), faults.Quantile(all, 0.99), faults.Quantile(all, 0.999), faults.Quantile(all, 1), 100*r.Stalled(), late)
}

// always is all of a record.
var always = faults.Span{To: time.Hour}

// admitted is how many calls about a policy were admitted on a shard.
func admitted(r *faults.Record, shard int, policy string) int {
	return admittedIn(always, r, shard, policy)
}

func admittedIn(s faults.Span, r *faults.Record, shard int, policy string) int {
	return faults.Count(r.Select(s, shard), func(d *faults.Decision) bool { return d.Allowed && d.Policy == policy })
}

// requireBound prints what was admitted against what could be at most.
func (l *lab) requireBound(what string, got int, bound float64) {
	l.Helper()
	l.Logf("%s: %d admitted, at most %.1f", what, got, bound)
	require.LessOrEqual(l, float64(got), bound, what)
}

// others are the shards but one.
func others(shard int) []int {
	var rest []int
	for other := range shards {
		if other != shard {
			rest = append(rest, other)
		}
	}
	return rest
}

// calm is for how much of the time the machine may stand still if timing is to be judged.
const calm = 0.03

// requireSteady checks what holds for every fault of one shard, from its beginning until the store can decide again. Of what the shard has
// counted, unseen is lost at most.
func (l *lab) requireSteady(r *faults.Record, s faults.Span, shard, unseen int) {
	l.Helper()
	l.show(r)
	l.Logf("the store decides about shard %d again %v after it can", shard, r.Again(s.To, shard))
	l.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(s, shard), r.CheckAgain(s.To, shard, time.Second))
	l.requireInTime(r, r.CheckInTime(storeTimeout), r.CheckAlone(s.To, shard, time.Second), r.CheckUntouched(s, others(shard)...))
	for other := range shards {
		bound := float64(scarcity)
		if other == shard {
			bound += float64(unseen)
		}
		l.requireBound(fmt.Sprint("scarce bucket on shard ", other), admitted(r, other, "scarce"), bound)
	}
}

func (l *lab) require(checks ...error) {
	l.Helper()
	for _, err := range checks {
		if err != nil {
			l.Error(err)
		}
	}
}

// requireInTime does so for checks that are about time. In the short form they need a machine that is calm enough to tell.
func (l *lab) requireInTime(r *faults.Record, checks ...error) {
	l.Helper()
	if r.Stalled() <= calm || long() {
		l.require(checks...)
		return
	}
	for _, err := range checks {
		if err != nil {
			l.Logf("NOT JUDGED, since the machine stood still for %.0f %% of the time: %v", 100*r.Stalled(), err)
		}
	}
}
