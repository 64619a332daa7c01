package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policytest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// attributes are those of drawn requests and policies, with values that meet each other often.
var attributes = map[string][]string{
	"plan":   {"free", "pro", "FREE", "team"},
	"tenant": {"acme", "demo"},
	"ip":     {"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2", "192.0.2.2:80", "unknown"},
	"user":   {"alice", " Alice ", "bob", "a:b{c}"},
	"apiKey": {"k1", "k2"},
	"method": {"GET", "POST"},
	"path":   {"/x", "//x?q=1", "/y/./z"},
}

var names = []string{"plan", "tenant", "ip", "user", "apiKey", "method", "path"}

// beginning is when drawn requests begin. Drawn overrides end a little later.
var beginning = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func drawCondition(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		"plan: free", "plan: [pro, team]", "plan: absent", `plan: "*"`, `plan: "f*"`, "tenant: acme", "user: alice", "ip: 192.0.2.1",
		`route: "GET /x"`, `route: "POST /y/*"`, "method: POST", "path: /x", "apiKey: k1", "tenant: absent",
	}).Draw(t, "condition")
}

func drawNumbers(t *rapid.T) string {
	n := rapid.IntRange(0, 8).Draw(t, "capacity")
	if rapid.Bool().Draw(t, "log") {
		return fmt.Sprintf("algorithm: sliding-log, limit: %d, window: %s", n, rapid.SampledFrom([]string{"1s", "2500ms", "1m"}).Draw(t, "window"))
	}
	return fmt.Sprintf("algorithm: token-bucket, capacity: %d, refillPer%s: %d", n,
		rapid.SampledFrom([]string{"Second", "Minute"}).Draw(t, "unit"), rapid.IntRange(1, 70).Draw(t, "refill"))
}

// drawPolicy gives one, or what Load refuses.
func drawPolicy(t *rapid.T, id int) string {
	key := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"plan", "tenant", "ip", "user", "apiKey", "route"}), 0, 2, rapid.ID).Draw(t, "key")
	p := fmt.Sprintf("{id: p%d, key: [%s], %s", id, strings.Join(key, ", "), drawNumbers(t))
	if rapid.Bool().Draw(t, "matches") {
		p += ", match: {" + drawCondition(t) + "}"
	}
	if rapid.IntRange(0, 3).Draw(t, "shadow") == 0 {
		p += ", mode: shadow"
	}
	if rapid.Bool().Draw(t, "lower") {
		p += ", normalize: lower"
	}
	if len(key) > 0 && rapid.Bool().Draw(t, "override") {
		number := "capacity"
		if strings.Contains(p, "sliding-log") {
			number = "limit"
		}
		p += fmt.Sprintf(`, overrides: [{match: {%s: "*"}, %s: 4, comment: c, until: %s}]`, key[0], number,
			beginning.Add(15*time.Second).Format(time.RFC3339))
	}
	p += ", onMissingKey: " + rapid.SampledFrom([]string{"skip", "skip", "deny"}).Draw(t, "missing")
	return p + ", onStoreFailure: " + rapid.SampledFrom([]string{"local", "open", "closed"}).Draw(t, "mode") + "}"
}

func drawSet(t *rapid.T) *policy.Set {
	lines := []string{"domain: edge", "policies:"}
	for i := range rapid.IntRange(1, 5).Draw(t, "policies") {
		lines = append(lines, "- "+drawPolicy(t, i))
	}
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(strings.Join(lines, "\n") + "\n")})
	require.NoError(t, err)
	return set
}

// drawn is a request, and when it comes.
type drawn struct {
	at         time.Duration
	cost       uint64 // 0: none said
	attributes []descriptors.Attribute
}

func drawRequests(t *rapid.T, n int) []drawn {
	list := make([]drawn, n)
	at := time.Duration(0)
	for i := range list {
		at += time.Duration(rapid.SampledFrom([]int{0, 1, 40, 250, 600, 1001}).Draw(t, "pause")) * time.Millisecond
		list[i].at = at
		if rapid.IntRange(0, 3).Draw(t, "says its cost") == 0 {
			list[i].cost = rapid.Uint64Range(1, 9).Draw(t, "cost")
		}
		for _, name := range names {
			if rapid.IntRange(0, 4).Draw(t, "has") > 0 {
				list[i].attributes = append(list[i].attributes, descriptors.Attribute{Name: name, Value: rapid.SampledFrom(attributes[name]).Draw(t, name)})
			}
		}
		if len(list[i].attributes) == 0 {
			list[i].attributes = []descriptors.Attribute{{Name: "plan", Value: "free"}}
		}
	}
	return list
}

// verdict is what one way of asking says about a request.
type verdict struct {
	allowed bool
	by      string
}

