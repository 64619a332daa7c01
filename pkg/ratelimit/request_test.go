package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// door is a limiter on a real store, whose clock stands still until told otherwise.
type door struct {
	*ratelimit.Limiter
	t     *testing.T
	micro atomic.Int64
}

func newDoor(t *testing.T, policies string) *door {
	d := &door{t: t}
	d.micro.Store(1e12)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: d.micro.Load})
	d.Limiter = ratelimit.New(ratelimit.Options{Store: store, Policies: set(t, policies)})
	return d
}

func (d *door) pass(by time.Duration) { d.micro.Add(by.Microseconds()) }

// left is what user alice has under a policy, and 0 in debt; what it owes shows in the time until there is 1 again.
func (d *door) left(policy string) float64 {
	d.t.Helper()
	got, err := d.Peek(d.t.Context(), alice(0))
	require.NoError(d.t, err)
	for _, c := range got.Checks {
		if c.Policy.ID == policy {
			require.True(d.t, c.Known)
			return c.Result.Remaining
		}
	}
	d.t.Fatalf("no policy %s in %v", policy, got.Checks)
	return 0
}

func alice(cost uint64) ratelimit.Request {
	return ratelimit.Request{Domain: "edge", Attributes: map[string]string{"user": "alice"}, Cost: cost}
}

const doorPolicies = `
domain: edge
policies:
  - {id: user, match: {user: "*"}, key: [user], algorithm: token-bucket, capacity: 20, refillPerSecond: 1, onStoreFailure: open}
`

func TestDoor(t *testing.T) {
	d := newDoor(t, doorPolicies)
	check := func(cost uint64) ratelimit.Decision {
		t.Helper()
		got, err := d.Check(t.Context(), alice(cost))
		require.NoError(t, err)
		require.True(t, got.DomainKnown)
		return got
	}

	first := check(0)
	require.True(t, first.Allowed)
	require.Equal(t, 19.0, first.Checks[0].Result.Remaining, "no cost stated costs 1")
	require.Equal(t, 4.0, check(15).Checks[0].Result.Remaining)
	require.Equal(t, 19.0, first.Checks[0].Result.Remaining, "a decision lasts")

	denied := check(6)
	require.False(t, denied.Allowed)
	wait, ok := denied.Wait()
	require.True(t, ok)
	require.Equal(t, 2*time.Second, wait)
	require.False(t, denied.Unavailable())

	peeked, err := d.Peek(t.Context(), alice(5))
	require.NoError(t, err)
	require.False(t, peeked.Allowed)
	require.Equal(t, 4.0, d.left("user"), "neither a denial nor a look costs anything")

	_, ok = new(check(21)).Wait()
	require.False(t, ok, "more than the bucket holds")

	back, err := d.Refund(t.Context(), alice(3))
	require.NoError(t, err)
	require.True(t, back.Allowed)
	require.Equal(t, 7.0, d.left("user"))
	_, err = d.Refund(t.Context(), alice(1_000_000))
	require.NoError(t, err)
	require.Equal(t, 20.0, d.left("user"), "never fuller than full")

	d.pass(wait)
	other, err := d.Check(t.Context(), ratelimit.Request{Domain: "other", Attributes: map[string]string{"user": "alice"}})
	require.NoError(t, err, "an unknown domain is no error")
	require.True(t, other.Allowed)
	require.False(t, other.DomainKnown)
}

