package simulate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// A log whose answer is known: a bucket of 10 that gets a token every second.
//   - quiet asks every 2 s: never denied.
//   - bursty asks 15 times at once: 5 denied, and 10 s later 15 times again: 5 denied.
//   - greedy asks 4 times a second for 60 s, 240 times in all: 10 and one a second are admitted.
func TestKnownAnswer(t *testing.T) {
	calls := times(30, "quiet", 0, 2*time.Second)
	calls = append(calls, times(15, "bursty", time.Second, 0)...)
	calls = append(calls, times(15, "bursty", 11*time.Second, 0)...)
	calls = append(calls, times(240, "greedy", 0, 250*time.Millisecond)...)
	slices.SortStableFunc(calls, func(a, b call) int { return int(a.at - b.at) })
	r := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "10", "60"))), DenyShare: 0.1})

	// From 0 s to 59.75 s, 59.75 tokens come in: 10 + 59 are admitted.
	const greedy = 240 - 69
	require.Equal(t, simulate.LineCounts{Replayed: 300}, r.Lines)
	require.EqualValues(t, 10+greedy, r.Denied)
	require.Equal(t, midnight, r.From)
	require.Equal(t, midnight.Add(59750*time.Millisecond), r.To)
	p := r.Policies[0]
	require.EqualValues(t, 300, p.Requests)
	require.EqualValues(t, 10+greedy, p.Denied)
	require.Equal(t, 3, p.Keys)
	require.Equal(t, simulate.Quantiles{P50: 10, P99: greedy, Max: greedy}, p.DenialsPerKey)
	require.Equal(t, []simulate.KeyReport{
		{hashOf("rl:{user:greedy}:api"), "api", 240, greedy},
		{hashOf("rl:{user:bursty}:api"), "api", 30, 10},
		{hashOf("rl:{user:quiet}:api"), "api", 30, 0},
	}, r.TopKeys)

	var allowed, denied int64
	for _, s := range p.Series.Slots {
		allowed, denied = allowed+s.Allowed, denied+s.Denied
	}
	require.EqualValues(t, []int64{300 - p.Denied, p.Denied}, []int64{allowed, denied})
	require.EqualValues(t, 1, p.Series.WidthSeconds)
	require.Equal(t, simulate.Slot{Allowed: 1 + 4}, p.Series.Slots[0])
	require.Equal(t, simulate.Slot{Allowed: 10 + 4, Denied: 5}, p.Series.Slots[1])

	// 30 of 300 may be denied. With a capacity of c, bursty loses 2(15-c) up to c = 10 and 15-c + 5 from there; greedy 240-c-59.
	g := p.Suggestion
	require.InDelta(t, float64(10+greedy)/300, g.Now.DenyShare, 1e-9)
	require.EqualValues(t, 151, g.Capacity.Capacity)
	require.InDelta(t, 30.0/300, g.Capacity.DenyShare, 1e-9)
	require.EqualValues(t, 60, g.Capacity.Refill)
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

func TestSlidingLogKnownAnswer(t *testing.T) {
	// 5 in any minute; 20 calls, one every 5 s: 12 in any minute.
	r := run(t, log(times(20, "a", 0, 5*time.Second)...), simulate.Options{
		Policies: policies(t, perUser("algorithm: sliding-log, limit: 5, window: 60s")),
	})
	require.EqualValues(t, 20-10, r.Denied, "5 at once, and 5 more from the 60th second on")
	require.EqualValues(t, 12, r.Policies[0].Suggestion.Capacity.Capacity)
	require.Nil(t, r.Policies[0].Suggestion.Refill)
	require.Nil(t, r.Policies[0].Suggestion.Both)
	require.Contains(t, textOf(t, r), "other limit")
}

