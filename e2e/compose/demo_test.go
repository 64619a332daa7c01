//go:build linux

package compose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/compose"
)

const edge = "http://127.0.0.1:10000/"

// admins are where the instances tell of themselves, on the host.
var admins = []string{"http://127.0.0.1:8080", "http://127.0.0.1:8083"}

// TestDemo starts the whole of docker-compose.yml once, and does with it what docs/docker-compose.md says.
func TestDemo(t *testing.T) {
	needsRoot(t)
	p := shipped(t)
	patientEnvoy(t, p)
	addPolicy(t, p)
	d := start(t, p)

	// In this order: the faults come last.
	t.Run("a burst is limited", func(t *testing.T) { requireBurst(t, d, "a-burst") })
	t.Run("instances see each other", func(t *testing.T) {
		for _, admin := range admins {
			until(t, "both to be seen at "+admin, func() error { return seesBoth(t.Context(), d, admin) })
		}
	})
	t.Run("policies come from the database", func(t *testing.T) {
		out, err := d.Exec(t.Context(), "policies", "/envoy-rls", "policies", "status")
		require.NoError(t, err, out)
		require.Contains(t, out, "envoy-rls-1")
		require.Contains(t, out, "envoy-rls-2")
		out, err = d.Exec(t.Context(), "policies", "/envoy-rls", "policies", "push", "/etc/envoy-rls/policies.yaml", "-m", "again", "--author", "test")
		require.NoError(t, err, out)
		require.Contains(t, out, "nothing published: version 1")
	})
	t.Run("containers are locked down", func(t *testing.T) { requireLockedDown(t, d) })
	t.Run("Prometheus sees both", func(t *testing.T) { requireScraped(t, d) })
	t.Run("an instance is restarted", func(t *testing.T) { restartInstances(t, d) })
	t.Run("a primary is killed", func(t *testing.T) { killPrimary(t, d) })
	t.Run("zone b is cut off", func(t *testing.T) { cutZone(t, d, "zone-b", true) })
	if long() { // Redis takes its time until it believes that the other primaries are gone, and that they are back
		t.Run("zone a is cut off", func(t *testing.T) { cutZone(t, d, "zone-a", false) })
	}
}

// requireBurst makes 25 calls with one key by curl, through the port that the file publishes.
func requireBurst(t *testing.T, d *compose.Demo, key string) {
	t.Helper()
	began := time.Now()
	out, err := d.Host("curl", "-s", "-o", "/dev/null", "-w", "%{http_code} ", "-H", "x-api-key: "+key, edge+"[1-25]")
	require.NoError(t, err, out)
	refilled := int(time.Since(began).Minutes() * 100)
	codes := strings.Fields(out)
	require.Len(t, codes, 25)
	for i, code := range codes[:20] {
		require.Equal(t, "200", code, "call %d: %s", i+1, out)
	}
	require.LessOrEqual(t, strings.Count(out, "200"), 20+refilled, out)
	require.Equal(t, 25, strings.Count(out, "200")+strings.Count(out, "429"), out)
	if refilled == 0 {
		require.Equal(t, 5, strings.Count(out, "429"), out)
	}
}

// get fetches a page on the host and reads it as JSON.
func get(ctx context.Context, d *compose.Demo, url string, into any) error {
	transport := &http.Transport{DialContext: d.Dial, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// storeState is what an instance says of its store.
type storeState struct {
	Store struct {
		Redis struct {
			Instances int `json:"instances"`
		} `json:"redis"`
	} `json:"store"`
}

func seesBoth(ctx context.Context, d *compose.Demo, admin string) error {
	var s storeState
	if err := get(ctx, d, admin+"/api/v1/status", &s); err != nil {
		return err
	}
	if s.Store.Redis.Instances != 2 {
		return fmt.Errorf("sees %d instances", s.Store.Redis.Instances)
	}
	return nil
}

func requireLockedDown(t *testing.T, d *compose.Demo) {
	t.Helper()
	for service, user := range map[string]string{"redis-a1": "999", "prometheus": "65534", "envoy": "101"} {
		out, err := d.Exec(t.Context(), service, "sh", "-c", "id -u; touch /x; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status")
		require.NoError(t, err, out)
		require.True(t, strings.HasPrefix(out, user+"\n"), out)
		require.Contains(t, out, "Read-only file system")
		require.Regexp(t, `CapEff:\s+0{16}`, out)
		require.Regexp(t, `NoNewPrivs:\s+1`, out)
	}
	out, err := d.Exec(t.Context(), "redis-a1", "cat", "/proc/sys/net/ipv4/conf/all/rp_filter")
	require.NoError(t, err)
	require.Equal(t, "2", out)
	_, err = d.Exec(t.Context(), "envoy-rls-1", "sh", "-c", "true")
	require.ErrorContains(t, err, "no such program", "the image holds nothing but the service")
}

func requireScraped(t *testing.T, d *compose.Demo) {
	t.Helper()
	const prometheus = "http://127.0.0.1:9090/api/v1/"
	until(t, "both instances to be scraped", func() error {
		var up struct {
			Data struct {
				Result []struct {
					Value [2]any `json:"value"`
				} `json:"result"`
			} `json:"data"`
		}
		if err := get(t.Context(), d, prometheus+"query?query=up%7Bjob%3D%22envoy-rls%22%7D%3D%3D1", &up); err != nil {
			return err
		}
		if n := len(up.Data.Result); n != 2 {
			return fmt.Errorf("%d targets are up", n)
		}
		return nil
	})
	var rules struct {
		Status string `json:"status"`
		Data   struct {
			Groups []struct {
				Rules []struct {
					Name, Health, LastError string
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	require.NoError(t, get(t.Context(), d, prometheus+"rules", &rules))
	require.Equal(t, "success", rules.Status)
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			require.NotEqual(t, "err", rule.Health, "%s: %s", rule.Name, rule.LastError)
		}
	}
	require.Equal(t, rulesShipped(t), len(rules.Data.Groups), "groups of rules")
}
