package faults_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const byAPIKey = `
domain: edge
policies:
  - {id: open, match: {route: "GET /open", apiKey: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: open}
  - {id: closed, match: {route: "GET /closed", apiKey: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
`

// TestPrimaryKilledBehindEnvoy: what clients of a real Envoy see while a primary is dead. An open policy lets them through and a closed one answers 429 with a
// time to wait; Envoy itself decides nothing, and nothing is felt on other shards.
func TestPrimaryKilledBehindEnvoy(t *testing.T) {
	e := &edge{lab: newLab(t, labSetup{cluster: shared.Cluster(t), instances: -1}), clients: make(chan *harness.Client, 64)}
	e.start()
	rate := 500 // Envoy and the clients take far more CPU than the service
	if long() {
		rate = perSecond
	}
	load := faults.StartLoad(faults.LoadOptions{PerSecond: rate, Next: e.next, Ask: e.request}, e.witness)
	t.Cleanup(func() { load.Stop() })
	r, s := e.suffer(load, "kill -9", e.killVictim)
	e.show(r)
	e.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(s, victim), r.CheckAgain(s.To, victim, time.Second))
	e.requireInTime(r, r.CheckInTime(storeTimeout), r.CheckAlone(s.To, victim, time.Second), r.CheckUntouched(s, others(victim)...))
	unasked, err := e.envoy.Unasked(t.Context())
	require.NoError(t, err)
	require.Zero(t, unasked, "requests that Envoy decided itself")
}

// edge is a lab with a real Envoy in front of two instances of their own.
type edge struct {
	*lab
	envoy   *harness.Lab
	keys    [shards]string
	clients chan *harness.Client
}

func (e *edge) start() {
	e.Helper()
	binary, err := harness.Output("../../scripts/install-envoy.sh")
	require.NoError(e, err)
	policies := filepath.Join(e.TempDir(), "policies.yaml")
	require.NoError(e, os.WriteFile(policies, []byte(byAPIKey), 0o600))
	args := []string{"--store", "redis", "--drain-delay", "0s", "--store-timeout", storeTimeout.String()}
	for _, url := range e.cluster.URLs() {
		args = append(args, "--redis-url", url)
	}
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	e.envoy, err = harness.StartAnywhere(ctx, harness.Options{
		EnvoyBinary: binary, EnvoyConfig: "../../envoy/envoy.yaml", ServiceBinary: service, ServiceArgs: args, Policies: policies,
		Dir: e.TempDir(), EnvoyTimeout: patience / 4, Services: make([]harness.ServiceAddress, 2),
	})
	require.NoError(e, err)
	e.Cleanup(e.envoy.Stop)
	for shard := range e.keys {
		e.keys[shard] = apiKeyOn(shard)
		e.decides(shard)
	}
	e.Cleanup(func() {
		for len(e.clients) > 0 {
			(<-e.clients).Close()
		}
	})
}

// apiKeyOn finds a key of an API whose buckets are on a shard.
func apiKeyOn(shard int) string {
	for n := 0; ; n++ {
		key := fmt.Sprint("key-", n)
		sum := sha256.Sum256([]byte(key))
		value := "ak_" + hex.EncodeToString(sum[:8])
		if harness.Slot(policy.NewKey(policy.Part{Name: "apiKey", Value: value}, "any").String())/slotsPer == shard {
			return key
		}
	}
}

// decides waits until the store decides about a shard, for either instance.
func (e *edge) decides(shard int) {
	e.Helper()
	for row := 0; row < 10; {
		a, err := e.request(e.Context(), 1, faults.Call{Shard: shard, Mode: "closed"})
		require.NoError(e, err)
		if row++; !a.Allowed {
			row = 0
		}
	}
}

func (e *edge) next(n int) faults.Call {
	return faults.Call{Shard: n % shards, Mode: []string{"closed", "open"}[n/shards%2]}
}

// request sends one request through Envoy. The answer does not say who decided; but in these policies nobody but the failure mode denies.
func (e *edge) request(ctx context.Context, _ int, c faults.Call) (harness.Answer, error) {
	var client *harness.Client
	select {
	case client = <-e.clients:
	default:
		client = &harness.Client{Addr: e.envoy.Options.Listen}
	}
	response, err := client.Do(ctx, harness.Request{Method: "GET", Target: "/" + c.Mode, Header: []string{"x-api-key: " + e.keys[c.Shard]}})
	select {
	case e.clients <- client:
	default:
		client.Close()
	}
	switch {
	case err != nil:
		return harness.Answer{}, err
	case response.Status == 200:
		return harness.Answer{Allowed: true, Source: "store"}, nil
	case response.Status == 429 && c.Mode == "closed" && response.Header.Get("Retry-After") != "" && response.Header.Get("RateLimit") == "":
		return harness.Answer{Source: "closed"}, nil
	default:
		return harness.Answer{}, fmt.Errorf("%s was answered %v", c.Mode, response)
	}
}
