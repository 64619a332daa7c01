//go:build linux

package compose_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/compose"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// stream calls the edge with ever new keys until it is stopped. Every answer has to be an admission by the service.
type stream struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	calls  int
	faults []string
}

func startStream(t *testing.T, d *compose.Demo, name string) *stream {
	t.Helper()
	addr, err := d.Forward(10000)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{stop: cancel}
	for n := range 4 {
		s.all.Go(func() {
			client := harness.Client{Addr: addr}
			defer client.Close()
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("x-api-key: %s-%d-%d", name, n, i)
				s.note(client.Do(context.WithoutCancel(ctx), harness.Request{Method: "GET", Target: "/spread", Header: []string{key}}))
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond): // 40 calls a second in all: an address may make 100
				}
			}
		})
	}
	return s
}

func (s *stream) note(r *harness.Response, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	switch {
	case err != nil:
		s.faults = append(s.faults, err.Error())
	case r.Status != 200 && r.Status != 429:
		s.faults = append(s.faults, r.String())
	case r.Header.Get("RateLimit-Policy") == "":
		s.faults = append(s.faults, "let through without a decision: "+r.String())
	}
}

// requireDecided ends the stream: every call was decided by the service.
func (s *stream) requireDecided(t *testing.T) {
	t.Helper()
	s.stop()
	s.all.Wait()
	require.Empty(t, s.faults, "of %d calls", s.calls)
	require.Positive(t, s.calls)
	t.Log(s.calls, "calls, all decided")
}

// restartInstances restarts one instance after the other under load.
func restartInstances(t *testing.T, d *compose.Demo) {
	s := startStream(t, d, "restart")
	for _, service := range []string{"envoy-rls-1", "envoy-rls-2"} {
		d.StopService(service)
		code, err := d.Process(service).Wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, code, "%s was not stopped in order", service)
		require.NoError(t, d.StartService(t.Context(), service))
	}
	s.requireDecided(t)
}

// killPrimary kills one of the primaries, whose replica in the other zone takes over, and starts it again.
func killPrimary(t *testing.T, d *compose.Demo) {
	s := startStream(t, d, "kill")
	require.NoError(t, d.Kill("redis-a1"))
	until(t, "the replica to be promoted", func() error { return isMaster(t.Context(), d, "redis-b1") })
	requireStoreDecides(t, d)
	require.NoError(t, d.StartService(t.Context(), "redis-a1"))
	until(t, "the former primary to be in step", func() error { return inStep(t.Context(), d, "redis-a1") })
	s.requireDecided(t)
	requireBurst(t, d, "after-kill")
	// Back to where it was, so that zone a has the majority again.
	out, err := redisCLI(t.Context(), d, "redis-a1", "cluster", "failover")
	require.NoError(t, err, out)
	until(t, "the former primary to take over", func() error { return isMaster(t.Context(), d, "redis-a1") })
	until(t, "the replica to be in step", func() error { return inStep(t.Context(), d, "redis-b1") })
	requireStoreDecides(t, d)
}

// cutZone takes a zone away and gives it back. The other one has the majority of the primaries, or it has not: then nobody is promoted, and
// onStoreFailure decides.
func cutZone(t *testing.T, d *compose.Demo, zone string, majority bool) {
	s := startStream(t, d, zone)
	require.NoError(t, d.Cut(zone))
	if majority {
		until(t, "the replica of redis-b4 to be promoted", func() error { return isMaster(t.Context(), d, "redis-a4") })
		requireStoreDecides(t, d)
		requireBurst(t, d, "without-"+zone)
	} else {
		before, err := unanswered(t.Context(), d)
		require.NoError(t, err)
		until(t, "keys to be decided without the store", func() error {
			now, err := unanswered(t.Context(), d)
			if err == nil && now < before+100 {
				err = fmt.Errorf("%.0f so far", now-before)
			}
			return err
		})
	}
	require.NoError(t, d.Join(zone))
	for _, node := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"} {
		until(t, node+" to be in step", func() error {
			if isMaster(t.Context(), d, "redis-"+node) == nil {
				return nil
			}
			return inStep(t.Context(), d, "redis-"+node)
		})
	}
	requireStoreDecides(t, d)
	s.requireDecided(t)
	requireBurst(t, d, "after-"+zone)
}

// requireStoreDecides waits until the store, and not onStoreFailure, decides on keys of all shards.
func requireStoreDecides(t *testing.T, d *compose.Demo) {
	t.Helper()
	addr, err := d.Forward(10000)
	require.NoError(t, err)
	client := harness.Client{Addr: addr}
	defer client.Close()
	round := 0
	until(t, "the store to decide on all keys", func() error {
		before, err := unanswered(t.Context(), d)
		if err != nil {
			return err
		}
		round++
		for i := range 40 { // none of the four shards is missed but once in 100,000 times
			key := fmt.Sprintf("x-api-key: %s-%d-%d", t.Name(), round, i)
			if _, err := client.Do(t.Context(), harness.Request{Method: "GET", Target: "/spread", Header: []string{key}}); err != nil {
				return err
			}
		}
		after, err := unanswered(t.Context(), d)
		if err == nil && after > before {
			err = fmt.Errorf("%.0f were decided without the store", after-before)
		}
		return err
	})
}

// unanswered is how many buckets onStoreFailure has decided so far.
func unanswered(ctx context.Context, d *compose.Demo) (sum float64, err error) {
	for _, admin := range admins {
		page, err := d.Host("curl", "-sf", admin+"/metrics")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(page) {
			if _, text, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(line, "envoy_rls_unanswered_buckets_total{") {
				value, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, err
				}
				sum += value
			}
		}
	}
	return sum, ctx.Err()
}

func isMaster(ctx context.Context, d *compose.Demo, node string) error {
	return replication(ctx, d, node, "role:master")
}

func inStep(ctx context.Context, d *compose.Demo, node string) error {
	return replication(ctx, d, node, "master_link_status:up")
}

func replication(ctx context.Context, d *compose.Demo, node, want string) error {
	out, err := redisCLI(ctx, d, node, "info", "replication")
	if err == nil && !strings.Contains(out, want) {
		return fmt.Errorf("%s: %s", node, out)
	}
	return err
}

// redisCLI asks a node, in its container.
func redisCLI(ctx context.Context, d *compose.Demo, node string, command ...string) (string, error) {
	script := `REDISCLI_AUTH=$(cat /run/secrets/redis-password) exec redis-cli -e "$@"`
	return d.Exec(ctx, node, append([]string{"sh", "-c", script, "sh"}, command...)...)
}
