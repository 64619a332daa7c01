package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// hundreds are policies of 100 that do not refill while a test runs.
const hundreds = `
domain: edge
policies:
  - {id: bucket, match: {kind: bucket}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: closed}
  - {id: log, match: {kind: log}, key: [tenant], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
  - {id: bucket-open, match: {kind: bucket-open}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: open}
  - {id: log-open, match: {kind: log-open}, key: [tenant], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: open}
`

// crowds are numbers of clients.
var crowds = []int{20, 50, 100, 200, 400}

// enough is how many calls each client makes, so that all of them ask for several times what there is.
func enough(clients int) int { return max(3, 600/clients) }

// TestExactOnRedis has 20 to 400 clients call at once about one key, on one instance and on three, with time for every call: exactly 100 are
// admitted, every time, whichever primary has the key.
func TestExactOnRedis(t *testing.T) {
	cluster := useCluster(t, hundreds)
	for _, instances := range []int{1, 3} {
		t.Run(fmt.Sprint(instances, " instances"), func(t *testing.T) {
			f := startFleet(t, fleetSetup{policies: hundreds, instances: instances, urls: cluster.URLs(), timeout: 10 * time.Second})
			for _, kind := range []string{"bucket", "log"} {
				exactWithCrowds(t, f, cluster, kind, fmt.Sprint("on", instances, "-"))
			}
			require.Zero(t, f.unanswered(t))
		})
	}
}

// exactWithCrowds has each crowd call, in the long form about a key of each primary, in the short one about a key of another primary than the
// crowd before.
func exactWithCrowds(t *testing.T, f *fleet, cluster *redistest.Cluster, kind, prefix string) {
	nodes := primaries(t, cluster)
	for n, clients := range crowds {
		tenants := tenantsApart(t, cluster, ofTenant(kind), fmt.Sprint(prefix, clients, "-"))
		for i, node := range nodes {
			if !long() && i != n%len(nodes) {
				continue
			}
			got := crowd(f, clients, enough(clients), harness.Attributes("kind", kind, "tenant", tenants[node]))
			t.Logf("%s, %d instances, %d clients, key on primary %d: %v; at most %d calls under way", kind, len(f.instances), clients, i, got, got.peak.Load())
			require.Equal(t, fmt.Sprintf("100 allowed, %d denied", clients*enough(clients)-100), got.String(), "%d clients", clients)
			if long() { // a busy machine may have few of them under way at once
				require.GreaterOrEqual(t, int(got.peak.Load()), clients/2)
			}
			there, err := node.Do(t.Context(), "EXISTS", ofTenant(kind)(tenants[node]).String())
			require.NoError(t, err)
			require.EqualValues(t, 1, there, "the key is where it was meant to be")
		}
	}
}

// TestExactButForTimeoutsOnRedis gives calls 5 ms, and stops the primary that has the key now and then. What the failure mode answered explains
// each difference: it is counted, and a call that it answered may or may not have been charged.
func TestExactButForTimeoutsOnRedis(t *testing.T) {
	cluster := useCluster(t, hundreds)
	s := openStore(t, cluster.URLs())
	defer s.Close()
	for _, instances := range []int{1, 3} {
		f := startFleet(t, fleetSetup{policies: hundreds, instances: instances, urls: cluster.URLs(), timeout: 5 * time.Millisecond})
		for _, kind := range []string{"bucket", "log", "bucket-open", "log-open"} {
			for n, clients := range crowds {
				node := primaries(t, cluster)[n%4]
				tenant := tenantsApart(t, cluster, ofTenant(kind), fmt.Sprint("hasty", instances, "-", clients, "-"))[node]
				e := explain{f: f, kind: kind, before: f.unanswered(t), open: f.sum(t, "envoy_rls_decisions_total", `source="open"`), undone: f.undone(t)}
				stop := func() {}
				if !long() || n%2 == 0 { // the others have no more trouble than the machine gives them
					stop = stutter(t, node)
				}
				e.got = crowd(f, clients, enough(clients), harness.Attributes("kind", kind, "tenant", tenant))
				stop()
				b := ratelimit.Bucket{Key: ofTenant(kind)(tenant), Limits: limitsOf(t, hundreds, kind)}
				e.charged = 100 - int(look(t, s, b).Remaining)
				e.require(t, fmt.Sprintf("%s, %d instances, %d clients", kind, instances, clients))
			}
		}
	}
}

// explain is what is known of a crowd whose calls had little time.
type explain struct {
	f       *fleet
	kind    string
	got     *outcome
	charged int // to the bucket in the end

	before, open, undone int // counters before the crowd
}

func (e *explain) require(t *testing.T, what string) {
	t.Helper()
	unanswered := e.f.unanswered(t) - e.before
	admittedByMode := e.f.sum(t, "envoy_rls_decisions_total", `source="open"`) - e.open
	admitted := e.got.allowed - admittedByMode
	t.Logf("%s: %v; %d not answered, %d of them admitted; the store admitted %d and charged %d", what, e.got, unanswered, admittedByMode, admitted, e.charged)
	require.Zero(t, e.got.errors, "%s: %v", what, e.got)
	require.LessOrEqual(t, e.charged, 100, what)
	require.LessOrEqual(t, admitted, e.charged, "%s: nobody is admitted without a charge", what)
	require.LessOrEqual(t, e.charged-admitted, unanswered, "%s: what was charged without an admission was not answered", what)
	if unanswered == 0 {
		require.Equal(t, 100, e.got.allowed, what)
	}
	if e.got.denied > unanswered {
		// What a call was charged that the failure mode had denied by then was given back.
		require.GreaterOrEqual(t, e.charged+e.f.undone(t)-e.undone, 100, "%s: the store denies nothing before all is spent", what)
	}
}

// stutter stops a server for 20 ms, again and again, until stop is called.
func stutter(t *testing.T, node *redistest.Server) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			err := node.Pause()
			time.Sleep(20 * time.Millisecond)
			if again := node.Resume(); err == nil {
				err = again
			}
			select {
			case <-quit:
				done <- err
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err != nil {
				<-quit
				done <- err
				return
			}
		}
	}()
	return func() {
		close(quit)
		require.NoError(t, <-done)
	}
}

func limitsOf(t *testing.T, policies, id string) algorithm.Limits {
	t.Helper()
	for _, p := range parse(t, policies).Policies() {
		if p.ID == id {
			return p.Numbers.Limits
		}
	}
	t.Fatalf("no policy %s", id)
	return algorithm.Limits{}
}
