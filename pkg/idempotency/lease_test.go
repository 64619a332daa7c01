package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// TestLeaseIsRenewed: however long a handler takes, nobody else carries its request out.
func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		s := newService(t, idempotency.Options{Lease: time.Second}, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			c.ServeHTTP(w, r)
		})
		var running sync.WaitGroup
		running.Go(func() { s.serve(post("{}")) })
		for range 50 {
			time.Sleep(time.Second)
			require.Equal(t, http.StatusConflict, s.serve(post("{}")).Code)
		}
		running.Wait()
		require.Equal(t, http.StatusCreated, s.serve(post("{}")).Code)
		require.Equal(t, 1, c.runs)
		require.NoError(t, s.failures())
	})
}

func TestAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		s := newService(t, idempotency.Options{}, c.ServeHTTP)
		s.serve(post("{}"))
		time.Sleep(idempotency.MaxTTL - time.Nanosecond)
		require.Equal(t, "payment 1", s.serve(post("{}")).Body.String())
		time.Sleep(time.Nanosecond)
		require.Equal(t, "payment 2", s.serve(post("{}")).Body.String())
	})
}

// unreachable is a store whose steps after the claim can fail.
type unreachable struct {
	idempotency.Store
	down atomic.Bool
}

var errUnreachable = errors.New("unreachable")

func (u *unreachable) Renew(ctx context.Context, c idempotency.Claim) error {
	if u.down.Load() {
		return errUnreachable
	}
	return u.Store.Renew(ctx, c)
}

func (u *unreachable) Complete(ctx context.Context, c idempotency.Claim, a idempotency.Answer) error {
	if u.down.Load() {
		return errUnreachable
	}
	return u.Store.Complete(ctx, c, a)
}

// TestLeaseIsLost: a run that could not renew its lease does not change what the next one, which was charged as well, has left.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unreachable{Store: idempotency.NewMemory(idempotency.MemoryOptions{})}
		var c counter
		s := newService(t, idempotency.Options{Store: store, Lease: time.Second}, func(w http.ResponseWriter, _ *http.Request) {
			n := c.count()
			if n == 1 {
				time.Sleep(10 * time.Second)
			}
			w.WriteHeader(200 + n)
		})
		store.down.Store(true)
		var running sync.WaitGroup
		var first *httptest.ResponseRecorder
		running.Go(func() { first = s.serve(post("{}")) })
		time.Sleep(1500 * time.Millisecond)
		require.ErrorIs(t, s.failures(), errUnreachable)
		store.down.Store(false)
		require.Equal(t, 202, s.serve(post("{}")).Code)
		running.Wait()
		require.Equal(t, 201, first.Code)
		require.EqualError(t, s.failures(), "idempotency: renew: the lease was lost\nidempotency: complete: the lease was lost", "each once")
		require.Equal(t, 202, s.serve(post("{}")).Code)
		require.Equal(t, 2, s.charged(t))
		require.Equal(t, []idempotency.Outcome{idempotency.Ran, idempotency.RanOnly, idempotency.FreeReplay}, s.took())
	})
}

// slowRenewals is a store that notes in which order steps end.
type slowRenewals struct {
	idempotency.Store
	mu    sync.Mutex // guards steps
	steps []string
}

func (s *slowRenewals) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step)
}

func (s *slowRenewals) Renew(ctx context.Context, c idempotency.Claim) error {
	time.Sleep(time.Second)
	defer s.note("renew")
	return s.Store.Renew(ctx, c)
}

func (s *slowRenewals) Release(ctx context.Context, c idempotency.Claim) error {
	defer s.note("release")
	return s.Store.Release(ctx, c)
}

// TestRenewalsEndFirst: a renewal that is under way when the handler returns does not take the entry again behind the release.
func TestRenewalsEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRenewals{Store: idempotency.NewMemory(idempotency.MemoryOptions{})}
		s := newService(t, idempotency.Options{Store: store, Lease: 3 * time.Second, StoreTimeout: time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(1500 * time.Millisecond)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		s.serve(post("{}"))
		require.Equal(t, []string{"renew", "release"}, store.steps)
	})
}

// TestAnswerIsNotStored: when the store fails at the end, retries wait for the lease and are then carried out, and charged, again.
func TestAnswerIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unreachable{Store: idempotency.NewMemory(idempotency.MemoryOptions{})}
		var c counter
		s := newService(t, idempotency.Options{Store: store}, c.ServeHTTP)
		store.down.Store(true)
		require.Equal(t, "payment 1", s.serve(post("{}")).Body.String())
		require.ErrorIs(t, s.failures(), errUnreachable)
		store.down.Store(false)
		require.Equal(t, http.StatusConflict, s.serve(post("{}")).Code)
		time.Sleep(10 * time.Second)
		require.Equal(t, "payment 2", s.serve(post("{}")).Body.String())
		require.Equal(t, 3, s.charged(t))
	})
}

// slowStore answers when its caller no longer waits.
type slowStore struct{ idempotency.Store }

func (slowStore) Claim(ctx context.Context, _ idempotency.Claim) (idempotency.Found, error) {
	<-ctx.Done()
	return idempotency.Found{}, ctx.Err()
}

func TestStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, idempotency.Options{Store: slowStore{}, StoreTimeout: time.Second}, http.NotFound)
		began := time.Now()
		require.Equal(t, http.StatusServiceUnavailable, s.serve(post("{}")).Code)
		require.Equal(t, time.Second, time.Since(began))
	})
}
