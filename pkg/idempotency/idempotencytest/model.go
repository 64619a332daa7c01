package idempotencytest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// known is what the model knows of the one key.
type known struct {
	there       bool
	fingerprint idempotency.Fingerprint
	token       idempotency.Token
	completed   bool
	data        string
	free        int
	until       time.Duration
}

// asTheModelSays does steps in a random order, by three holders of which two ask for the same, and compares each reply. Time passes in
// twelfths of a lease, beside which what the steps take does not matter.
func asTheModelSays(t *testing.T, h Harness) {
	// Only what testing.TB has: in a bubble there is no asking for the deadline of the test.
	rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
		key := random().Key
		var model known
		var now time.Duration
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			c := idempotency.Claim{Key: key, Lease: lease}
			c.Token[0] = rapid.ByteRange(1, 3).Draw(t, "token")
			c.Fingerprint[0] = c.Token[0] % 2 // a run has one
			if model.there && now >= model.until {
				model = known{}
			}
			switch rapid.SampledFrom([]string{"claim", "claim", "renew", "complete", "release", "wait"}).Draw(t, "step") {
			case "claim":
				require.Equal(t, model.claim(c, now), h.claim(t, c))
			case "renew":
				require.Equal(t, model.renew(c, now), h.Store.Renew(context.Background(), c))
			case "complete":
				a := idempotency.Answer{Data: []byte(rapid.StringN(1, 3, 9).Draw(t, "data")), Free: rapid.IntRange(0, 2).Draw(t, "free"), TTL: 2*lease + lease/12}
				require.Equal(t, model.complete(c, a, now), h.Store.Complete(context.Background(), c, a))
			case "release":
				model.release(c)
				require.NoError(t, h.Store.Release(context.Background(), c))
			case "wait":
				d := lease/12 + lease/6*time.Duration(rapid.IntRange(0, 8).Draw(t, "sixths"))
				h.Advance(d)
				now += d
			}
		}
	})
}

func (k *known) claim(c idempotency.Claim, now time.Duration) idempotency.Found {
	switch {
	case !k.there:
		*k = known{there: true, fingerprint: c.Fingerprint, token: c.Token, until: now + c.Lease}
	case k.fingerprint != c.Fingerprint:
		return idempotency.Found{State: idempotency.Mismatch}
	case k.completed:
		free := k.free > 0
		k.free = max(k.free-1, 0)
		return idempotency.Found{State: idempotency.Completed, Free: free, Data: []byte(k.data)}
	case k.token != c.Token:
		return idempotency.Found{State: idempotency.Running}
	}
	k.until = now + c.Lease
	return idempotency.Found{State: idempotency.Claimed}
}

func (k *known) renew(c idempotency.Claim, now time.Duration) error {
	if k.there && (k.completed || k.token != c.Token) {
		return idempotency.ErrLost
	}
	*k = known{there: true, fingerprint: c.Fingerprint, token: c.Token, until: now + c.Lease}
	return nil
}

func (k *known) complete(c idempotency.Claim, a idempotency.Answer, now time.Duration) error {
	switch {
	case k.there && k.token != c.Token:
		return idempotency.ErrLost
	case !k.there || !k.completed:
		*k = known{
			there: true, fingerprint: c.Fingerprint, token: c.Token,
			completed: true, data: string(a.Data), free: a.Free, until: now + a.TTL,
		}
	}
	return nil
}

func (k *known) release(c idempotency.Claim) {
	if k.there && !k.completed && k.token == c.Token {
		*k = known{}
	}
}