func TestReading(t *testing.T) {
	text := log(times(20, "a", 0, time.Second)...)
	var zipped bytes.Buffer
	for half := range strings.SplitAfterSeq(text, "\n") { // many members, as of logs that were put together
		z := gzip.NewWriter(&zipped)
		_, err := io.WriteString(z, half)
		require.NoError(t, err)
		require.NoError(t, z.Close())
	}
	o := simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "5", "1")))}
	want := run(t, text, o)
	require.EqualValues(t, 15, want.Denied)
	for name, in := range map[string]io.Reader{
		"byte by byte":     iotest.OneByteReader(strings.NewReader(text)),
		"without last end": strings.NewReader(strings.TrimSuffix(text, "\n")),
		"CR LF":            strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")),
		"gzip":             bytes.NewReader(zipped.Bytes()),
	} {
		got, err := simulate.Run(t.Context(), in, o)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}

	_, err := simulate.Run(t.Context(), bytes.NewReader(zipped.Bytes()[:zipped.Len()-5]), o)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = simulate.Run(t.Context(), io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe)), o)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorContains(t, err, "line 20: ")
	for _, empty := range []string{"", "\n\n", "nothing\n"} {
		_, err = simulate.Run(t.Context(), strings.NewReader(empty), o)
		require.ErrorIs(t, err, simulate.ErrNothingRead)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lines := int64(0)
	_, err := simulate.Run(ctx, strings.NewReader(log(times(10_000, "a", 0, time.Second)...)), simulate.Options{
		Policies: policies(t, perUser(fmt.Sprintf(tokens, "5", "1"))),
		Progress: func(n int64) { lines = n; cancel() },
	})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 4096, lines)
}

func TestBadLines(t *testing.T) {
	good := call{user: "a"}.json()
	lines := []string{
		good, "", "{", `{"user":"a"}`, `{"start_time":"yesterday","user":"a"}`, strings.Repeat("x", 300<<10), "some text", good, "\x00",
		strings.Replace(good, "2026", "1969", 1), strings.Repeat("y", 256<<10-1), good,
	}
	r := run(t, strings.Join(lines, "\n"), simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "5", "1")))})
	require.Equal(t, simulate.LineCounts{Replayed: 3, Bad: 9}, r.Lines)
	require.Equal(t, []simulate.BadLine{
		{2, "is empty"},
		{3, "begins as JSON and is none"},
		{4, "has no time"},
		{5, "has a time that is neither RFC 3339, nor as in common log format, nor seconds since 1970"},
		{6, "is longer than 262144 bytes"},
	}, r.BadLines)
	require.Contains(t, textOf(t, r), "9 lines could not be read:\n  line 2 is empty\n")
}

// Lines of one key in any order within the bound are decided as if they were in order; one that is later counts as of the time before.
func TestOutOfOrder(t *testing.T) {
	o := simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "1", "60"))), Reorder: 5 * time.Second}
	at := func(seconds ...int) string {
		var calls []call
		for _, s := range seconds {
			calls = append(calls, call{at: time.Duration(s) * time.Second, user: "a"})
		}
		return log(calls...)
	}
	r := run(t, at(4, 3, 5, 1, 2, 6, 8, 7), o)
	require.Zero(t, r.Denied)
	require.Zero(t, r.Lines.Late)

	r = run(t, at(20, 30, 10), o)
	require.EqualValues(t, 1, r.Lines.Late)
	require.EqualValues(t, 1, r.Denied, "10 counts as 20")
	require.Equal(t, midnight.Add(20*time.Second), r.From)
	require.Contains(t, textOf(t, r), "1 line too far out of order")
}

func TestDeniedBefore(t *testing.T) {
	text := `{"start_time":1769817600,"user":"a","response_code":200}
{"start_time":1769817600,"user":"a","response_code":429}
{"start_time":1769817600,"user":"a","response_code":"429"}
`
	o := simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "1", "60")))}
	r := run(t, text, o)
	require.Equal(t, simulate.LineCounts{Replayed: 3, DeniedBefore: 2}, r.Lines)
	require.EqualValues(t, 2, r.Denied)
	o.SkipDenied = true
	r = run(t, text, o)
	require.Equal(t, simulate.LineCounts{Replayed: 1, Skipped: 2}, r.Lines)
	require.Zero(t, r.Denied)
}

func TestCost(t *testing.T) {
	calls := []call{{user: "a", cost: 4}, {user: "a", cost: 4}, {user: "a", cost: 2}, {user: "a", cost: 11}}
	o := simulate.Options{
		Policies: policies(t, perUser(fmt.Sprintf(tokens, "10", "60")), "id: all, key: [], onStoreFailure: open, algorithm: token-bucket, capacity: 9, refillPerDay: 1"),
		Fields:   []simulate.Field{{Name: "cost", Source: "tokens"}},
	}
	r := run(t, log(calls...), o)
	require.EqualValues(t, 2, r.Denied, "2 by all, which has 1 left, and 11, which is more than either holds")
	require.EqualValues(t, 1, r.Policies[0].Denied)
	require.EqualValues(t, 1, r.Policies[0].Never)
	require.EqualValues(t, 2, r.Policies[1].Denied)

	text := `{"start_time":1,"user":"a","tokens":0}` + "\n" + `{"start_time":1,"user":"a","tokens":18446744073709551615}`
	r = run(t, text+"\n"+strings.Replace(text, "0}", "-1}", 1), o)
	require.EqualValues(t, 2, r.Denied, "nobody has so much")
	require.EqualValues(t, 1, r.Lines.Bad)
}

