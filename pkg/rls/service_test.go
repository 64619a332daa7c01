package rls_test

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// desk is a service on the embedded store with a clock of its own, and what its hooks were told.
type desk struct {
	t       *testing.T
	service *rls.Service
	now     atomic.Int64
	events  map[string]int
}

func newDesk(t *testing.T, policies string) *desk {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	d := &desk{t: t, events: map[string]int{}}
	l := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{Now: d.now.Load})})
	l.Use(set)
	d.service = rls.NewService(l, rls.Hooks{
		OnRefused:       func(string) { d.events["refused"]++ },
		OnUnknownDomain: func([]byte) { d.events["unknown domain"]++ },
		OnUnmatched:     func(_ []byte, n int) { d.events["unmatched"] += n },
		OnUnfed: func(r *descriptors.Request, used uint64) {
			d.events["unfed"] += len(r.Descriptors) - bits.OnesCount64(used)
		},
		OnTruncated:    func([]byte) { d.events["truncated"]++ },
		OnLimitIgnored: func(_ []byte, n int) { d.events["limit ignored"] += n },
	})
	return d
}

func entries(pairs ...string) descriptors.Descriptor {
	var d descriptors.Descriptor
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, descriptors.Entry{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return d
}

func hits(d descriptors.Descriptor, n uint64, negative bool) descriptors.Descriptor {
	d.HitsAddend, d.HasHits, d.IsNegativeHits = n, true, negative
	return d
}

func (d *desk) call(cost uint32, list ...descriptors.Descriptor) (*rls.Response, map[string]string) {
	d.t.Helper()
	var resp rls.Response
	req := descriptors.Request{Domain: []byte("edge"), Descriptors: list, HitsAddend: cost}
	require.NoError(d.t, d.service.ShouldRateLimit(d.t.Context(), &req, &resp))
	require.NotZero(d.t, resp.Code, "Envoy takes UNKNOWN for allowed")
	require.Len(d.t, resp.Statuses, len(list))
	headers := map[string]string{}
	for _, h := range resp.Headers {
		headers[h.Name] = string(h.Value)
	}
	return &resp, headers
}

const worked = `
domain: edge
policies:
  - {id: api-free, name: free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny, algorithm: token-bucket, capacity: 20, refillPerMinute: 100, onStoreFailure: local}
  - {id: tenant-ceiling, key: [tenant], algorithm: token-bucket, capacity: 20000, refillPerMinute: 20000, expose: onReject, onStoreFailure: open}
`

func TestWorkedExample(t *testing.T) {
	d := newDesk(t, worked)
	free, tenant := entries("plan", "free", "api_key", "secret1"), entries("tenant", "acme")
	resp, headers := d.call(0, free, tenant)
	require.Equal(t, rls.OK, resp.Code)
	require.Equal(t, map[string]string{"ratelimit-policy": `"free";q=20;w=12`, "ratelimit": `"free";r=19;t=12`}, headers)
	require.Equal(t, rls.Status{Code: rls.OK, HasLimit: true, RequestsPerUnit: 100, Unit: rls.Minute, Remaining: 19, ResetSeconds: 12}, resp.Statuses[0])
	require.Equal(t, rls.Status{Code: rls.OK}, resp.Statuses[1], "the ceiling shows its numbers only when it denies")
	require.Equal(t, "api-free", resp.Policy)
	require.Equal(t, "store", resp.Source)
	require.Empty(t, resp.Body)

	for range 19 {
		resp, _ = d.call(0, free, tenant)
		require.Equal(t, rls.OK, resp.Code)
	}
	resp, headers = d.call(0, free, tenant)
	require.Equal(t, rls.OverLimit, resp.Code)
	require.Equal(t, map[string]string{
		"ratelimit-policy": `"free";q=20;w=12`, "ratelimit": `"free";r=0;t=1`, "retry-after": "1",
		"content-type": "application/problem+json", "cache-control": "no-store",
	}, headers)
	require.JSONEq(t, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"free","violated-policies":["free"],"retryAfterSeconds":1}`, string(resp.Body))
	require.Equal(t, []rls.Status{
		{Code: rls.OverLimit, HasLimit: true, RequestsPerUnit: 100, Unit: rls.Minute, ResetSeconds: 1},
		{Code: rls.OK},
	}, resp.Statuses)
	require.Equal(t, "api-free", resp.Policy)
}

func TestField_DefinedAnswers(t *testing.T) {
	d := newDesk(t, worked)
	for name, req := range map[string]descriptors.Request{
		"empty domain":   {Descriptors: []descriptors.Descriptor{entries("plan", "free")}},
		"no descriptors": {Domain: []byte("edge")},
	} {
		err := d.service.ShouldRateLimit(t.Context(), &req, new(rls.Response))
		require.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
	require.Equal(t, 2, d.events["refused"])

	for _, odd := range []descriptors.Descriptor{{}, entries("", ""), entries("", "x"), entries("nobody", "knows"), entries("plan", "gold")} {
		resp, headers := d.call(0, odd)
		require.Equal(t, rls.OK, resp.Code)
		require.Empty(t, headers)
		require.Equal(t, rls.OK, resp.Statuses[0].Code)
	}
	require.Equal(t, 5, d.events["unmatched"])
	require.Equal(t, 5, d.events["unfed"])

	var resp rls.Response
	req := descriptors.Request{Domain: []byte("elsewhere"), Descriptors: []descriptors.Descriptor{entries("tenant", "acme")}}
	require.NoError(t, d.service.ShouldRateLimit(t.Context(), &req, &resp))
	require.Equal(t, rls.OK, resp.Code)
	require.Equal(t, 1, d.events["unknown domain"])
}

func TestField_Costs(t *testing.T) {
	const one = "policies:\n  - {id: p, key: [k], algorithm: token-bucket, capacity: 20, refillPerMinute: 1, onStoreFailure: local}\n"
	k := entries("k", "x")
	d := newDesk(t, one)
	resp, headers := d.call(21, k)
	require.Equal(t, rls.OverLimit, resp.Code)
	require.NotContains(t, headers, "retry-after")
	require.Equal(t, "never", resp.Source)
	for _, n := range []uint64{math.MaxUint32, math.MaxUint64} {
		resp, headers = d.call(0, hits(k, n, false))
		require.Equal(t, rls.OverLimit, resp.Code)
		require.NotContains(t, headers, "retry-after")
	}
	resp, headers = d.call(0, hits(k, 0, false))
	require.Equal(t, rls.OK, resp.Code, "a look")
	require.Equal(t, `"p";r=20;t=1200`, headers["ratelimit"], "nothing was charged so far")
	resp, headers = d.call(20, k)
	require.Equal(t, rls.OK, resp.Code, "20 on full")
	require.Equal(t, `"p";r=0;t=60`, headers["ratelimit"])
	resp, headers = d.call(0, hits(k, 0, false))
	require.Equal(t, rls.OverLimit, resp.Code, "a look tells what a call would get")
	require.Equal(t, "60", headers["retry-after"])
	resp, headers = d.call(0, hits(k, 3, true))
	require.Equal(t, rls.OK, resp.Code, "a refund is never denied")
	require.Equal(t, `"p";r=3;t=180`, headers["ratelimit"])
	resp, _ = d.call(0, hits(k, math.MaxUint64, true))
	require.Equal(t, rls.OK, resp.Code)
	_, headers = d.call(0, k)
	require.Equal(t, `"p";r=19;t=1140`, headers["ratelimit"], "request hits 0 = 1; a refund ends at capacity")
}

func TestField_LimitZero(t *testing.T) {
	d := newDesk(t, `
policies:
  - {id: log, match: {kind: log}, key: [user], algorithm: sliding-log, limit: 0, window: 1h, onStoreFailure: open}
  - {id: bucket, match: {kind: bucket}, key: [user], algorithm: token-bucket, capacity: 0, refillPerDay: 1, onStoreFailure: open}
`)
	for _, kind := range []string{"log", "bucket"} {
		for _, what := range []descriptors.Descriptor{entries("kind", kind, "user", "u"), hits(entries("kind", kind, "user", "u"), 0, false)} {
			resp, headers := d.call(0, what)
			require.Equal(t, rls.OverLimit, resp.Code)
			require.Equal(t, "never", resp.Source, "no store was asked, so none can have failed")
			require.NotContains(t, headers, "retry-after")
		}
	}
}

func TestField_UserAndSite(t *testing.T) {
	for name, userPolicy := range map[string]string{
		"same tag":       "key: [site, user]",
		"different tags": "key: [user]",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, fmt.Sprintf(`
policies:
  - {id: user, %s, algorithm: token-bucket, capacity: 2, refillPerDay: 1, onStoreFailure: local}
  - {id: site, key: [site], algorithm: token-bucket, capacity: 1000, refillPerDay: 1, onStoreFailure: local}
`, userPolicy))
			admitted := 0
			for range 500 {
				if resp, _ := d.call(0, entries("site", "s"), entries("user", "u")); resp.Code == rls.OK {
					admitted++
				}
			}
			require.Equal(t, 2, admitted)
			_, headers := d.call(0, hits(entries("site", "s"), 0, false))
			require.Contains(t, headers["ratelimit"], `"site";r=998;`)
		})
	}
}

func TestField_TwoLogs(t *testing.T) {
	d := newDesk(t, `
policies:
  - {id: minute, match: {m: "1"}, key: [user], algorithm: sliding-log, limit: 10, window: 1m, onStoreFailure: closed}
  - {id: hour, key: [user], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
`)
	admitted := 0
	for range 50 {
		d.now.Add(1e6)
		if resp, _ := d.call(0, entries("user", "u"), entries("m", "1")); resp.Code == rls.OK {
			admitted++
		}
	}
	require.Equal(t, 10, admitted)
	_, headers := d.call(0, hits(entries("user", "u"), 0, false))
	require.Contains(t, headers["ratelimit"], `"hour";r=90;`)
}

func TestPostpaid(t *testing.T) {
	d := newDesk(t, "policies:\n  - {id: tokens, key: [user], charge: postpaid, overdraft: 50, algorithm: token-bucket, capacity: 100, refillPerMinute: 60, onStoreFailure: local}\n")
	user := entries("user", "u")
	for range 3 {
		resp, headers := d.call(0, user)
		require.Equal(t, rls.OK, resp.Code, "only looks")
		require.Equal(t, `"tokens";r=100;t=100`, headers["ratelimit"])
	}
	resp, headers := d.call(0, hits(user, 400, false))
	require.Equal(t, rls.OK, resp.Code, "a report is never denied")
	require.Equal(t, `"tokens";r=0;t=51`, headers["ratelimit"], "150 of it charged: down to -50, which is never shown")
	resp, headers = d.call(0, user)
	require.Equal(t, rls.OverLimit, resp.Code)
	require.Equal(t, "51", headers["retry-after"])
	d.now.Add(51e6)
	resp, _ = d.call(0, user)
	require.Equal(t, rls.OK, resp.Code)
}

// TestHiddenPoliciesLeaveNoTrace: whether a hidden bucket has more or less left than one that is shown, the answer is the same.
func TestHiddenPoliciesLeaveNoTrace(t *testing.T) {
	for _, expose := range []string{"never", "onReject"} {
		d := newDesk(t, fmt.Sprintf(`
policies:
  - {id: shown, key: [user], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
  - {id: hidden, key: [user], expose: %s, algorithm: token-bucket, capacity: 103, refillPerDay: 1, onStoreFailure: local}
  - {id: other, match: {other: "1"}, key: [user], algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: local, expose: never}
`, expose))
		user := entries("user", "u")
		for n := range 20 {
			resp, headers := d.call(0, user)
			require.Equal(t, uint32(99-n), resp.Statuses[0].Remaining)
			require.Contains(t, headers["ratelimit"], fmt.Sprintf(`"shown";r=%d;`, 99-n))
		}
		d.call(80, entries("user", "u2"))
		resp, _ := d.call(0, entries("user", "u2"), entries("other", "1"))
		require.True(t, resp.Statuses[0].HasLimit, "though other has less left")
		require.Equal(t, rls.Status{Code: rls.OK}, resp.Statuses[1])
	}
}

func TestShadowChangesNothing(t *testing.T) {
	d := newDesk(t, "policies:\n  - {id: trial, key: [user], mode: shadow, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}\n")
	for range 3 {
		resp, headers := d.call(0, entries("user", "u"))
		require.Equal(t, rls.OK, resp.Code)
		require.Empty(t, headers)
		require.Equal(t, rls.Status{Code: rls.OK}, resp.Statuses[0])
		require.Empty(t, resp.Policy)
	}
}

func TestTruncatedAndIgnored(t *testing.T) {
	d := newDesk(t, "policies:\n  - {id: login, match: {route: GET /login}, key: [ip], algorithm: sliding-log, limit: 10, window: 1m, onStoreFailure: closed}\n  - {id: user, match: {user: u}, key: [user], algorithm: sliding-log, limit: 1, window: 1m, onStoreFailure: open}\n")
	limited := entries("user", "u")
	limited.HasLimit = true
	var resp rls.Response
	req := descriptors.Request{Domain: []byte("edge"), Truncated: true, Descriptors: []descriptors.Descriptor{limited}}
	require.NoError(t, d.service.ShouldRateLimit(t.Context(), &req, &resp))
	require.Equal(t, rls.OverLimit, resp.Code, "the route may be among what was left out")
	require.Equal(t, "closed", resp.Source)
	require.Equal(t, 1, d.events["truncated"])
	require.Equal(t, 1, d.events["limit ignored"])
	again, _ := d.call(0, entries("user", "u"), entries("route", "search"))
	require.Equal(t, rls.OK, again.Code, "nothing was charged")
}
