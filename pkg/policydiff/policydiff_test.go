package policydiff_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydiff"
)

// now is the time at which the tests compare.
var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func files(t require.TestingT, texts ...string) []*policy.File {
	var list []*policy.File
	for i, text := range texts {
		file, err := policy.Parse(fmt.Sprintf("%d.yaml", i), []byte(text))
		require.NoError(t, err)
		list = append(list, file)
	}
	_, err := policy.NewSet(list)
	require.NoError(t, err)
	return list
}

// one is a file with one policy p: base, with fields changed or added (name: value).
func one(fields ...string) string {
	set := []string{"id: p", "match: {plan: free}", "key: [ip]", "algorithm: token-bucket", "capacity: 20", "refillPerMinute: 100", "onStoreFailure: local"}
next:
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		for i := range set {
			if strings.HasPrefix(set[i], name+":") {
				if set[i] = f; value == "" {
					set[i] = ""
				}
				continue next
			}
		}
		set = append(set, f)
	}
	text := "policies:\n"
	first := true
	for _, f := range set {
		if f == "" {
			continue
		}
		if first {
			text, first = text+"  - "+f+"\n", false
		} else {
			text += "    " + f + "\n"
		}
	}
	return text
}

func compare(t require.TestingT, from, to string) *policydiff.Diff {
	return policydiff.Compare(files(t, from), files(t, to), now)
}

// override is an override for one client, with its numbers and an end.
func override(fields string) string {
	return "overrides: [{match: {ip: 192.0.2.1}, comment: why, " + fields + "}]"
}

const log = "algorithm: sliding-log"

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name     string
		from, to []string // fields
		verdict  policydiff.Verdict
		anew     bool
		want     string // part of the text
	}{
		{"less capacity", nil, []string{"capacity: 10"}, "stricter", false, "capacity: 20 -> 10  stricter  # buckets that hold more are cut"},
		{"more capacity", nil, []string{"capacity: 40"}, "looser", false, "capacity: 20 -> 40  looser  # buckets get no more at once"},
		{"slower", nil, []string{"refillPerMinute: 50"}, "stricter", false, "refill: 100 per minute -> 50 per minute  stricter"},
		{"another unit", nil, []string{"refillPerMinute:", "refillPerSecond: 2"}, "looser", false, "refill: 100 per minute -> 2 per second  looser"},
		{"the same in another unit", nil, []string{"refillPerMinute:", "refillPerHour: 6000"}, "neutral", false, "-> 6000 per hour\n"},
		{"more at once, fewer later", nil, []string{"capacity: 40", "refillPerMinute: 50"}, "both", false, "~ p  changed, stricter for some and looser for others"},
		{"to a log as narrow", nil, []string{log, "capacity:", "refillPerMinute:", "limit: 20", "window: 12s"}, "stricter", false, "algorithm: token-bucket: capacity 20, refillPerMinute 100 -> sliding-log: limit 20, window 12s  stricter  # buckets keep the share that is spent"},
		{"to a log that is wide", nil, []string{log, "capacity:", "refillPerMinute:", "limit: 40", "window: 12s"}, "looser", false, ""},
		{"a longer window", []string{log, "capacity:", "refillPerMinute:", "limit: 5", "window: 1m"}, []string{log, "capacity:", "refillPerMinute:", "limit: 5", "window: 2m"}, "stricter", false, "window: 1m -> 2m  stricter"},
		{"a higher limit", []string{log, "capacity:", "refillPerMinute:", "limit: 5", "window: 1m"}, []string{log, "capacity:", "refillPerMinute:", "limit: 6", "window: 1m"}, "looser", false, "limit: 5 -> 6  looser"},
		{"another key", nil, []string{"key: [tenant]"}, "both", true, "key: [ip] -> [tenant]  stricter for some"},
		{"another tag", nil, []string{"hashTag: tenant", "onMissingKey: skip"}, "neutral", true, "buckets start anew"},
		{"the tag it has anyway", nil, []string{"hashTag: ip"}, "neutral", false, "hashTag: ip (new)"},
		{"normalized", nil, []string{"normalize: lower"}, "both", true, "normalize: none -> lower"},
		{"for everybody", nil, []string{"match:"}, "stricter", false, "match: {plan: free} (gone)  stricter"},
		{"for one plan more", nil, []string{"match: {plan: [free, trial]}"}, "stricter", false, "match: {plan: free} -> {plan: [free, trial]}  stricter"},
		{"for any plan", nil, []string{`match: {plan: "*"}`}, "stricter", false, ""},
		{"for fewer", nil, []string{"match: {plan: free, tenant: acme}"}, "looser", false, "-> {plan: free, tenant: acme}  looser"},
		{"for others", nil, []string{"match: {plan: pro}"}, "both", false, ""},
		{"for those without", nil, []string{"match: {plan: absent}"}, "both", false, ""},
		{"a prefix", nil, []string{`match: {plan: "fr*"}`}, "stricter", false, ""},
		{"another prefix", nil, []string{`match: {plan: "pr*"}`}, "both", false, ""},
		{"a longer prefix", []string{`match: {plan: "f*"}`}, []string{`match: {plan: "fr*"}`}, "looser", false, ""},
		{"to shadow", nil, []string{"mode: shadow"}, "looser", true, "mode: enforce -> shadow  looser"},
		{"to shadow, and stricter", nil, []string{"mode: shadow", "capacity: 1"}, "looser", true, ""},
		{"from shadow, and looser", []string{"mode: shadow"}, []string{"mode: enforce", "capacity: 100"}, "stricter", true, ""},
		{"in shadow", []string{"mode: shadow"}, []string{"mode: shadow", "capacity: 1"}, "neutral", false, "~ p  changed, neutral"},
		{"closed", nil, []string{"onStoreFailure: closed", "onMissingKey: skip"}, "stricter", false, "onStoreFailure: local -> closed  stricter"},
		{"open", nil, []string{"onStoreFailure: open"}, "looser", false, "local -> open  looser"},
		{"needs its key", nil, []string{"onMissingKey: deny"}, "stricter", false, "onMissingKey: skip -> deny  stricter"},
		{"postpaid", nil, []string{"charge: postpaid"}, "both", false, "charge: prepaid -> postpaid"},
		{"overdraft", []string{"charge: postpaid", "overdraft: 5"}, []string{"charge: postpaid", "overdraft: 50"}, "looser", false, "overdraft: 5 -> 50  looser"},
		{"what is shown", nil, []string{"name: other", "expose: never", "advertise: sustained"}, "neutral", false, "name: p -> other\n    expose: always -> never\n    advertise: burst -> sustained\n"},
		{"an override", nil, []string{override("capacity: 200")}, "looser", false, "override {ip: 192.0.2.1}: token-bucket: capacity 200, refillPerMinute 100 (new)  looser  # why"},
		{"an override that bans", nil, []string{override("capacity: 0")}, "stricter", false, ""},
		{"an override that is over", nil, []string{override("capacity: 200, until: 2029-12-31")}, "neutral", false, "until 2029-12-31T00:00:00Z (new)  # why"},
		{"an override less", []string{override("capacity: 200")}, nil, "stricter", false, "(gone)  stricter"},
		{"an override that ends", []string{override("capacity: 200")}, []string{override("capacity: 200, until: 2031-01-01")}, "stricter", false, ""},
		{"an override that goes on", []string{override("capacity: 200, until: 2031-01-01")}, []string{override("capacity: 200, until: 2032-01-01")}, "looser", false, ""},
		{"an override ended", []string{override("capacity: 200")}, []string{override("capacity: 200, until: 2029-01-01")}, "stricter", false, ""},
		{"an override revived", []string{override("capacity: 200, until: 2029-01-01")}, []string{override("capacity: 200")}, "looser", false, ""},
		{"an override with other numbers", []string{override("capacity: 200")}, []string{override("capacity: 100")}, "stricter", false, "capacity 200, refillPerMinute 100 -> token-bucket: capacity 100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := compare(t, one(tt.from...), one(tt.to...))
			require.Len(t, d.Policies, 1)
			p := d.Policies[0]
			require.Equal(t, policydiff.Changed, p.Kind)
			require.Equal(t, tt.verdict, p.Verdict, d.String())
			require.Equal(t, tt.verdict, d.Verdict())
			require.Equal(t, tt.anew, p.Anew, d.String())
			require.Contains(t, d.String(), tt.want)
			require.Empty(t, d.Files)
		})
	}
}

func TestOrderOfOverrides(t *testing.T) {
	a, b := "{match: {ip: 192.0.2.1}, comment: a, capacity: 1}", `{match: {ip: "*"}, comment: b, capacity: 2}`
	d := compare(t, one("overrides: ["+a+", "+b+"]"), one("overrides: ["+b+", "+a+"]"))
	require.Equal(t, policydiff.Both, d.Verdict())
	require.Contains(t, d.String(), `order of overrides: [{ip: 192.0.2.1}, {ip: "*"}] -> [{ip: "*"}, {ip: 192.0.2.1}]`)
}