// A postpaid policy is asked whether there is anything left, and charged all the same.
func TestPostpaid(t *testing.T) {
	calls := []call{{user: "a", cost: 15}, {at: time.Second, user: "a", cost: 15}, {at: 10 * time.Second, user: "a", cost: 1}}
	r := run(t, log(calls...), simulate.Options{
		Policies: policies(t, perUser("charge: postpaid, "+fmt.Sprintf(tokens, "10", "60"))),
		Fields:   []simulate.Field{{Name: "cost", Source: "tokens"}},
	})
	require.EqualValues(t, 1, r.Denied, "in debt by 4 at the second call, out of it at the third")
	require.Nil(t, r.Policies[0].Suggestion)
}

func TestWhoIsCounted(t *testing.T) {
	set := policies(t,
		"id: shadow, mode: shadow, key: [user], onStoreFailure: open, "+fmt.Sprintf(tokens, "1", "1"),
		"id: vip, key: [user], onStoreFailure: open, "+fmt.Sprintf(tokens, "1", "1")+", overrides: [{match: {user: v}, capacity: 100, comment: c}]",
		"id: skips, key: [tenant], onStoreFailure: open, "+fmt.Sprintf(tokens, "1", "1"),
		"id: insists, key: [tenant], match: {user: x}, onMissingKey: deny, onStoreFailure: open, "+fmt.Sprintf(tokens, "1", "1"),
	)
	calls := slices.Concat(times(3, "v", 0, 0), times(2, "w", 0, 0), times(1, "x", 0, 0))
	r := run(t, log(calls...), simulate.Options{Policies: set, MaxKeys: 3, Fields: []simulate.Field{{Name: "plan", Source: "x-plan"}}})
	shadow, vip, skips, insists := r.Policies[0], r.Policies[1], r.Policies[2], r.Policies[3]
	require.True(t, shadow.Shadow)
	require.EqualValues(t, 3, shadow.Denied, "2 of v, and 1 of w, which vip denies, too")
	require.EqualValues(t, 2, r.Denied)
	require.EqualValues(t, 3, vip.Overridden)
	require.EqualValues(t, 1, vip.Denied)
	require.EqualValues(t, 6, skips.Skipped)
	require.Zero(t, skips.Requests)
	require.EqualValues(t, 1, insists.Never)
	require.EqualValues(t, 4, shadow.Uncounted+vip.Uncounted, "w under vip, and x")
	text := textOf(t, r)
	require.Contains(t, text, "shadow (shadow)")
	require.Contains(t, text, "vip: 3 requests were decided by an override's numbers")
	require.Contains(t, text, "skips: 6 requests lack the key")
	require.Contains(t, text, "insists: 1 denial is for ever")
	require.Contains(t, text, "no policy has a use for: plan")
}

func TestTenMostHitKeys(t *testing.T) {
	var calls []call
	for user := range 30 {
		calls = append(calls, times(1+(user*7)%30, fmt.Sprint(user), 0, 0)...)
	}
	r := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "1", "1")))})
	require.Len(t, r.TopKeys, 10)
	for i, k := range r.TopKeys {
		require.EqualValues(t, 30-i, k.Requests)
		require.EqualValues(t, 29-i, k.Denied)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	file, err := policy.Parse("p.yaml", []byte("domain: edge\npolicies:\n  - {"+perUser(fmt.Sprintf(tokens, "1", "1"))+"}\n"))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	for want, o := range map[string]simulate.Options{
		"no policies":                     {},
		`no policy file serves domain ""`: {Policies: set},
		"must be at least 0":              {Policies: set, Domain: "edge", DenyShare: 1},
	} {
		_, err := simulate.Run(t.Context(), strings.NewReader(""), o)
		require.ErrorContains(t, err, want)
	}
}
