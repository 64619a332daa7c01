package e2e_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// fleetSetup says what instances of the service a test calls directly, without an Envoy in front.
type fleetSetup struct {
	policies  string   // the text of the policy file
	instances int      // 0: 1
	urls      []string // of Redis
	timeout   time.Duration
	args      []string // further flags
	env       []string // further variables
}

// fleet are instances of the service that share a store.
type fleet struct {
	instances []*harness.Instance
	policies  string // the file
}

// startFleet starts instances that end with the test, each ready and connected to.
func startFleet(t *testing.T, s fleetSetup) *fleet {
	t.Helper()
	f := &fleet{policies: writePolicies(t, s.policies)}
	args := []string{
		"serve", "--policies", f.policies, "--store", "redis", "--store-timeout", s.timeout.String(),
		"--drain-delay", "0s", "--log-level", "debug",
	}
	for _, url := range s.urls {
		args = append(args, "--redis-url", url)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range max(1, s.instances) {
		i, err := harness.StartInstance(ctx, binaries.service, append(args, s.args...), s.env)
		require.NoError(t, err)
		f.instances = append(f.instances, i)
		t.Cleanup(i.Stop)
	}
	return f
}

// callTimeout is for one call. No answer of the service takes nearly as long.
const callTimeout = 20 * time.Second

// call makes call number n, which decides on which instance and connection, and reports whether the request may pass.
func (f *fleet) call(n int, r *rls.RateLimitRequest) (allowed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	answer, err := f.instances[n%len(f.instances)].Ask(ctx, n/len(f.instances), r)
	return answer.Allowed, err
}

// await calls check until it succeeds.
func (f *fleet) await(t *testing.T, what string, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !check() {
		if ctx.Err() != nil {
			t.Fatalf("waiting for %s in vain; %s", what, f.instances[0].Process.Obituary())
		}
		time.Sleep(time.Millisecond)
	}
}

// admits waits until the store decides about a tenant whose failure mode denies.
func (f *fleet) admits(t *testing.T, tenant string) {
	t.Helper()
	f.await(t, "the store to decide", func() bool {
		allowed, err := f.call(0, harness.Attributes("mode", "closed", "tenant", tenant))
		return err == nil && allowed
	})
}

// reload gives all instances other policies and waits until they have them.
func (f *fleet) reload(t *testing.T, policies string) {
	t.Helper()
	before := f.sum(t, "envoy_rls_reload_total", `result="success"`)
	require.NoError(t, os.WriteFile(f.policies+".next", []byte(policies), 0o600))
	require.NoError(t, os.Rename(f.policies+".next", f.policies))
	for _, i := range f.instances {
		require.NoError(t, i.Process.Signal(syscall.SIGHUP))
	}
	f.await(t, "the policies to be loaded", func() bool {
		return f.sum(t, "envoy_rls_reload_total", `result="success"`) >= before+len(f.instances)
	})
}

// sum adds up the series of a metric, over all instances, that have all these labels: name="value".
func (f *fleet) sum(t *testing.T, metric string, labels ...string) int {
	t.Helper()
	total := 0.0
	for _, i := range f.instances {
		sum, err := i.Sum(t.Context(), metric, labels...)
		require.NoError(t, err)
		total += sum
	}
	return int(total)
}

// unanswered is how many buckets the failure modes decided so far.
func (f *fleet) unanswered(t *testing.T) int { return f.sum(t, "envoy_rls_unanswered_buckets_total") }

func (f *fleet) undone(t *testing.T) int {
	return f.sum(t, "envoy_rls_store_undos_total", `result="begun"`)
}

// long tells whether the literal, long forms of tests are asked for.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }
