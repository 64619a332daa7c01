// Package idempotencytest is the conformance suite of every [idempotency.Store]: what the interface promises, case by case and against a model.
package idempotencytest

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// Harness is a store under test.
type Harness struct {
	Store idempotency.Store
	// Advance makes d pass for the store.
	Advance func(d time.Duration)
}

// lease and ttl are longer than a test takes by itself.
const (
	lease = time.Minute
	ttl   = time.Hour
)

// Run runs the suite. with runs a test on a harness on which nothing else is done; it may do so in a synctest bubble.
func Run(t *testing.T, with func(t *testing.T, test func(*testing.T, Harness))) {
	for name, test := range map[string]func(*testing.T, Harness){
		"one runs":                  oneRuns,
		"a claim can be repeated":   claimRepeated,
		"answers are replayed":      replayed,
		"nothing is free":           nothingFree,
		"another fingerprint":       anotherFingerprint,
		"released":                  released,
		"the lease ends":            leaseEnds,
		"the lease is renewed":      leaseRenewed,
		"late, and nobody came":     lateAlone,
		"an answer ends":            answerEnds,
		"completed twice":           completedTwice,
		"answers are bytes":         answersAreBytes,
		"keys are apart":            keysApart,
		"at once":                   atOnce,
		"an ended context":          endedContext,
		"as the model says":         asTheModelSays,
		"a completed one stays put": completedStays,
	} {
		t.Run(name, func(t *testing.T) { with(t, test) })
	}
}

// random is a claim on a key of its own.
func random() idempotency.Claim {
	c := idempotency.Claim{Lease: lease}
	_, _ = rand.Read(c.Key[:])
	_, _ = rand.Read(c.Fingerprint[:])
	return another(c)
}

// another is a claim for the same request.
func another(c idempotency.Claim) idempotency.Claim {
	_, _ = rand.Read(c.Token[:])
	return c
}

func (h Harness) claim(t require.TestingT, c idempotency.Claim) idempotency.Found {
	found, err := h.Store.Claim(context.Background(), c)
	require.NoError(t, err)
	return found
}

func (h Harness) state(t *testing.T, c idempotency.Claim, want idempotency.State) {
	t.Helper()
	require.Equal(t, want, h.claim(t, c).State)
}

func (h Harness) complete(t *testing.T, c idempotency.Claim, data string, free int) {
	t.Helper()
	require.NoError(t, h.Store.Complete(t.Context(), c, idempotency.Answer{Data: []byte(data), Free: free, TTL: ttl}))
}

func oneRuns(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.state(t, another(c), idempotency.Running)
	h.state(t, another(c), idempotency.Running)
}

func claimRepeated(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.state(t, c, idempotency.Claimed)
	h.state(t, another(c), idempotency.Running)
}

func replayed(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.complete(t, c, "answer", 5)
	for i := range 8 {
		require.Equal(t, idempotency.Found{State: idempotency.Completed, Free: i < 5, Data: []byte("answer")}, h.claim(t, another(c)), "replay %d", i)
	}
}

func nothingFree(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.complete(t, c, "answer", 0)
	require.Equal(t, idempotency.Found{State: idempotency.Completed, Data: []byte("answer")}, h.claim(t, another(c)))
}

func anotherFingerprint(t *testing.T, h Harness) {
	c := random()
	other := another(c)
	other.Fingerprint[0]++
	h.state(t, c, idempotency.Claimed)
	h.state(t, other, idempotency.Mismatch)
	h.complete(t, c, "answer", 1)
	require.Equal(t, idempotency.Found{State: idempotency.Mismatch}, h.claim(t, other))
	require.True(t, h.claim(t, another(c)).Free, "another's request takes no free replay")
}

func released(t *testing.T, h Harness) {
	c := random()
	next := another(c)
	h.state(t, c, idempotency.Claimed)
	require.NoError(t, h.Store.Release(t.Context(), next), "somebody else's")
	h.state(t, next, idempotency.Running)
	require.NoError(t, h.Store.Release(t.Context(), c))
	next.Fingerprint[0]++
	h.state(t, next, idempotency.Claimed)
	require.NoError(t, h.Store.Release(t.Context(), random()), "of nothing")
}

