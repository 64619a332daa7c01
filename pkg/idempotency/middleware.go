package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
)

// Middleware recognises retries. It is safe for concurrent use.
type Middleware struct{ options Options }

// New makes a Middleware. The error tells everything that is wrong with the options.
func New(o Options) (*Middleware, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Middleware{options: o}, nil
}

// Handler gives a handler that has requests carried out by next, behind the limiter. The limiter must not be around next, or behind it, once more.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	h := &handler{Middleware: m, next: next}
	h.limited = m.options.Limit(http.HandlerFunc(serveAdmitted))
	return h
}

// handler is a Middleware around one handler.
type handler struct {
	*Middleware
	next    http.Handler
	limited http.Handler // the limiter around serveAdmitted
}

type admittedKey struct{}

// serveAdmitted is what the limiter is around: what the request's context says is to be done when it is admitted.
func serveAdmitted(w http.ResponseWriter, r *http.Request) {
	r.Context().Value(admittedKey{}).(http.Handler).ServeHTTP(w, r)
}

// charge has the limiter decide on r, and step answer it if it is admitted.
func (h *handler) charge(w http.ResponseWriter, r *http.Request, step http.Handler) {
	h.limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), admittedKey{}, step)))
}

// chargeFor is charge that tells the outcome.
func (h *handler) chargeFor(w http.ResponseWriter, r *http.Request, o Outcome, step http.Handler) {
	outcome := Denied
	h.charge(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcome = o
		step.ServeHTTP(w, r)
	}))
	h.tell(r, outcome)
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	account, ok := "", false
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		account, ok = h.options.Account(r)
	}
	lines := r.Header[FieldKey]
	switch {
	case !ok, len(lines) == 0 && !h.options.RequireKey:
		h.charge(w, r, h.next)
		return
	case len(lines) == 0:
		h.chargeFor(w, r, Refused, keyMissing())
		return
	}
	key, err := ParseKey(lines)
	if err != nil {
		h.chargeFor(w, r, Refused, keyMalformed(err))
		return
	}
	c := Claim{Key: newKey(account, r.Method, h.options.Route(r), key), Lease: h.options.Lease}
	if c.Fingerprint, err = fingerprint(r, h.options.MaxBody); err != nil {
		var tooLarge *http.MaxBytesError
		h.chargeFor(w, r, Refused, bodyUnread(errors.As(err, &tooLarge)))
		return
	}
	_, _ = rand.Read(c.Token[:]) // never fails
	h.answer(w, r, c)
}

// answer answers a request that has a key, by what the store knows of it.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, c Claim) {
	var found Found
	err := h.ask(r.Context(), "claim", func(ctx context.Context) (err error) {
		found, err = h.options.Store.Claim(ctx, c)
		return err
	})
	switch {
	case err != nil && h.options.FailOpen:
		h.chargeFor(w, r, RanOnly, h.next)
	case err != nil:
		h.chargeFor(w, r, Unavailable, storeDown())
	case found.State == Claimed:
		h.run(w, r, c)
	case found.State == Running:
		h.chargeFor(w, r, InFlight, stillRunning())
	case found.State == Mismatch:
		h.chargeFor(w, r, Reused, keyReused())
	default:
		h.replay(w, r, found)
	}
}

// replay gives the stored answer, through the limiter unless it is free.
func (h *handler) replay(w http.ResponseWriter, r *http.Request, found Found) {
	a, err := decode(found.Data)
	if err != nil {
		h.fail("replay", err)
		a = &answer{}
	}
	switch {
	case !a.kept:
		h.chargeFor(w, r, NotKept, notKept(a.status))
	case !found.Free:
		h.chargeFor(w, r, ChargedReplay, a)
	default:
		if h.options.Tell != nil {
			h.options.Tell(w, r)
		}
		a.ServeHTTP(w, r)
		h.tell(r, FreeReplay)
	}
}

// ask calls the store. It does not end with the request: what a client that hangs up leaves behind must be put in order, too.
func (m *Middleware) ask(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.options.StoreTimeout)
	defer cancel()
	err := call(ctx)
	if err != nil {
		m.fail(what, err)
	}
	return err
}

func (m *Middleware) fail(what string, err error) {
	if m.options.OnError != nil {
		m.options.OnError(fmt.Errorf("idempotency: %s: %w", what, err))
	}
}

func (m *Middleware) tell(r *http.Request, o Outcome) {
	if m.options.OnOutcome != nil {
		m.options.OnOutcome(r, o)
	}
}