// served decides requests as the service does, and has each explained before, by the buckets as they are.
func served(t *rapid.T, set *policy.Set, requests []drawn) (served, explained []verdict) {
	var at time.Duration
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 12, Now: func() int64 { return at.Microseconds() }})
	set = set.WithClock(func() time.Time { return beginning.Add(at) })
	var by string
	service := rls.NewService(ratelimit.New(ratelimit.Options{
		Store: store, Policies: set, OnDecision: func(d *ratelimit.Decision) { by = deniedBy(d) },
	}), rls.Hooks{})
	for _, r := range requests {
		at = r.at
		req := descriptors.Request{Domain: []byte("edge")}
		require.NoError(t, req.SetAttributes(r.attributes))
		if r.cost > 0 {
			req.SetCost(r.cost, false)
		}
		report := explain.Live(t.Context(), set, store, &req, false)
		explained = append(explained, verdict{report.Answer.Allowed, deniers(report)})
		var resp rls.Response
		require.NoError(t, service.ShouldRateLimit(t.Context(), &req, &resp))
		served = append(served, verdict{resp.Code == rls.OK, by})
	}
	return served, explained
}

// deniedBy names the enforced policies that denied.
func deniedBy(d *ratelimit.Decision) string {
	var ids []string
	for i := range d.Checks {
		if c := &d.Checks[i]; c.Denied() && !c.Shadow() {
			ids = append(ids, c.Policy.ID)
		}
	}
	return strings.Join(ids, " ")
}

func deniers(r *explain.Report) string {
	var ids []string
	for _, c := range r.Answer.Checks {
		if c.Denied && !c.Shadow {
			ids = append(ids, c.Policy)
		}
	}
	return strings.Join(ids, " ")
}

// simulated replays the requests as the log that they would have left.
func simulated(t *rapid.T, set *policy.Set, requests []drawn) (list []verdict) {
	var log strings.Builder
	for _, r := range requests {
		line := map[string]any{"start_time": beginning.Add(r.at).Format(time.RFC3339Nano)}
		for _, a := range r.attributes {
			line[a.Name] = a.Value
		}
		if r.cost > 0 {
			line["spent"] = r.cost
		}
		text, err := json.Marshal(line)
		require.NoError(t, err)
		log.Write(append(text, '\n'))
	}
	fields := []simulate.Field{{Name: "cost", Source: "spent"}}
	for _, name := range names {
		fields = append(fields, simulate.Field{Name: name, Source: name})
	}
	report, err := simulate.Run(t.Context(), strings.NewReader(log.String()), simulate.Options{
		Policies: set, Domain: "edge", Fields: fields,
		OnDecision: func(_ time.Time, d *ratelimit.Decision) {
			list = append(list, verdict{d.Allowed, deniedBy(d)})
		},
	})
	require.NoError(t, err)
	require.Zero(t, report.Lines.Bad)
	return list
}

// asTest writes the requests, and what is expected of each, as a test.
func asTest(requests []drawn, want []verdict) policy.Text {
	var b strings.Builder
	fmt.Fprintf(&b, "now: %s\ntests:\n- name: drawn\n  domain: edge\n  timeline:\n", beginning.Format(time.RFC3339))
	for i, r := range requests {
		fmt.Fprintf(&b, "  - at: %s\n", policy.FormatWindow(r.at.Microseconds()))
		b.WriteString("    attributes:\n")
		for _, a := range r.attributes {
			fmt.Fprintf(&b, "      %s: %q\n", a.Name, a.Value)
		}
		if r.cost > 0 {
			fmt.Fprintf(&b, "    cost: %d\n", r.cost)
		}
		if want[i].allowed {
			b.WriteString("    expect: allow\n")
			continue
		}
		fmt.Fprintf(&b, "    expect: deny\n    by: [%s]\n", strings.Join(strings.Fields(want[i].by), ", "))
	}
	return policy.Text{Path: "drawn_test.yaml", Data: []byte(b.String())}
}

// Under drawn policies, on 10,000 drawn requests in all (a hundred sets of policies with a hundred requests each), what serves, explains, simulates
// and tests says the same: whether, and by which policies.
func TestAgree(t *testing.T) {
	denied, total := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t)
		requests := drawRequests(t, 100)
		serve, explained := served(t, set, requests)
		require.Equal(t, serve, explained, "explain")
		require.Equal(t, serve, simulated(t, set, requests), "simulate")
		file, err := policytest.Parse(asTest(requests, serve))
		require.NoError(t, err)
		require.NoError(t, file.Check(set))
		results := file.Run(t.Context(), set)
		require.True(t, results[0].Passed, "test: %v", results[0].Faults)
		for _, v := range serve {
			total++
			if !v.allowed {
				denied++
			}
		}
	})
	require.GreaterOrEqual(t, total, 10_000)
	require.Greater(t, denied, total/20, "the drawn requests are too few to be denied")
	require.Less(t, denied, total*19/20)
}