func TestWholePolicies(t *testing.T) {
	second := "  - {id: second, key: [], algorithm: sliding-log, limit: 5, window: 1h, mode: shadow, onStoreFailure: open}\n"
	d := compare(t, one("id: first"), one("id: p")+second)
	require.Equal(t, `2 added, 1 removed

+ p  added, neutral
    token-bucket: capacity 20, refillPerMinute 100, key [ip], match {plan: free}, onStoreFailure local
    the same as first, which is removed
    buckets start anew: each is full at first

+ second  added, neutral
    sliding-log: limit 5, window 1h, key [], mode shadow, onStoreFailure open

- first  removed, neutral
    token-bucket: capacity 20, refillPerMinute 100, key [ip], match {plan: free}, onStoreFailure local
`, d.String())

	d = compare(t, one("id: first"), one("capacity: 21"))
	require.Equal(t, policydiff.Both, d.Verdict(), "not the same: one more limit, one less")
	require.Contains(t, d.String(), "1 added, 1 removed: 1 stricter, 1 looser\n")
	d = compare(t, one(), one())
	require.True(t, d.Empty())
	require.Equal(t, policydiff.Neutral, d.Verdict())
	require.Equal(t, "no policy differs\n", d.String())
	d = compare(t, "# a comment\n"+one(), one("match: {\"plan\": \"free\"}"))
	require.True(t, d.Empty(), "as much as is said, not how")
}

func TestFiles(t *testing.T) {
	d := compare(t, "attributes: {x-a: tenant, x-b: user}\n"+one(), "ipv6Prefix: 56\nattributes: {x-a: account, x-c: user}\ndomain: edge\n"+one())
	require.Equal(t, `1 changed: 1 looser

ipv6Prefix: 64 -> 56  stricter  # buckets of IPv6 clients start anew

attributes.x-a: tenant (gone)  stricter for some and looser for others  # requests may get other attributes

attributes.x-a of domain edge: account (new)  stricter for some and looser for others  # requests may get other attributes

attributes.x-b: user (gone)  stricter for some and looser for others  # requests may get other attributes

attributes.x-c of domain edge: user (new)  stricter for some and looser for others  # requests may get other attributes

~ p  changed, looser
    domain: edge (new)  looser
`, d.String())
}

// TestVerdictIsTrue: whoever calls without a pause gets at any time at least as much from what is called looser, and the verdict of undoing a
// change is the opposite.
func TestVerdictIsTrue(t *testing.T) {
	type numbers struct {
		log            bool
		capacity, rate int // of a log: limit, seconds of its window
	}
	draw := rapid.Custom(func(t *rapid.T) numbers {
		return numbers{rapid.Bool().Draw(t, "log"), rapid.IntRange(1, 12).Draw(t, "capacity"), rapid.IntRange(1, 12).Draw(t, "rate")}
	})
	text := func(n numbers) string {
		if n.log {
			return one(log, "capacity:", "refillPerMinute:", fmt.Sprint("limit: ", n.capacity), fmt.Sprintf("window: %ds", n.rate))
		}
		return one(fmt.Sprint("capacity: ", n.capacity), "refillPerMinute:", fmt.Sprint("refillPerSecond: ", n.rate))
	}
	admitted := func(n numbers, seconds float64) float64 { // since the start, without a pause
		if n.log {
			return float64(n.capacity) * (math.Floor(seconds/float64(n.rate)) + 1)
		}
		return math.Floor(float64(n.capacity) + float64(n.rate)*seconds)
	}
	rapid.Check(t, func(t *rapid.T) {
		from, to := draw.Draw(t, "from"), draw.Draw(t, "to")
		there, back := compare(t, text(from), text(to)).Verdict(), compare(t, text(to), text(from)).Verdict()
		least, most := math.Inf(1), math.Inf(-1)
		for s := 0.0; s < 60; s += 0.25 {
			more := admitted(to, s) - admitted(from, s)
			least, most = min(least, more), max(most, more)
		}
		switch there {
		case policydiff.Neutral:
			require.True(t, least == 0 && most == 0)
			require.Equal(t, policydiff.Neutral, back)
		case policydiff.Looser:
			require.GreaterOrEqual(t, least, 0.0)
			require.Equal(t, policydiff.Stricter, back)
		case policydiff.Stricter:
			require.LessOrEqual(t, most, 0.0)
			require.Equal(t, policydiff.Looser, back)
		case policydiff.Both:
			require.Equal(t, policydiff.Both, back)
		}
	})
}