// TestAsk is what each way to ask makes of a cost under each way to charge.
func TestAsk(t *testing.T) {
	type ask func(*ratelimit.Limiter, context.Context, ratelimit.Request) (ratelimit.Decision, error)
	reserve := func(l *ratelimit.Limiter, ctx context.Context, r ratelimit.Request) (ratelimit.Decision, error) {
		res, err := l.Reserve(ctx, r)
		return res.Decision, err
	}
	prepaid, postpaid := "rl:{user:x}:user", "rl:{model:x}:usage"
	tests := []struct {
		name, attribute string
		ask             ask
		cost            uint64
		want            string
	}{
		{"check", "user", (*ratelimit.Limiter).Check, 0, "take 1 " + prepaid},
		{"check a cost", "user", (*ratelimit.Limiter).Check, 5, "take 5 " + prepaid},
		{"check, postpaid", "model", (*ratelimit.Limiter).Check, 0, "peek 1 " + postpaid},
		{"report, postpaid", "model", (*ratelimit.Limiter).Check, 5, "force 5 " + postpaid},
		{"peek", "user", (*ratelimit.Limiter).Peek, 0, "peek 1 " + prepaid},
		{"peek a cost", "user", (*ratelimit.Limiter).Peek, 5, "peek 5 " + prepaid},
		{"peek, postpaid", "model", (*ratelimit.Limiter).Peek, 5, "peek 1 " + postpaid},
		{"refund", "user", (*ratelimit.Limiter).Refund, 0, "refund 1 " + prepaid},
		{"refund a cost", "user", (*ratelimit.Limiter).Refund, 5, "refund 5 " + prepaid},
		{"refund, postpaid", "model", (*ratelimit.Limiter).Refund, 5, "refund 5 " + postpaid},
		{"reserve", "user", reserve, 0, "take 1 " + prepaid},
		{"reserve a cost", "user", reserve, 5, "take 5 " + prepaid},
		{"reserve, postpaid", "model", reserve, 5, "take 5 " + postpaid},
		{"reserve nothing stated, postpaid", "model", reserve, 0, "take 1 " + postpaid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s recorder
			l := ratelimit.New(ratelimit.Options{Store: &s, Policies: set(t, policies)})
			got, err := tt.ask(l, t.Context(), ratelimit.Request{Domain: "edge", Attributes: map[string]string{tt.attribute: "x"}, Cost: tt.cost})
			require.NoError(t, err)
			require.True(t, got.Allowed)
			require.Equal(t, []string{tt.want}, s.asked)
		})
	}
}

func TestTooManyAttributes(t *testing.T) {
	s := &recorder{}
	l := ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, policies)})
	r := ratelimit.Request{Domain: "edge", Attributes: map[string]string{"user": "x"}}
	for i := len(r.Attributes); i < ratelimit.MaxAttributes; i++ {
		r.Attributes[fmt.Sprint("a", i)] = "x"
	}
	_, err := l.Check(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, s.asked, 1)
	r.Attributes["one more"] = "x"
	_, err = l.Check(t.Context(), r)
	require.ErrorIs(t, err, ratelimit.ErrTooManyAttributes)
	require.ErrorContains(t, err, "65, of at most 64")
	_, err = l.Peek(t.Context(), r)
	require.ErrorIs(t, err, ratelimit.ErrTooManyAttributes)
	_, err = l.Refund(t.Context(), r)
	require.ErrorIs(t, err, ratelimit.ErrTooManyAttributes)
	_, err = l.Reserve(t.Context(), r)
	require.ErrorIs(t, err, ratelimit.ErrTooManyAttributes)
	require.Len(t, s.asked, 1)
}

// TestStoreFails: a store that fails is no error, whatever is asked.
func TestStoreFails(t *testing.T) {
	failed := ratelimit.Result{Err: errors.New("gone")}
	tests := []struct {
		name, attribute string
		key             string
		allowed         bool
	}{
		{"open", "user", "rl:{user:x}:user", true},
		{"local, with nobody to count", "tenant", "rl:{t:x}:tenant", true},
		{"closed", "login", loginKey, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &recorder{answers: map[string]ratelimit.Result{tt.key: failed}}
			l := ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, policies)})
			d, err := l.Check(t.Context(), ratelimit.Request{Domain: "edge", Attributes: map[string]string{tt.attribute: "x", "ip": "x"}})
			require.NoError(t, err)
			require.Equal(t, tt.allowed, d.Allowed)
			require.Equal(t, !tt.allowed, d.Unavailable())
			require.EqualError(t, d.Checks[0].Result.Err, "gone")
			require.Zero(t, d.Uncharged())
		})
	}
}

