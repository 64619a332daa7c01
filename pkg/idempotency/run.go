package idempotency

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// run carries out a request that was claimed, if the limiter admits it, and stores the answer. If there is none to store, also because the handler
// panics, the entry is released.
func (h *handler) run(w http.ResponseWriter, r *http.Request, c Claim) {
	var (
		got     *answer
		outcome = Denied
	)
	stop := h.hold(r.Context(), c)
	defer func() {
		stop()
		if h.settle(r.Context(), c, got) {
			outcome = Ran
		}
		h.tell(r, outcome)
	}()
	h.charge(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcome = RanOnly
		rec := newRecorder(w, h.options.MaxResponse)
		h.next.ServeHTTP(rec, r)
		got = rec.answer(r.Context().Err() != nil)
	}))
}

// settle completes the claim with what was answered, or releases it. It reports whether retries will be told.
func (h *handler) settle(ctx context.Context, c Claim, got *answer) bool {
	if got == nil {
		_ = h.ask(ctx, "release", func(ctx context.Context) error { return h.options.Store.Release(ctx, c) })
		return false
	}
	stored := Answer{Free: FreeReplays, TTL: h.options.TTL}
	data, err := got.encode()
	if err != nil || len(data) > h.options.MaxResponse || !got.kept {
		stored.Free = 0
		data, err = (&answer{status: got.status}).encode()
	}
	if err != nil {
		h.fail("complete", err)
		return false
	}
	stored.Data = data
	return h.ask(ctx, "complete", func(ctx context.Context) error { return h.options.Store.Complete(ctx, c, stored) }) == nil
}

// hold renews the lease of c until stop is called, which waits for the last attempt.
func (h *handler) hold(ctx context.Context, c Claim) (stop func()) {
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticker := time.NewTicker(h.options.Lease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			select {
			case <-ended: // a tick had come as well
				return
			default:
			}
			err := h.ask(ctx, "renew", func(ctx context.Context) error { return h.options.Store.Renew(ctx, c) })
			if errors.Is(err, ErrLost) {
				return
			}
		}
	})
	return func() {
		close(ended)
		renewing.Wait()
	}
}
