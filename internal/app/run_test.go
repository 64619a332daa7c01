package app_test

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// patience bounds waits for what must happen; no test passes by waiting it out.
const patience = 20 * time.Second

// run runs a service as the program does. The channel gives what Run returned.
func run(t *testing.T, change func(*app.Options)) (*instance, chan os.Signal, <-chan error) {
	t.Helper()
	opts, log := options(t, perIP)
	change(&opts)
	i := newInstance(t, opts, log)
	signals := make(chan os.Signal, 2)
	done := make(chan error, 1)
	go func() { done <- i.Run(context.Background(), signals) }()
	i.await("msg=serving")
	i.connect()
	return i, signals, done
}

// await waits for a log line.
func (i *instance) await(part string) {
	i.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line := <-i.log.lines:
			if strings.Contains(line, part) {
				return
			}
		case <-deadline:
			require.FailNow(i.t, "no such log line", "want %q in:\n%s", part, i.log)
		}
	}
}

func (i *instance) health() healthpb.HealthCheckResponse_ServingStatus {
	i.t.Helper()
	got, err := healthpb.NewHealthClient(i.conn).Check(i.t.Context(), &healthpb.HealthCheckRequest{Service: "envoy.service.ratelimit.v3.RateLimitService"})
	require.NoError(i.t, err)
	return got.GetStatus()
}

// watch opens a call that lasts until the service ends, and waits until it is under way.
func (i *instance) watch() healthpb.Health_WatchClient {
	i.t.Helper()
	stream, err := healthpb.NewHealthClient(i.conn).Watch(i.t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(i.t, err)
	got, err := stream.Recv()
	require.NoError(i.t, err)
	require.Equal(i.t, healthpb.HealthCheckResponse_SERVING, got.GetStatus())
	return stream
}

// awaitNotServing waits until the service says that it will stop.
func (i *instance) awaitNotServing(stream healthpb.Health_WatchClient) {
	i.t.Helper()
	got, err := stream.Recv()
	require.NoError(i.t, err)
	require.Equal(i.t, healthpb.HealthCheckResponse_NOT_SERVING, got.GetStatus())
}

// TestField_DrainsThenForces: told to stop, the service says so and goes on answering; told again, it ends at once.
func TestField_DrainsThenForces(t *testing.T) {
	i, signals, done := run(t, func(o *app.Options) { o.DrainDelay = time.Hour })
	stream := i.watch()
	signals <- syscall.SIGTERM
	i.awaitNotServing(stream)

	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, i.health())
	require.Equal(t, rlsv3.RateLimitResponse_OK, i.call("ip", hostname).GetOverallCode(), "calls are still answered")
	code, body := i.page("/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "starting or stopping\n", body)
	code, _ = i.page("/healthz")
	require.Equal(t, 200, code)

	signals <- syscall.SIGTERM
	require.ErrorIs(t, <-done, app.ErrForced)
	_, err := net.Dial("tcp", i.AdminAddr().String())
	require.Error(t, err)
	_, err = net.Dial("tcp", i.GRPCAddr().String())
	require.Error(t, err)
}

// TestForcedWithoutCalls: told twice to stop while nobody waits for an answer, the service has cut nothing off.
func TestForcedWithoutCalls(t *testing.T) {
	i, signals, done := run(t, func(o *app.Options) { o.DrainDelay, o.ForcedTimeout, o.StopTimeout = time.Hour, patience, time.Hour })
	i.call("ip", hostname)
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	require.NoError(t, <-done)
	require.Contains(t, i.log.String(), "stopping at once")
}

func TestStopsInOrder(t *testing.T) {
	i, signals, done := run(t, func(o *app.Options) { o.DrainDelay = time.Millisecond })
	i.call("ip", hostname)
	signals <- syscall.SIGINT
	require.NoError(t, <-done)
	require.Contains(t, i.log.String(), "msg=stopped")
}

// TestStopIsBounded: a call that never ends doesn't keep the service from stopping.
func TestStopIsBounded(t *testing.T) {
	i, signals, done := run(t, func(o *app.Options) { o.StopTimeout = time.Millisecond })
	stream := i.watch()
	signals <- syscall.SIGTERM
	require.ErrorIs(t, <-done, app.ErrForced)
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

func TestStopsWithItsContext(t *testing.T) {
	opts, log := options(t, perIP)
	i := newInstance(t, opts, log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx, nil) }()
	i.await("msg=serving")
	cancel()
	require.NoError(t, <-done)
}

func TestReloadsOnSIGHUP(t *testing.T) {
	i, signals, done := run(t, func(o *app.Options) { o.DrainDelay = 0 })
	require.NoError(t, os.WriteFile(i.policies, []byte("nonsense"), 0o600))
	signals <- syscall.SIGHUP
	i.await("the old ones stay")
	require.NoError(t, os.WriteFile(i.policies, []byte(bucket("p", 7, "refillPerDay: 1")), 0o600))
	signals <- syscall.SIGHUP
	i.await("policies loaded")
	require.Equal(t, 7, i.admitted(20, "ip", hostname))
	signals <- syscall.SIGTERM
	require.NoError(t, <-done)
}

// TestFollowsTheFile: a changed file acts without being asked for.
func TestFollowsTheFile(t *testing.T) {
	i := start(t, perIP)
	i.await("msg=serving")
	require.NoError(t, os.WriteFile(i.policies, []byte(bucket("p", 7, "refillPerDay: 1")), 0o600))
	i.await("policies loaded")
	require.Equal(t, 7, i.admitted(20, "ip", hostname))
}

// TestStopsWhileItStarts: a policy file that is never read to its end, as on a dead network disk, does not keep the program.
func TestStopsWhileItStarts(t *testing.T) {
	opts, log := options(t, perIP)
	reading, release := make(chan struct{}), make(chan struct{})
	opts.Read = func(...string) (*policy.Set, error) {
		close(reading)
		<-release
		return nil, os.ErrDeadlineExceeded
	}
	defer close(release)
	i := newInstance(t, opts, log)
	signals := make(chan os.Signal, 1)
	done := make(chan error, 1)
	go func() { done <- i.Run(context.Background(), signals) }()
	<-reading
	signals <- syscall.SIGTERM
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "still starting")
	}
	require.Contains(t, log.String(), "stopping before it served")
}

// TestStopIsNotLostBehindReloads: many SIGHUPs do not crowd out the SIGTERM that follows them.
func TestStopIsNotLostBehindReloads(t *testing.T) {
	_, signals, done := run(t, func(*app.Options) {})
	for range 50 {
		signals <- syscall.SIGHUP
	}
	signals <- syscall.SIGTERM
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "still running")
	}
}