// TestAbandoned: who could have been let through for not having waited is told from who was counted.
func TestAbandoned(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	failed := ratelimit.Result{Err: context.Canceled}
	here := ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromLocal}
	tests := []struct {
		name, attribute, key string
		ctx                  context.Context
		answer               ratelimit.Result
		want                 bool
	}{
		{"open, and gone", "user", "rl:{user:x}:user", ended, failed, true},
		{"open, and there", "user", "rl:{user:x}:user", t.Context(), failed, false},
		{"counted here only, and gone", "tenant", "rl:{t:x}:tenant", ended, here, true},
		{"counted, and gone", "user", "", ended, ratelimit.Result{}, false},
		{"denied, and gone", "login", loginKey, ended, failed, false},
		{"a shadow, and gone", "trial", "rl:{trial:x}:trial:shadow", ended, here, false},
		{"no policy, and gone", "nothing", "", ended, failed, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &recorder{answers: map[string]ratelimit.Result{tt.key: tt.answer}}
			l := ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, policies)})
			d, err := l.Check(tt.ctx, ratelimit.Request{Domain: "edge", Attributes: map[string]string{tt.attribute: "x", "ip": "x"}})
			require.NoError(t, err)
			require.Equal(t, tt.want, d.Abandoned(tt.ctx))
		})
	}
}

// TestNamesOfOneAttribute: of several names for one attribute the same one counts each time, or a reservation could not be settled.
func TestNamesOfOneAttribute(t *testing.T) {
	s := new(recorder)
	l := ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, "policies:\n"+
		"  - {id: clients, key: [ip], algorithm: token-bucket, capacity: 10, refillPerMinute: 1, onStoreFailure: open}\n")})
	for range 50 {
		_, err := l.Check(t.Context(), ratelimit.Request{Attributes: map[string]string{
			"remote_address": "3.3.3.3", "ip": "1.1.1.1", "masked_remote_address": "2.2.2.2",
		}})
		require.NoError(t, err)
	}
	for _, asked := range s.asked {
		require.Equal(t, "take 1 rl:{ip:1.1.1.1}:clients", asked)
	}
}

func TestUncharged(t *testing.T) {
	report := ratelimit.Request{Domain: "edge", Attributes: map[string]string{"model": "x", "bill": "x"}, Cost: 9}
	tests := []struct {
		name        string
		usage, bill ratelimit.Result
		want        uint64
	}{
		{"all charged", ratelimit.Result{}, ratelimit.Result{}, 0},
		{"no room in one", ratelimit.Result{Uncharged: 4}, ratelimit.Result{}, 4},
		{"the most of several", ratelimit.Result{Uncharged: 4}, ratelimit.Result{Uncharged: 6}, 6},
		{"the store failed", ratelimit.Result{Uncharged: 4}, ratelimit.Result{Err: errors.New("gone")}, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []*ratelimit.Result{&tt.usage, &tt.bill} {
				if r.Err == nil {
					r.Outcome, r.Source = ratelimit.Admitted, ratelimit.FromStore
				}
			}
			s := &recorder{answers: map[string]ratelimit.Result{"rl:{model:x}:usage": tt.usage, "rl:{bill:x}:bill": tt.bill}}
			d, err := ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, policies)}).Check(t.Context(), report)
			require.NoError(t, err)
			require.Len(t, s.asked, 2)
			require.True(t, d.Allowed)
			require.Equal(t, tt.want, d.Uncharged())
		})
	}
}

// TestLongValues: what one call holds of hostile values does not mix with another's.
func TestLongValues(t *testing.T) {
	d := newDoor(t, doorPolicies)
	for i := range 3 {
		for _, size := range []int{0, 1, 1 << 16, 100} {
			r := ratelimit.Request{Domain: "edge", Attributes: map[string]string{"user": strings.Repeat("x", size), "plan": strings.Repeat("y", size)}}
			got, err := d.Check(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, float64(20-1-i), got.Checks[0].Result.Remaining, "%d bytes", size)
		}
	}
}

func TestNoStore(t *testing.T) {
	require.Panics(t, func() { ratelimit.New(ratelimit.Options{}) })
}
