package page_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/page"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestPageShowsWhatHappened(t *testing.T) {
	s := newService(t, policies, nil)
	start := time.Now()
	s.Second(start)
	s.call(t, 10, "plan", "free", "api_key", "secret1", "tenant", "customer-42")
	s.call(t, 4, "route", "GET /v1/search?q=x", "tenant", "customer-43")
	s.call(t, 4, "route", "POST /login", "remote_address", "203.0.113.7", "username", "alice")
	s.Second(start.Add(time.Second))
	now := s.Now()
	require.Equal(t, 9.0, now.Now.Allowed) // 3 of free, all of search, 2 of login
	require.Equal(t, 9.0, now.Now.Denied)
	require.Equal(t, 3.0, now.Now.WouldDeny)
	require.Equal(t, 14.0, now.Now.BySource["store"], "shadow policies decide nothing")
	require.Equal(t, 1.0, *now.Now.StoreShare)
	require.Equal(t, []string{"free", "search", "login"}, []string{now.Policies[0].Policy, now.Policies[1].Policy, now.Policies[2].Policy})
	require.InDelta(t, 7*0.25, now.Policies[0].Denied, 1e-9)
	require.True(t, now.Policies[1].Shadow)

	html := s.html(t)
	for _, want := range []string{
		"tenant …-42 apiKey …", `<span class="badge">shadow</span>`, "exposed to nobody", "token-bucket: capacity 3, refillPerDay 1",
		"<dd><span id=\"tile-allowed\">9.0</span>", "v1.2.3", "None of late.",
	} {
		require.Contains(t, html, want)
	}
	for _, secret := range []string{"secret1", "customer", "203.0", "alice"} {
		require.NotContains(t, html, secret)
	}
}

// TestPageBeforeAnything: a service that has only started has a page, too.
func TestPageBeforeAnything(t *testing.T) {
	s := newService(t, "policies: []", nil)
	html := s.html(t)
	require.Contains(t, html, "No policies are in force.")
	require.Contains(t, html, "No calls of late.")
	require.Contains(t, html, "Nothing is wrong that this instance knows of.")
	require.Contains(t, html, "</html>", "the template came to its end")
	require.NotContains(t, html, "cannot be shown")
}

