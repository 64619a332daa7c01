package rlheaders_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

const policies = `
policies:
  - {id: api-free, name: free, key: [apiKey], algorithm: token-bucket, capacity: 20, refillPerMinute: 100, onStoreFailure: local}
  - {id: document, key: [apiKey], algorithm: token-bucket, capacity: 100, refillPerMinute: 100, onStoreFailure: local}
  - {id: sustained, key: [apiKey], algorithm: token-bucket, capacity: 20, refillPerMinute: 100, advertise: sustained, onStoreFailure: local}
  - {id: fast, key: [apiKey], algorithm: token-bucket, capacity: 5, refillPerSecond: 1000, onStoreFailure: local}
  - {id: slow, key: [apiKey], algorithm: token-bucket, capacity: 10, refillPerDay: 0.5, onStoreFailure: local}
  - {id: spend, key: [apiKey], algorithm: token-bucket, capacity: 60, refillPerMinute: 1, onStoreFailure: local}
  - {id: log, key: [apiKey], algorithm: sliding-log, limit: 10, window: 90s, onStoreFailure: closed}
  - {id: blink, key: [apiKey], algorithm: sliding-log, limit: 10, window: 500ms, onStoreFailure: closed}
  - {id: ceiling, key: [tenant], algorithm: token-bucket, capacity: 20000, refillPerMinute: 20000, expose: onReject, onStoreFailure: open}
  - {id: login, key: [ip], algorithm: sliding-log, limit: 10, window: 60s, expose: never, onStoreFailure: closed}
  - {id: trial, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, mode: shadow, onStoreFailure: open}
  - {id: 'a "q" \z', key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}
  - {id: nothing, key: [ip], algorithm: token-bucket, capacity: 0, refillPerDay: 1, onStoreFailure: open}
`

func load(t testing.TB, text string) *policy.Set {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(text))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	return s
}

// decision builds one from checks, each by policy id.
type check struct {
	id     string
	known  bool
	result ratelimit.Result
}

func decide(set *policy.Set, checks ...check) *ratelimit.Decision {
	d := &ratelimit.Decision{Allowed: true, Set: set}
	for _, c := range checks {
		for _, p := range set.Policies() {
			if p.ID != c.id {
				continue
			}
			d.Checks = append(d.Checks, ratelimit.Check{Policy: p, Numbers: &p.Numbers, Known: c.known, Result: c.result})
			if c.result.Outcome == ratelimit.Denied && p.Mode != policy.Shadow {
				d.Allowed = false
			}
		}
	}
	return d
}

func left(id string, remaining float64) check {
	return check{id, true, ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: remaining}}
}

func leftUntil(id string, remaining float64, reset time.Duration) check {
	c := left(id, remaining)
	c.result.Reset = reset
	return c
}

func denied(id string, wait time.Duration) check {
	return check{id, true, ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromStore, Wait: wait}}
}

func unasked(id string, o ratelimit.Outcome, s ratelimit.Source) check {
	return check{id, false, ratelimit.Result{Outcome: o, Source: s}}
}

// TestLongNames: an item of up to 60 bytes is kept otherwise than a longer one.
func TestLongNames(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	const longest = 64
	for n := 1; n <= longest; n++ {
		fmt.Fprintf(&text, "  - {id: p%d, name: %q, key: [], algorithm: token-bucket, capacity: 20, refillPerSecond: 1, onStoreFailure: local}\n", n, strings.Repeat("\"", n%2)+strings.Repeat("n", n-n%2))
	}
	set := load(t, text.String())
	for n := longest; n > 0; n-- {
		name := strings.Repeat(`\"`, n%2) + strings.Repeat("n", n-n%2)
		var r rlheaders.Renderer
		var a rlheaders.Answer
		r.Render(decide(set, left(fmt.Sprint("p", n), 19)), &a)
		require.Equal(t, `"`+name+`";q=20;w=20`, string(a.Policy))
		require.Equal(t, `"`+name+`";r=19;t=19`, string(a.RateLimit))
	}
}

func TestRender(t *testing.T) {
	set := load(t, policies)
	tests := []struct {
		name                          string
		checks                        []check
		policy, rateLimit, retryAfter string
		binding                       string
	}{
		{"nothing applies", nil, "", "", "", ""},
		{"the worked example", []check{left("api-free", 19), left("ceiling", 19999)}, `"free";q=20;w=12`, `"free";r=19;t=12`, "", "api-free"},
		{"the document's numbers", []check{left("document", 73.2)}, `"document";q=100;w=60`, `"document";r=73;t=44`, "", "document"},
		{"the 21st call", []check{denied("api-free", 600*time.Millisecond), left("ceiling", 19999)}, `"free";q=20;w=12`, `"free";r=0;t=1`, "1", "api-free"},
		{"sustained", []check{left("sustained", 19)}, `"sustained";q=100;w=60`, `"sustained";r=19;t=12`, "", "sustained"},
		{"nothing left: until there is one", []check{left("spend", 0.5)}, `"spend";q=60;w=3600`, `"spend";r=0;t=30`, "", "spend"},
		{"w is at least 1", []check{left("fast", 4)}, `"fast";q=5;w=1`, `"fast";r=4;t=1`, "", "fast"},
		{"slow", []check{left("slow", 9)}, `"slow";q=10;w=1728000`, `"slow";r=9;t=1555200`, "", "slow"},
		{"log", []check{leftUntil("log", 7, 31*time.Second+1)}, `"log";q=10;w=90`, `"log";r=7;t=32`, "", "log"},
		{"empty log, looked at", []check{left("log", 10)}, `"log";q=10;w=90`, `"log";r=10`, "", "log"},
		{"window below a second", []check{leftUntil("blink", 9, 500*time.Millisecond)}, `"blink";q=10;w=1`, `"blink";r=9;t=1`, "", "blink"},
		{"most constraining first", []check{left("document", 50), left("api-free", 3)}, `"free";q=20;w=12, "document";q=100;w=60`, `"free";r=3;t=2, "document";r=50;t=30`, "", "api-free"},
		{"field case: the drained one is named", []check{left("document", 56), denied("spend", 3000*time.Second)}, `"spend";q=60;w=3600, "document";q=100;w=60`, `"spend";r=0;t=3000, "document";r=56`, "3000", "spend"},
		{"the longest wait", []check{denied("api-free", time.Second), denied("spend", time.Minute+1)}, `"spend";q=60;w=3600, "free";q=20;w=12`, `"spend";r=0;t=61, "free";r=0;t=1`, "61", "spend"},
		{"shown when it denies", []check{left("api-free", 5), denied("ceiling", time.Millisecond)}, `"ceiling";q=20000;w=60, "free";q=20;w=12`, `"ceiling";r=0;t=1, "free";r=5`, "1", "ceiling"},
		{"never shown", []check{denied("login", 9*time.Second)}, "", "", "9", "login"},
		{"shadow", []check{denied("trial", time.Hour), left("api-free", 5)}, `"free";q=20;w=12`, `"free";r=5;t=3`, "", "api-free"},
		{"never again: no Retry-After", []check{unasked("api-free", ratelimit.Denied, ratelimit.FromNever), denied("spend", time.Minute)}, `"free";q=20;w=12, "spend";q=60;w=3600`, `"spend";r=0;t=60`, "", "api-free"},
		{"missing key", []check{unasked("api-free", ratelimit.Denied, ratelimit.FromMissingKey)}, `"free";q=20;w=12`, "", "", "api-free"},
		{"not asked", []check{unasked("nothing", ratelimit.Denied, ratelimit.FromNever), unasked("api-free", 0, 0)}, `"nothing";q=0;w=1, "free";q=20;w=12`, "", "", "nothing"},
		{"store failed, open", []check{unasked("api-free", ratelimit.Admitted, ratelimit.FromOpen)}, `"free";q=20;w=12`, "", "", "api-free"},
		{"store failed, closed", []check{unasked("log", ratelimit.Denied, ratelimit.FromClosed)}, `"log";q=10;w=90`, "", "1", "log"},
		{"in debt", []check{left("api-free", -5)}, `"free";q=20;w=12`, `"free";r=0;t=4`, "", "api-free"},
		{"more than an integer may be", []check{left("slow", 1e18)}, `"slow";q=10;w=1728000`, `"slow";r=999999999999999;t=999999999999999`, "", "slow"},
		{"a wait beyond all time", []check{denied("slow", math.MaxInt64)}, `"slow";q=10;w=1728000`, `"slow";r=0;t=9223372037`, "9223372037", "slow"},
		{"a debt beyond all time", []check{left("slow", -1e9)}, `"slow";q=10;w=1728000`, `"slow";r=0;t=9223372036855`, "", "slow"},
		{"two buckets of one policy: the stricter", []check{left("api-free", 7), left("api-free", 2), left("api-free", 9)}, `"free";q=20;w=12`, `"free";r=2;t=2`, "", "api-free"},
		{"a name that needs quoting", []check{left(`a "q" \z`, 0)}, `"a \"q\" \\z";q=1;w=86400`, `"a \"q\" \\z";r=0;t=86400`, "", `a "q" \z`},
	}
	var r rlheaders.Renderer
	var a rlheaders.Answer
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(set, tt.checks...)
			r.Render(d, &a)
			require.Equal(t, tt.policy, string(a.Policy))
			require.Equal(t, tt.rateLimit, string(a.RateLimit))
			require.Equal(t, tt.retryAfter, string(a.RetryAfter))
			require.Equal(t, d.Allowed, len(a.Body) == 0)
			if tt.binding == "" {
				require.Nil(t, a.Binding)
				return
			}
			require.Equal(t, tt.binding, a.Binding.Policy.ID)
		})
	}
}

func TestProblem(t *testing.T) {
	set := load(t, policies)
	tests := []struct {
		name   string
		checks []check
		want   string
	}{
		{"one", []check{denied("api-free", time.Second)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"free","violated-policies":["free"],"retryAfterSeconds":1}`},
		{"two, the strictest first", []check{denied("api-free", time.Second), left("document", 3), denied("spend", time.Minute)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"spend","violated-policies":["spend","free"],"retryAfterSeconds":60}`},
		{"hidden", []check{denied("login", time.Second)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","retryAfterSeconds":1}`},
		{"hidden beside shown", []check{denied("login", time.Hour), denied("api-free", time.Second)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"free","violated-policies":["free"],"retryAfterSeconds":3600}`},
		{"for ever", []check{unasked("api-free", ratelimit.Denied, ratelimit.FromNever)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"free","violated-policies":["free"]}`},
		{"not counted", []check{unasked("log", ratelimit.Denied, ratelimit.FromClosed)}, `{"type":"/errors/temporary-reduced-capacity","title":"Temporary reduced capacity","status":429,"code":"TEMPORARY_REDUCED_CAPACITY","policy":"log","violated-policies":["log"],"retryAfterSeconds":1}`},
		{"quoting", []check{denied(`a "q" \z`, time.Second)}, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"a \"q\" \\z","violated-policies":["a \"q\" \\z"],"retryAfterSeconds":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r rlheaders.Renderer
			var a rlheaders.Answer
			r.Render(decide(set, tt.checks...), &a)
			require.Equal(t, tt.want, string(a.Body))
			require.True(t, json.Valid(a.Body))
		})
	}
}

// TestFieldsAreStructured: whatever was decided, the fields are what a structured-fields library makes of the same values.
func TestFieldsAreStructured(t *testing.T) {
	set := load(t, policies)
	ids := []string{}
	for _, p := range set.Policies() {
		ids = append(ids, p.ID)
	}
	var r rlheaders.Renderer
	var a rlheaders.Answer
	rapid.Check(t, func(t *rapid.T) {
		var checks []check
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, 5, rapid.ID).Draw(t, "ids") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				checks = append(checks, denied(id, time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "wait"))))
			case 1:
				checks = append(checks, unasked(id, ratelimit.Denied, ratelimit.FromNever))
			default:
				checks = append(checks, leftUntil(id, rapid.Float64Range(-10, 1e19).Draw(t, "left"), time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "reset"))))
			}
		}
		r.Render(decide(set, checks...), &a)
		for _, field := range []string{string(a.Policy), string(a.RateLimit)} {
			if field == "" {
				continue
			}
			list, err := httpsfv.UnmarshalList([]string{field})
			require.NoError(t, err, field)
			again, err := httpsfv.Marshal(list)
			require.NoError(t, err)
			require.Equal(t, again, field)
			for _, m := range list {
				item := m.(httpsfv.Item)
				require.IsType(t, "", item.Value)
				for _, name := range item.Params.Names() {
					v, _ := item.Params.Get(name)
					require.GreaterOrEqual(t, v.(int64), int64(0), field)
				}
			}
		}
	})
}

func TestNothingFromClientsInHeaders(t *testing.T) {
	// Names come from policy files, which the loader holds to printable ASCII: the fields can carry nothing else.
	for _, name := range []string{"a\nb", "a\x00", "ä", "a\tb"} {
		_, err := policy.Parse("p.yaml", fmt.Appendf(nil, "policies:\n  - {id: x, name: %q, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", name))
		require.Error(t, err, "%q", name)
		require.True(t, strings.Contains(err.Error(), "name"), err)
	}
}

func TestRenderFollowsTheSet(t *testing.T) {
	var r rlheaders.Renderer
	var a rlheaders.Answer
	one := load(t, "policies:\n  - {id: x, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n")
	two := load(t, "policies:\n  - {id: y, key: [ip], algorithm: sliding-log, limit: 3, window: 1s, onStoreFailure: open}\n  - {id: x, key: [ip], algorithm: token-bucket, capacity: 2, refillPerDay: 1, onStoreFailure: open}\n")
	r.Prepare(one)
	for range 2 {
		r.Prepare(two)
		r.Render(decide(one, left("x", 1)), &a)
		require.Equal(t, `"x";q=1;w=86400`, string(a.Policy))
		r.Render(decide(two, left("x", 1)), &a)
		require.Equal(t, `"x";q=2;w=172800`, string(a.Policy))
	}
}

// BenchmarkPrepare is what a reload costs the renderer.
func BenchmarkPrepare(b *testing.B) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "  - {id: p%d, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", i)
	}
	set := load(b, text.String())
	for b.Loop() {
		var r rlheaders.Renderer
		r.Prepare(set)
	}
}
