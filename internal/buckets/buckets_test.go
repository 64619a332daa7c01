package buckets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/buckets"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policies = `domain: edge
policies:
  - {id: api, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny, algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: local, overrides: [{match: {tenant: big}, capacity: 50, comment: pays}]}
  - {id: login, match: {route: POST /login}, key: [ip, username], algorithm: sliding-log, limit: 5, window: 1h, onStoreFailure: closed}
  - {id: site, key: [], algorithm: token-bucket, capacity: 1000, refillPerDay: 1, onStoreFailure: open}
  - {id: trial, key: [ip], mode: shadow, algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open}
  - {id: off, key: [ip], mode: shadow, algorithm: token-bucket, capacity: 0, refillPerDay: 1, onStoreFailure: open}
`

// service is a limiter with the pages, in memory.
type service struct {
	t       *testing.T
	options buckets.Options
	blocks  *blocklist.Store
	limiter *ratelimit.Limiter
	log     bytes.Buffer
	told    []string
}

func newService(t *testing.T, change ...func(*service)) *service {
	t.Helper()
	file, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1000})
	s := &service{t: t, blocks: blocklist.New(store)}
	s.limiter = ratelimit.New(ratelimit.Options{Store: s.blocks, Policies: set})
	s.options = buckets.Options{
		Policies: func() *policy.Set { return set }, Store: store, Blocks: s.blocks,
		Audit: buckets.NewAudit("one", slog.New(slog.NewTextHandler(&s.log, nil)), nil),
		Authorize: func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") != "Bearer right" {
				return "", errors.New("want a token")
			}
			return "tester", nil
		},
		OnAttempt: func(a buckets.Action, outcome string) { s.told = append(s.told, string(a)+" "+outcome) },
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// ask sends a body as somebody who may.
func (s *service) ask(path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer right")
	return s.serve(r)
}

func (s *service) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	buckets.Handler(s.options).ServeHTTP(w, r)
	return w
}

// do expects that an action is carried out.
func (s *service) do(action buckets.Action, body string) buckets.Report {
	s.t.Helper()
	w := s.ask(buckets.Path+string(action), body)
	require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(s.t, "no-store", w.Header().Get("Cache-Control"))
	var r buckets.Report
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &r))
	return r
}

func (s *service) get(path string, into any) {
	s.t.Helper()
	w := s.serve(httptest.NewRequest(http.MethodGet, path, nil))
	require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), into))
}

func (s *service) check(attributes map[string]string) ratelimit.Decision {
	s.t.Helper()
	d, err := s.limiter.Check(s.t.Context(), ratelimit.Request{Domain: "edge", Attributes: attributes})
	require.NoError(s.t, err)
	return d
}

var (
	user  = map[string]string{"plan": "free", "apiKey": "secret-key", "tenant": "acme"}
	login = map[string]string{"route": "POST /login", "ip": "192.0.2.1", "username": "alice"}
)

const (
	theUser  = `"policy": "api", "attributes": {"apiKey": "secret-key", "tenant": "acme"}`
	theLogin = `"policy": "login", "attributes": {"ip": "192.0.2.1", "username": "alice"}`
)

func TestChanges(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		who, attributes string
		attrs           map[string]string
		limit           float64
	}{{"tokens", theUser, user, 10}, {"log", theLogin, login, 5}} {
		t.Run(c.who, func(t *testing.T) {
			for range int(c.limit) {
				require.True(t, s.check(c.attrs).Allowed)
			}
			require.False(t, s.check(c.attrs).Allowed)
			r := s.do(buckets.Refund, `{`+c.attributes+`, "cost": 2}`)
			require.InDelta(t, 0, r.Before.Remaining, 0.01)
			require.InDelta(t, 2, r.After.Remaining, 0.01)
			require.Equal(t, "this instance", r.Scope)
			require.True(t, s.check(c.attrs).Allowed)
			r = s.do(buckets.Reset, `{`+c.attributes+`}`)
			require.InDelta(t, 1, r.Before.Remaining, 0.01)
			require.Equal(t, c.limit, r.After.Remaining)
			for _, remaining := range []float64{3, 0, c.limit, 1} {
				r = s.do(buckets.Set, fmt.Sprintf(`{%s, "remaining": %v}`, c.attributes, remaining))
				require.Equal(t, remaining, r.After.Remaining)
				require.Equal(t, c.limit, r.Limit)
			}
			require.InDelta(t, 1, s.do(buckets.Show, `{`+c.attributes+`}`).After.Remaining, 0.01)
			require.True(t, s.check(c.attrs).Allowed)
			require.False(t, s.check(c.attrs).Allowed)
		})
	}
	require.Contains(t, s.told, "reset done")
	require.NotContains(t, strings.Join(s.told, ","), "show")
}

func TestNumbersAreThoseOfTheRequest(t *testing.T) {
	s := newService(t)
	big := `"policy": "api", "attributes": {"apiKey": "k", "tenant": "big"}`
	require.Equal(t, 50.0, s.do(buckets.Show, `{`+big+`}`).Limit)
	require.Equal(t, 42.0, s.do(buckets.Set, `{`+big+`, "remaining": 42}`).After.Remaining)
	r := s.do(buckets.Set, `{"policy": "trial", "attributes": {"ip": "192.0.2.7"}, "remaining": 1}`)
	require.True(t, r.Shadow)
	d := s.check(map[string]string{"ip": "192.0.2.7"})
	require.InDelta(t, 0, d.Checks[1].Result.Remaining, 0.01, "the shadow's own bucket")
	require.Equal(t, 1000.0, s.do(buckets.Show, `{"policy": "site"}`).Limit)
}

func TestHashedKeys(t *testing.T) {
	s := newService(t)
	s.check(user)
	key := s.do(buckets.Show, `{`+theUser+`}`).Key
	require.Regexp(t, "^#[0-9a-f]{12}$", key)
	hash := policyHash(t, "secret-key")
	r := s.do(buckets.Show, `{"policy": "api", "hashed": true, "attributes": {"apiKey": "`+hash+`", "tenant": "acme"}}`)
	require.Equal(t, key, r.Key)
	require.InDelta(t, 9, r.After.Remaining, 0.01)
	require.NotEqual(t, key, s.do(buckets.Show, `{"policy": "api", "attributes": {"apiKey": "`+hash+`", "tenant": "acme"}}`).Key)
}

func TestIDs(t *testing.T) {
	known := buckets.Known{PolicyID: "login", Key: policy.NewKey(policy.Part{Name: "ip", Value: "192.0.2.1"}, "login", policy.Part{Name: "username", Value: "alice"})}
	s := newService(t, func(s *service) {
		s.options.Resolve = func(id string) (buckets.Known, bool) { return known, id == "00ff" }
	})
	s.check(login)
	require.Equal(t, 4.0, s.do(buckets.Show, `{"id": "00ff"}`).After.Remaining)
	require.Equal(t, s.do(buckets.Show, `{`+theLogin+`}`).Key, s.do(buckets.Reset, `{"id": "00ff"}`).Key)
	require.Equal(t, 5.0, s.do(buckets.Show, `{`+theLogin+`}`).After.Remaining)
	known.Limits = algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 7, Window: 1e6}
	require.Equal(t, 7.0, s.do(buckets.Show, `{"id": "00ff"}`).Limit, "an override's")
	known.PolicyID = "gone"
	w := s.ask(buckets.Path+"reset", `{"id": "00ff"}`)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), `policy \"gone\" is not in force any more`)
}

func TestBlocks(t *testing.T) {
	s := newService(t)
	r := s.do(buckets.Block, `{`+theLogin+`, "for": "1h", "reason": "credential\u0000 stuffing\n"}`)
	require.Nil(t, r.Before.Block)
	require.Equal(t, "credential  stuffing", r.After.Block.Reason)
	require.Equal(t, "tester", r.After.Block.Actor)
	require.InDelta(t, float64(time.Hour), float64(time.Until(r.After.Block.Until)), float64(time.Minute))
	d := s.check(login)
	require.False(t, d.Allowed)
	require.Equal(t, ratelimit.FromBlocked, d.Checks[0].Result.Source)
	wait, ok := d.Wait()
	require.True(t, ok)
	require.InDelta(t, float64(time.Hour), float64(wait), float64(time.Minute))
	for _, c := range d.Checks[1:] {
		if c.Policy.ID != "off" {
			require.Zero(t, c.Result.Outcome, "%s is not asked", c.Policy.ID)
		}
	}
	require.Equal(t, 1000.0, s.do(buckets.Show, `{"policy": "site"}`).After.Remaining, "nobody else is charged")
	other := map[string]string{"route": "POST /login", "ip": "192.0.2.1", "username": "bob"}
	require.True(t, s.check(other).Allowed)

	var list buckets.BlockList
	s.get(buckets.BlocksPath, &list)
	require.Equal(t, 1, list.Count)
	require.Equal(t, r.Key, list.Blocks[0].Key)
	require.NotContains(t, fmt.Sprint(list), "alice")
	until := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	r = s.do(buckets.Block, `{"id": "`+list.Blocks[0].ID+`", "until": "`+until.Format(time.RFC3339)+`", "reason": "longer"}`)
	require.Equal(t, "credential  stuffing", r.Before.Block.Reason)
	require.Equal(t, until, r.After.Block.Until)
	r = s.do(buckets.Unblock, `{"id": "`+list.Blocks[0].ID+`", "reason": "was us"}`)
	require.Nil(t, r.After.Block)
	require.True(t, s.check(login).Allowed)
	require.Equal(t, http.StatusNotFound, s.ask(buckets.Path+"unblock", `{`+theLogin+`}`).Code)
	s.get(buckets.BlocksPath, &list)
	require.Equal(t, buckets.BlockList{Blocks: []buckets.BlockView{}}, list)
}

// TestABlockOfAPolicyThatIsGone can be ended.
func TestABlockOfAPolicyThatIsGone(t *testing.T) {
	s := newService(t)
	key := policy.NewKey(policy.Part{Name: "ip", Value: "192.0.2.1"}, "gone")
	require.NoError(t, s.blocks.Add(blocklist.Block{PolicyID: "gone", Key: key.String(), Until: time.Now().Add(time.Hour)}))
	var list buckets.BlockList
	s.get(buckets.BlocksPath, &list)
	require.Equal(t, "gone", s.do(buckets.Unblock, `{"id": "`+list.Blocks[0].ID+`"}`).Policy)
	require.Empty(t, s.blocks.Blocks())
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"not JSON", "reset", `{`, 400, "want a JSON object"},
		{"nearly JSON", "reset", `{"policy": 'api'}`, 400, "not JSON from byte"},
		{"an unknown field", "reset", `{"polcy": "api"}`, 400, `reset has no field \"polcy\": did you mean \"policy\"`},
		{"a field of another action", "reset", `{` + theUser + `, "cost": 3}`, 400, `reset has no field \"cost\"`},
		{"a field of another action with its zero value", "refund", `{` + theUser + `, "remaining": 0, "cost": 1}`, 400, `refund has no field \"remaining\"`},
		{"a bracket after it", "reset", `{` + theUser + `}]`, 400, "nothing after it"},
		{"two bodies", "reset", `{` + theUser + `}{}`, 400, "nothing after it"},
		{"an array", "reset", `[]`, 400, "array"},
		{"a number as text", "refund", `{` + theUser + `, "cost": "3"}`, 400, "cost: got string, want a whole number"},
		{"a negative number", "refund", `{` + theUser + `, "cost": -3}`, 400, "cost: got number -3, want a whole number"},
		{"half a unit", "set", `{` + theUser + `, "remaining": 0.5}`, 400, "remaining: got number 0.5, want a whole number"},
		{"a time that is none", "block", `{` + theUser + `, "until": "tomorrow", "reason": "x"}`, 400, "want a JSON object, with a time as"},
		{"nothing said", "reset", `{}`, 400, "say which bucket: policy and attributes, or id"},
		{"id and policy", "reset", `{"id": "x", "policy": "api"}`, 400, "id does not go with policy"},
		{"an unknown id", "reset", `{"id": "x"}`, 404, "no bucket has this id"},
		{"an unknown policy", "reset", `{"policy": "apy"}`, 404, `no policy has the id \"apy\": did you mean \"api\"`},
		{"an attribute short", "reset", `{"policy": "api", "attributes": {"apiKey": "secret-key"}}`, 400, `policy \"api\" counts by \"tenant\"`},
		{"an unknown attribute", "reset", `{"policy": "login", "attributes": {"usrname": "alice"}}`, 400, `no policy has a use for attribute \"usrname\": did you mean \"username\"`},
		{"not an address", "reset", `{"policy": "login", "attributes": {"ip": "1.2.3", "username": "alice"}}`, 400, "should be an address"},
		{"no cost", "refund", `{` + theUser + `}`, 400, "cost: say how many"},
		{"cost 0", "refund", `{` + theUser + `, "cost": 0}`, 400, "cost: say how many"},
		{"nothing to set", "set", `{` + theUser + `}`, 400, "remaining: say how many"},
		{"more than it holds", "set", `{` + theUser + `, "remaining": 11}`, 400, "remaining: 11 is more than the 10"},
		{"no reason", "block", `{` + theUser + `, "for": "1h"}`, 400, "reason: say why"},
		{"a reason of nothing", "block", `{` + theUser + `, "for": "1h", "reason": "\u0001 "}`, 400, "reason: say why"},
		{"no end", "block", `{` + theUser + `, "reason": "x"}`, 400, "say when the block ends"},
		{"two ends", "block", `{` + theUser + `, "reason": "x", "for": "1h", "until": "2030-01-01T00:00:00Z"}`, 400, "say when the block ends"},
		{"over already", "block", `{` + theUser + `, "reason": "x", "until": "2020-01-01T00:00:00Z"}`, 400, "2020-01-01T00:00:00Z is over"},
		{"too long", "block", `{` + theUser + `, "reason": "x", "for": "367d"}`, 400, "366 days at most"},
		{"a time without a unit", "block", `{` + theUser + `, "reason": "x", "for": "60"}`, 400, `for: \"60\"`},
		{"no time at all", "block", `{` + theUser + `, "reason": "x", "for": "0s"}`, 400, "longer than nothing"},
		{"for ever", "block", `{` + theUser + `, "reason": "x", "until": "9999-12-31T23:59:59Z"}`, 400, "366 days at most"},
		{"an action that is none", "rest", `{}`, 404, `there is no /api/v1/buckets/rest: did you mean \"reset\"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t)
			w := s.ask(buckets.Path+tt.path, tt.body)
			require.Equal(t, tt.status, w.Code)
			require.Contains(t, w.Body.String(), tt.want)
			require.NotContains(t, w.Body.String(), "secret-key")
			require.True(t, json.Valid(w.Body.Bytes()))
			require.Empty(t, s.blocks.Blocks())
			var audit buckets.AuditList
			s.get(buckets.AuditPath, &audit)
			require.Empty(t, audit.Entries)
		})
	}
	s := newService(t)
	w := s.ask(buckets.Path+"show", `{"policy": "`+strings.Repeat("x", 2<<20)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

// statusError is one of whoever authorizes.
type statusError int

func (e statusError) Error() string { return "refused" }
func (e statusError) Status() int   { return int(e) }

func TestWhoMay(t *testing.T) {
	body := `{` + theUser + `, "for": "1h", "reason": "x", "cost": 1, "remaining": 1}`
	for _, action := range buckets.Actions() {
		if action == buckets.Show {
			continue
		}
		s := newService(t)
		r := httptest.NewRequest(http.MethodPost, buckets.Path+string(action), strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := s.serve(r)
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Contains(t, w.Body.String(), "want a token")
		require.Equal(t, []string{string(action) + " refused"}, s.told)
		s.options.Authorize = nil
		require.Equal(t, http.StatusForbidden, s.ask(buckets.Path+string(action), body).Code, "nobody may")
		s.options.Authorize = func(*http.Request) (string, error) { return "", statusError(http.StatusUnauthorized) }
		require.Equal(t, http.StatusUnauthorized, s.ask(buckets.Path+string(action), body).Code)
		require.Equal(t, http.StatusMethodNotAllowed, s.serve(httptest.NewRequest(http.MethodGet, buckets.Path+string(action), nil)).Code)
		require.Equal(t, http.StatusUnsupportedMediaType, s.serve(httptest.NewRequest(http.MethodPost, buckets.Path+string(action), nil)).Code,
			"a form of another site's page")
		require.Empty(t, s.blocks.Blocks())
	}
	s := newService(t, func(s *service) { s.options.Authorize = nil })
	s.do(buckets.Show, `{`+theUser+`}`)
	require.Equal(t, http.StatusMethodNotAllowed, s.ask(buckets.BlocksPath, "").Code)
	require.Equal(t, http.StatusMethodNotAllowed, s.ask(buckets.AuditPath, "").Code)
	s.options.Policies = func() *policy.Set { return nil }
	require.Equal(t, http.StatusServiceUnavailable, s.ask(buckets.Path+"show", `{`+theUser+`}`).Code)
}

func TestAudit(t *testing.T) {
	s := newService(t)
	s.do(buckets.Set, `{`+theUser+`, "remaining": 4, "reason": "ticket 7\u2028"}`)
	s.do(buckets.Block, `{`+theLogin+`, "for": "1h", "reason": "x"}`)
	s.do(buckets.Show, `{`+theLogin+`}`)
	var audit buckets.AuditList
	s.get(buckets.AuditPath, &audit)
	require.Equal(t, "this instance", audit.Scope)
	require.Len(t, audit.Entries, 2)
	block, set := audit.Entries[0], audit.Entries[1]
	require.Equal(t, buckets.Block, block.Action)
	require.NotNil(t, block.Until)
	require.NotEqual(t, block.ID, set.ID)
	require.Equal(t, "tester", set.Actor)
	require.Equal(t, "192.0.2.1", set.From, "the address of the test's requests")
	require.Equal(t, "done", set.Outcome)
	require.Equal(t, "api", set.Policy)
	require.Equal(t, "one", set.Instance)
	require.Equal(t, "ticket 7", set.Reason)
	require.Equal(t, 10.0, *set.Before)
	require.Equal(t, 4.0, *set.After)
	require.Regexp(t, "^#[0-9a-f]{12}$", set.Key)
	require.Equal(t, 2, strings.Count(s.log.String(), "a bucket was changed by hand"))
	require.Contains(t, s.log.String(), `action=set outcome=done policy=api key=#`)
	for _, secret := range []string{"secret-key", "alice", policyHash(t, "secret-key"), "Bearer"} {
		require.NotContains(t, s.log.String(), secret)
		require.NotContains(t, fmt.Sprint(audit), secret)
	}
	for range 1100 {
		s.do(buckets.Reset, `{`+theUser+`}`)
	}
	s.get(buckets.AuditPath+"?limit=10000", &audit)
	require.Len(t, audit.Entries, 1000, "bounded")
	s.get(buckets.AuditPath+"?limit=3", &audit)
	require.Len(t, audit.Entries, 3)
	for _, limit := range []string{"0", "-1", "x", "10001", "1e3"} {
		require.Equal(t, http.StatusBadRequest, s.serve(httptest.NewRequest(http.MethodGet, buckets.AuditPath+"?limit="+limit, nil)).Code)
	}
}

// sharedLog is that of instances which share one.
type sharedLog struct {
	mu    sync.Mutex
	lines []string
	err   error
}

func (l *sharedLog) Log(_ context.Context, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append([]string{string(line)}, l.lines...)
	return l.err
}

func (l *sharedLog) Lines(context.Context) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	return l.lines, nil
}

func TestSharedAudit(t *testing.T) {
	log := &sharedLog{}
	with := func(name string) *service {
		return newService(t, func(s *service) {
			s.options.Audit = buckets.NewAudit(name, slog.New(slog.NewTextHandler(&s.log, nil)), log)
		})
	}
	one, two := with("one"), with("two")
	one.do(buckets.Reset, `{`+theUser+`}`)
	two.do(buckets.Set, `{`+theUser+`, "remaining": 2}`)
	log.lines = append(log.lines, "garbage", `{}`, `{"id": "x", "action": "explode", "outcome": "done"}`, `{"id": "y", "action": "reset", "outcome": "done", "actor": "evil\u001b[2J"}`)
	var audit buckets.AuditList
	one.get(buckets.AuditPath, &audit)
	require.Equal(t, "all instances", audit.Scope)
	require.Len(t, audit.Entries, 3)
	require.Equal(t, "evil [2J", audit.Entries[2].Actor)
	log.err = errors.New("down")
	one.do(buckets.Reset, `{`+theUser+`}`)
	require.Contains(t, one.log.String(), "other instances do not have the last entry")
	one.get(buckets.AuditPath, &audit)
	require.Equal(t, "this instance", audit.Scope)
	require.Len(t, audit.Entries, 2)
}

// brokenStore fails, and counts how often it was asked.
type brokenStore struct {
	ratelimit.Store
	err   error
	calls int
}

func (b *brokenStore) Acquire(context.Context, []ratelimit.Bucket, []ratelimit.Result) []ratelimit.Result {
	b.calls++
	return []ratelimit.Result{{Err: b.err}}
}

// failsAfterPeek answers looks.
type failsAfterPeek struct{ brokenStore }

func (f *failsAfterPeek) Acquire(ctx context.Context, b []ratelimit.Bucket, r []ratelimit.Result) []ratelimit.Result {
	if b[0].Op == ratelimit.Peek {
		return []ratelimit.Result{{Outcome: ratelimit.Admitted, Remaining: 3}}
	}
	return f.brokenStore.Acquire(ctx, b, r)
}

func TestAStoreThatFails(t *testing.T) {
	down := &brokenStore{err: errors.New("down")}
	s := newService(t, func(s *service) { s.options.Store = down })
	w := s.ask(buckets.Path+"refund", `{`+theUser+`, "cost": 1}`)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "nothing was changed")
	var audit buckets.AuditList
	s.get(buckets.AuditPath, &audit)
	require.Equal(t, "failed", audit.Entries[0].Outcome)
	require.Nil(t, audit.Entries[0].After)

	w = s.ask(buckets.Path+"block", `{`+theUser+`, "for": "1h", "reason": "abuse"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), `"unknown": true`, "a block needs the list, not the bucket")
	w = s.ask(buckets.Path+"unblock", `{`+theUser+`}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)

	lost := &failsAfterPeek{brokenStore{err: errors.New("lost")}}
	s = newService(t, func(s *service) { s.options.Store = lost })
	w = s.ask(buckets.Path+"refund", `{`+theUser+`, "cost": 1}`)
	require.Equal(t, http.StatusGatewayTimeout, w.Code)
	require.Contains(t, w.Body.String(), "not known whether it was carried out")
	require.Equal(t, 1, lost.calls, "what may have been carried out is not tried again")
	require.Equal(t, []string{"refund unknown"}, s.told)
	s.ask(buckets.Path+"reset", `{`+theUser+`}`)
	require.Equal(t, 4, lost.calls, "a reset may be")
}

// shared is what tells the others.
type shared struct {
	err  error
	told []string
}

func (s *shared) Block(_ context.Context, b blocklist.Block) error {
	s.told = append(s.told, "block "+b.Reason)
	return s.err
}

func (s *shared) Unblock(context.Context, string) (bool, error) { return true, s.err }

func (s *shared) Changed(_ context.Context, k policy.Key, remaining float64, refund bool) error {
	s.told = append(s.told, fmt.Sprint(k, " ", remaining, " ", refund))
	return s.err
}

func TestOthersAreTold(t *testing.T) {
	others := &shared{}
	s := newService(t, func(s *service) { s.options.Shared = others })
	require.Equal(t, "all instances", s.do(buckets.Set, `{`+theLogin+`, "remaining": 2}`).Scope)
	require.Equal(t, "all instances", s.do(buckets.Refund, `{`+theLogin+`, "cost": 1}`).Scope)
	require.Equal(t, "all instances", s.do(buckets.Block, `{`+theLogin+`, "for": "1m", "reason": "x"}`).Scope)
	require.Equal(t, []string{"rl:{ip:192.0.2.1}:login:u:alice 2 false", "rl:{ip:192.0.2.1}:login:u:alice 3 true", "block x"}, others.told)
	others.err = errors.New("gone")
	r := s.do(buckets.Reset, `{`+theLogin+`}`)
	require.Equal(t, "this instance", r.Scope)
	require.Contains(t, r.Warning, "gone")
	require.Equal(t, http.StatusGatewayTimeout, s.ask(buckets.Path+"block", `{`+theLogin+`, "for": "1m", "reason": "x"}`).Code)
	others.err = blocklist.ErrFull
	require.Equal(t, http.StatusConflict, s.ask(buckets.Path+"block", `{`+theLogin+`, "for": "1m", "reason": "x"}`).Code)
	others.err = blocklist.ErrContended
	require.Equal(t, http.StatusConflict, s.ask(buckets.Path+"unblock", `{`+theLogin+`}`).Code)
}

// TestTakesThatRaceAReset: a reset gives a bucket back once, whenever it comes.
func TestTakesThatRaceAReset(t *testing.T) {
	for range 20 {
		s := newService(t)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				d, err := s.limiter.Check(context.Background(), ratelimit.Request{Domain: "edge", Attributes: user})
				if err == nil && d.Allowed {
					admitted.Add(1)
				}
			})
		}
		s.do(buckets.Reset, `{`+theUser+`}`)
		all.Wait()
		require.GreaterOrEqual(t, admitted.Load(), int64(10))
		require.LessOrEqual(t, admitted.Load(), int64(20))
	}
}

// policyHash is how an API key is compared.
func policyHash(t *testing.T, key string) string {
	t.Helper()
	file, err := policy.Parse("p.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	var a policy.Attributes
	a.Reset(set.View([]byte("edge")))
	a.Add(0, []byte("apiKey"), []byte(key))
	return a.Facts()[0].Value
}

func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{` + theUser + `, "cost": 3}`, `{` + theLogin + `, "for": "1h", "reason": "x"}`, `{"id": "block-0123456789ab"}`,
		`{"policy": "site", "remaining": 18446744073709551615, "until": "2030-01-01T00:00:00Z"}`, `{"policy": "off", "attributes": {"ip": "::1"}, "remaining": 0}`,
		"{\"policy\": \"login\", \"attributes\": {\"ip\": \"\xff\", \"username\": \"}:\"}}", `null`, ``,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := newService(t)
		for _, action := range buckets.Actions() {
			w := s.ask(buckets.Path+string(action), body)
			require.True(t, json.Valid(w.Body.Bytes()), w.Body.String())
			require.Less(t, w.Code, 500, w.Body.String())
		}
	})
}