// TestActions: buttons are there only where there is something behind them.
func TestActions(t *testing.T) {
	for _, there := range []bool{false, true} {
		s := newService(t, policies, func(o *page.Options) {
			o.Actions = there
			o.Blocks = func() []page.Block { return []page.Block{{Policy: "free", ID: "block-1"}} }
		})
		s.call(t, 5, "plan", "free", "api_key", "secret1", "tenant", "customer-42")
		html := s.html(t)
		for _, part := range []string{`data-action="reset"`, `data-action="refund"`, `data-action="block"`, `data-action="unblock"`, `id="dialog"`} {
			require.Equal(t, there, strings.Contains(html, part), part)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := newService(t, policies, nil)
	w := s.get("/", "Accept", "text/html")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	csp := w.Header().Get("Content-Security-Policy")
	require.Contains(t, csp, "default-src 'none'")
	require.NotContains(t, csp, "unsafe")
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "Accept", w.Header().Get("Vary"))
	require.NotRegexp(t, `<script>|<style| style=| on[a-z]+="|javascript:|https?://`, w.Body.String(), "nothing that the policy on contents forbids")
}

func TestJSONForPrograms(t *testing.T) {
	s := newService(t, policies, nil)
	s.call(t, 5, "plan", "free", "api_key", "secret1", "tenant", "customer-42")
	for _, path := range []string{"/", "/api/v1"} {
		w := s.get(path, "Accept", "*/*")
		require.Equal(t, "application/json", w.Header().Get("Content-Type"), path)
		for _, listed := range []string{"/api/v1/topkeys", "/api/v1/unmatched", "/api/v1/events"} {
			require.Contains(t, w.Body.String(), `"path": "`+listed+`"`)
		}
		require.NotContains(t, w.Body.String(), "/assets/")
	}
	var top struct {
		HalfLifeSeconds int
		Policies        []struct {
			Policy string
			Denied []struct {
				ID    string
				Calls float64
			}
		}
	}
	require.NoError(t, json.Unmarshal(s.get("/api/v1/topkeys").Body.Bytes(), &top))
	require.Equal(t, 30, top.HalfLifeSeconds)
	require.Equal(t, 2.0, top.Policies[0].Denied[0].Calls)
	_, ok := s.Keys.Resolve(top.Policies[0].Denied[0].ID)
	require.True(t, ok)
}

// TestHostileText: whatever a value is, it stands in the page as text.
func TestHostileText(t *testing.T) {
	const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{.}}`
	s := newService(t, policies, func(o *page.Options) {
		o.Instances = func() []page.Instance {
			return []page.Instance{{Name: evil, Build: evil, Policies: evil}, {Name: "\u202e\x00\xff", Policies: "b"}}
		}
		o.Blocks = func() []page.Block {
			return []page.Block{{Policy: evil, ID: evil, Key: evil, Reason: evil, Actor: evil}}
		}
		o.Changes = func() []page.Change {
			return []page.Change{{Actor: evil, Action: evil, Policy: evil, Key: evil, Detail: evil}}
		}
	})
	status := *s.status.Load()
	status.Policies.Error, status.Ready, status.NotReady = evil, false, evil
	status.Store.Redis = &admin.RedisStatus{Nodes: []admin.NodeStatus{{Node: evil, Breaker: evil, Reason: evil}}}
	s.status.Store(&status)
	s.call(t, 5, "plan", "free", "api_key", evil, "tenant", evil)
	s.call(t, 1, evil, evil, "plan", evil)
	s.callDomain(t, 1, evil, []string{"a", "b"})
	html := s.html(t)
	require.NotContains(t, html, "<script>alert")
	require.NotContains(t, html, "<img")
	require.Greater(t, strings.Count(html, "&lt;script&gt;"), 10)
	for _, path := range []string{"/api/v1/topkeys", "/api/v1/unmatched"} {
		require.True(t, json.Valid(s.get(path).Body.Bytes()))
	}
}

func TestAssets(t *testing.T) {
	s := newService(t, policies, nil)
	for _, name := range regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`).FindAllStringSubmatch(s.html(t), -1) {
		w := s.get(name[1])
		require.Equal(t, 200, w.Code, name[1])
		require.NotEmpty(t, w.Header().Get("ETag"))
		require.Equal(t, 304, s.get(name[1], "If-None-Match", w.Header().Get("ETag")).Code)
		kind := map[string]string{"js": "text/javascript; charset=utf-8", "ss": "text/css; charset=utf-8", "vg": "image/svg+xml"}
		require.Equal(t, kind[name[1][len(name[1])-2:]], w.Header().Get("Content-Type"))
	}
	for _, path := range []string{"/assets/", "/assets/page.html", "/assets/../page.go", "/assets/uplot", "/assets/x.js"} {
		require.NotEqual(t, 200, s.get(path).Code, path)
	}
}

// TestVendored: the plot library is what its authors have published as uPlot 1.6.32, with its licence.
func TestVendored(t *testing.T) {
	for name, want := range map[string]string{
		"LICENSE":   "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
		"uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uplot.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	} {
		b, err := os.ReadFile("assets/uplot/" + name)
		require.NoError(t, err)
		sum := sha256.Sum256(b)
		require.Equal(t, want, hex.EncodeToString(sum[:]), name)
	}
}

func TestQuantiles(t *testing.T) {
	require.Nil(t, page.QuantilesOf().P50)
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(64, 17e9).Draw(t, "nanoseconds"))
		got := page.QuantilesOf(d, d, d, time.Hour)
		require.InEpsilon(t, float64(d)/1e3, *got.P50, 0.07)
		require.InEpsilon(t, float64(d)/1e3, *got.P99, 0.07, "three of four")
	})
	for _, d := range []time.Duration{-1, 0, 1, time.Hour, 1 << 62} { // beyond what is told apart
		require.NotNil(t, page.QuantilesOf(d).P99)
	}
	many := make([]time.Duration, 0, 1000)
	for i := range 1000 {
		many = append(many, time.Duration(i+1)*time.Millisecond)
	}
	got := page.QuantilesOf(many...)
	require.InEpsilon(t, 500e3, *got.P50, 0.07)
	require.InEpsilon(t, 990e3, *got.P99, 0.07)
}

// TestPageIsBounded: the page of a service with two thousand policies and a great many keys is one that can be read.
func TestPageIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: edge\npolicies:\n")
	for i := range 2000 {
		fmt.Fprintf(&text, "  - {id: p%d, match: {plan: p%d}, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", i, i)
	}
	s := newService(t, text.String(), nil)
	for i := range 3000 {
		plan := "p" + strconv.Itoa(i%300)
		s.call(t, 1, "plan", plan, "tenant", "customer-"+strconv.Itoa(i))
		s.call(t, 1, "unknown"+strconv.Itoa(i), strings.Repeat("x", 5000))
	}
	now := time.Now()
	s.Second(now)
	s.Second(now.Add(time.Second))
	require.Less(t, len(s.html(t)), 500_000)
	view := s.Now()
	require.Len(t, view.Policies, 100)
	require.Equal(t, 1900, view.MorePolicies)
	require.Len(t, view.Keys, 30)
	require.Equal(t, 270, view.MoreKeys)
	require.LessOrEqual(t, len(view.Unmatched), 32)
}

// TestPolicyThatComesAgain: counters that begin anew give no rates of billions.
// A set that came into force since the counters were read may have its policies in another order: none shows the numbers of another one.
func TestNumbersAreThePolicysOwn(t *testing.T) {
	one := "  - {id: one, key: [ip], algorithm: token-bucket, capacity: 7, refillPerDay: 1, onStoreFailure: local}\n"
	two := "  - {id: two, key: [ip], algorithm: sliding-log, limit: 2, window: 1h, mode: shadow, onStoreFailure: open}\n"
	next := load(t, "domain: edge\npolicies:\n"+two+one)
	s := newService(t, "domain: edge\npolicies:\n"+one+two, func(o *page.Options) { o.Set = func() *policy.Set { return next } })
	s.Second(time.Now())
	got := map[string]page.PolicyRates{}
	for _, row := range s.Now().Policies {
		got[row.Policy] = row
	}
	require.Len(t, got, 2)
	require.Equal(t, next.Policy("one").Numbers.String(), got["one"].Numbers)
	require.False(t, got["one"].Shadow)
	require.Equal(t, next.Policy("two").Numbers.String(), got["two"].Numbers)
	require.True(t, got["two"].Shadow)
}

func TestPolicyThatComesAgain(t *testing.T) {
	allowed := uint64(1000)
	s := newService(t, policies, func(o *page.Options) {
		o.Counts = func(dst []metrics.Counts) []metrics.Counts {
			c := metrics.Counts{Policy: "free", Allowed: allowed}
			c.BySource[ratelimit.FromStore] = allowed
			return append(dst, c)
		}
	})
	now := time.Now()
	s.Second(now)
	allowed = 10
	s.Second(now.Add(time.Second))
	require.Zero(t, s.Now().Policies[0].Allowed)
	require.Zero(t, s.Now().Now.BySource["store"])
	allowed = 30
	s.Second(now.Add(2 * time.Second))
	require.Equal(t, 5.0, s.Now().Policies[0].Allowed)
	require.Equal(t, 20.0, s.Now().Now.BySource["store"])
}

// BenchmarkPage makes the page, from reading the counters to the last byte, after calls with a million distinct keys.
func BenchmarkPage(b *testing.B) {
	s := newService(b, policies, nil)
	for i := range 1_000_000 {
		s.call(b, 1, "plan", "free", "api_key", strconv.Itoa(i), "tenant", "customer-"+strconv.Itoa(i))
	}
	now := time.Now()
	for i := range 300 {
		s.Second(now.Add(time.Duration(i) * time.Second))
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		s.Second(now)
		s.html(b)
	}
}