func leaseEnds(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.Advance(lease - lease/6)
	h.state(t, another(c), idempotency.Running)
	h.Advance(lease / 3)
	next := another(c)
	h.state(t, next, idempotency.Claimed)
	require.ErrorIs(t, h.Store.Renew(t.Context(), c), idempotency.ErrLost)
	require.ErrorIs(t, h.Store.Complete(t.Context(), c, idempotency.Answer{TTL: ttl}), idempotency.ErrLost)
	require.NoError(t, h.Store.Release(t.Context(), c))
	h.state(t, another(c), idempotency.Running)
	h.complete(t, next, "second", 1)
	require.ErrorIs(t, h.Store.Complete(t.Context(), c, idempotency.Answer{TTL: ttl}), idempotency.ErrLost)
	require.Equal(t, "second", string(h.claim(t, another(c)).Data))
}

func leaseRenewed(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	for range 3 {
		h.Advance(lease * 2 / 3)
		require.NoError(t, h.Store.Renew(t.Context(), c))
	}
	h.state(t, another(c), idempotency.Running)
}

func lateAlone(t *testing.T, h Harness) {
	c, d := random(), random()
	h.state(t, c, idempotency.Claimed)
	h.state(t, d, idempotency.Claimed)
	h.Advance(2 * lease)
	h.complete(t, c, "late", 1)
	require.Equal(t, "late", string(h.claim(t, another(c)).Data))
	require.NoError(t, h.Store.Renew(t.Context(), d))
	h.state(t, another(d), idempotency.Running)
}

func answerEnds(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.complete(t, c, "answer", 5)
	for range 5 {
		h.Advance(ttl / 6)
		h.state(t, another(c), idempotency.Completed)
	}
	h.Advance(ttl / 3)
	h.state(t, another(c), idempotency.Claimed)
}

func completedTwice(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.complete(t, c, "answer", 1)
	require.True(t, h.claim(t, another(c)).Free)
	h.complete(t, c, "again", 1)
	require.Equal(t, idempotency.Found{State: idempotency.Completed, Data: []byte("answer")}, h.claim(t, another(c)))
}

func completedStays(t *testing.T, h Harness) {
	c := random()
	h.state(t, c, idempotency.Claimed)
	h.complete(t, c, "answer", 5)
	require.NoError(t, h.Store.Release(t.Context(), c))
	require.ErrorIs(t, h.Store.Renew(t.Context(), c), idempotency.ErrLost)
	h.state(t, c, idempotency.Completed)
	h.Advance(2 * lease)
	h.state(t, another(c), idempotency.Completed)
}

func answersAreBytes(t *testing.T, h Harness) {
	for _, data := range []string{"", "\x00\xff\r\n$-1\r\n", string(make([]byte, 100_000))} {
		c, given := random(), []byte(data)
		h.state(t, c, idempotency.Claimed)
		require.NoError(t, h.Store.Complete(t.Context(), c, idempotency.Answer{Data: given, TTL: ttl}))
		clear(given)
		require.Equal(t, data, string(h.claim(t, another(c)).Data))
	}
}

func keysApart(t *testing.T, h Harness) {
	c := random()
	other := another(c)
	other.Key[31]++
	h.state(t, c, idempotency.Claimed)
	h.state(t, other, idempotency.Claimed)
	h.complete(t, c, "answer", 1)
	h.state(t, another(other), idempotency.Running)
}

func atOnce(t *testing.T, h Harness) {
	const callers = 32
	c := random()
	count := func(what func(idempotency.Found) bool) (n int64) {
		var hits atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if found, err := h.Store.Claim(t.Context(), another(c)); err != nil || what(found) {
					hits.Add(1)
				}
			})
		}
		all.Wait()
		return hits.Load()
	}
	require.EqualValues(t, 1, count(func(f idempotency.Found) bool { return f.State == idempotency.Claimed }))
	h.Advance(2 * lease)
	h.complete(t, c, "answer", 5)
	require.EqualValues(t, 5, count(func(f idempotency.Found) bool { return f.Free }))
}

func endedContext(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := random()
	_, err := h.Store.Claim(ctx, c)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, h.Store.Renew(ctx, c), context.Canceled)
	require.ErrorIs(t, h.Store.Complete(ctx, c, idempotency.Answer{TTL: ttl}), context.Canceled)
	require.ErrorIs(t, h.Store.Release(ctx, c), context.Canceled)
	h.state(t, another(c), idempotency.Claimed)
}
