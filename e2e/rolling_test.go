package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// rollingClients is how many connections make the load.
const rollingClients = 40

// TestField_RollingRestart: two instances are restarted one after the other under a steady load, and nobody notices.
func TestField_RollingRestart(t *testing.T) {
	rate, atLeast := 400, 3_000
	if long() {
		rate, atLeast = 2_000, 10_000
	}
	// Each connection has an API key of its own, of which so many calls are admitted and not one more: a call that Envoy lets through unasked, or
	// that is decided without Redis, shows as one too many.
	capacity := atLeast / rollingClients / 2
	policies := writePolicies(t, fmt.Sprintf(`
policies:
  - {id: exact, key: [apiKey], algorithm: token-bucket, capacity: %d, refillPerDay: 1, onStoreFailure: open}
`, capacity))
	redis := redistest.StartStandalone(t)
	lab := newLab(t, setup{
		policies: policies, instances: 2,
		args: []string{"--store", "redis", "--redis-mode", "standalone", "--redis-url", redis.URL(), "--store-timeout", "3s", "--drain-delay", "2s"},
	})
	load := startPaced(lab.Options.Listen, rate)
	for i := range lab.Services {
		lab.Services[i].Stop(patience)
		code, err := lab.Services[i].Wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, code, lab.Services[i].Obituary())
		require.NoError(t, lab.StartService(t.Context(), i))
	}
	tally, sent := load.stop(atLeast)
	unasked, err := lab.Unasked(t.Context())
	require.NoError(t, err)
	t.Logf("%d calls at %d/s: %s; %d were not decided", sent, rate, tally, unasked)

	require.GreaterOrEqual(t, sent, atLeast)
	require.Equal(t, sent, tally.Status(200)+tally.Status(429), "%s", tally)
	require.Equal(t, rollingClients*capacity, tally.Status(200), "%s", tally)
	require.Zero(t, unasked)
}

// paced is a load of so many calls a second over rollingClients connections. Each call has its time, whether or not those before it were late.
type paced struct {
	tally harness.Tally
	all   sync.WaitGroup

	mu    sync.Mutex
	sent  int
	until int // calls after which the load ends; negative: goes on
}

func startPaced(addr string, rate int) *paced {
	l := &paced{until: -1}
	began := time.Now()
	for n := range rollingClients {
		l.all.Go(func() {
			client := harness.Client{Addr: addr}
			defer client.Close()
			r := harness.Request{Method: "GET", Target: "/", Header: []string{fmt.Sprintf("x-api-key: rolling-%d", n)}}
			for i := n; l.next(); i += rollingClients {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				l.tally.Add(client.Do(context.Background(), r))
			}
		})
	}
	return l
}

// next counts a call that is about to be made, unless there were enough.
func (l *paced) next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until >= 0 && l.sent >= l.until {
		return false
	}
	l.sent++
	return true
}

// stop ends the load once it has made so many calls, and returns what came of them and how many there were.
func (l *paced) stop(atLeast int) (*harness.Tally, int) {
	l.mu.Lock()
	l.until = atLeast
	l.mu.Unlock()
	l.all.Wait()
	return &l.tally, l.sent
}
