package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
	instances []*instance
	policies  string // the file
}

// instance is one of them.
type instance struct {
	process           *harness.Process
	grpc, admin, page string // host:port; page is that of profiles
	log               *journal
	connections       []*grpc.ClientConn
	clients           []rls.RateLimitServiceClient // one for each connection
}

// connectionsEach is how many connections lead to each instance.
const connectionsEach = 6

// journal keeps all that a process logs. Safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
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
		i, err := startInstance(ctx, append(args, s.args...), s.env)
		for try := 1; err != nil && try < 3 && strings.Contains(err.Error(), "address already in use"); try++ {
			i, err = startInstance(ctx, append(args, s.args...), s.env)
		}
		require.NoError(t, err)
		f.instances = append(f.instances, i)
		t.Cleanup(i.stop)
	}
	return f
}

func startInstance(ctx context.Context, args, env []string) (*instance, error) {
	i := &instance{log: &journal{}}
	for _, address := range []*string{&i.grpc, &i.admin, &i.page} {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		*address = "127.0.0.1:" + strconv.Itoa(port)
	}
	cmd := exec.Command(binaries.service, append(args, "--grpc-addr", i.grpc, "--admin-addr", i.admin, "--debug-addr", i.page)...)
	cmd.Env = append(os.Environ(), env...)
	var err error
	if i.process, err = harness.StartProcess("envoy-rls", cmd, i.log); err != nil {
		return nil, err
	}
	err = harness.Until(ctx, "envoy-rls to be ready", func() error {
		_, err := harness.Get(ctx, "http://"+i.admin+"/readyz")
		return err
	}, i.process)
	for n := 0; n < connectionsEach && err == nil; n++ {
		err = i.connect(ctx)
	}
	if err != nil {
		i.stop()
		return nil, err
	}
	return i, nil
}

// connect opens one more connection. No policy applies to the call by which it is tried.
func (i *instance) connect(ctx context.Context) error {
	connection, err := grpc.NewClient(i.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client := rls.NewRateLimitServiceClient(connection)
	i.connections, i.clients = append(i.connections, connection), append(i.clients, client)
	_, err = client.ShouldRateLimit(ctx, attributes("nothing", "nothing"), grpc.WaitForReady(true))
	return err
}

func (i *instance) stop() {
	for _, connection := range i.connections {
		_ = connection.Close() // fails only if it is closed
	}
	i.process.Stop(patience)
}

// attributes is a request of domain edge with one descriptor: key, value, key, value …
func attributes(entries ...string) *rls.RateLimitRequest {
	d := &ratelimit.RateLimitDescriptor{}
	for n := 0; n < len(entries); n += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: entries[n], Value: entries[n+1]})
	}
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{d}}
}

// callTimeout is for one call. No answer of the service takes nearly as long.
const callTimeout = 20 * time.Second

// call makes call number n, which decides on which instance and connection, and reports whether the request may pass.
func (f *fleet) call(n int, r *rls.RateLimitRequest) (allowed bool, err error) {
	i := f.instances[n%len(f.instances)]
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	answer, err := i.clients[n/len(f.instances)%len(i.clients)].ShouldRateLimit(ctx, r)
	if err != nil {
		return false, err
	}
	switch code := answer.GetOverallCode(); code {
	case rls.RateLimitResponse_OK:
		return true, nil
	case rls.RateLimitResponse_OVER_LIMIT:
		return false, nil
	default:
		return false, fmt.Errorf("an answer with code %v", code)
	}
}

// await calls check until it succeeds.
func (f *fleet) await(t *testing.T, what string, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !check() {
		if ctx.Err() != nil {
			t.Fatalf("waiting for %s in vain; %s", what, f.instances[0].process.Obituary())
		}
		time.Sleep(time.Millisecond)
	}
}

// admits waits until the store decides about a tenant whose failure mode denies.
func (f *fleet) admits(t *testing.T, tenant string) {
	t.Helper()
	f.await(t, "the store to decide", func() bool {
		allowed, err := f.call(0, attributes("mode", "closed", "tenant", tenant))
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
		require.NoError(t, i.process.Signal(syscall.SIGHUP))
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
		page, err := harness.Get(t.Context(), "http://"+i.admin+"/metrics")
		require.NoError(t, err)
		for line := range strings.Lines(page) {
			series, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, with, _ := strings.Cut(series, "{")
			if name != metric || !hasAll(with, labels) {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err, line)
			total += value
		}
	}
	return int(total)
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// unanswered is how many buckets the failure modes decided so far.
func (f *fleet) unanswered(t *testing.T) int { return f.sum(t, "envoy_rls_unanswered_buckets_total") }

// long tells whether the literal, long forms of tests are asked for.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }
