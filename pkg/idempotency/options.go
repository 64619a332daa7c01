package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// FreeReplays is how many replays a key gets before they are charged.
	FreeReplays = 5
	// MaxTTL is how long answers are kept at most.
	MaxTTL = 24 * time.Hour

	defaultLease        = 10 * time.Second
	maxLease            = 10 * time.Minute
	defaultStoreTimeout = 250 * time.Millisecond
	defaultMaxBytes     = 64 << 10
	maxMaxBytes         = 16 << 20
)

// Options are what a Middleware is made of. Store, Account and Limit are required.
type Options struct {
	Store Store
	// Account says whose request it is, as the service has established it: an authenticated user or tenant. An answer is only ever replayed
	// to the account that it was for. A request without an account (false) goes to the limiter and the handler, whatever its key.
	Account func(*http.Request) (string, bool)
	// Limit puts the limiter around a handler: the method Handler of a httplimit.Middleware. It is called once for each handler. What must be
	// charged passes through it; what it answers by itself (429) was denied, and is not stored.
	Limit func(http.Handler) http.Handler
	// Tell, if set, adds the RateLimit fields as they are now to free replays, which do not pass through Limit: the method Tell of
	// a httplimit.Middleware.
	Tell func(http.ResponseWriter, *http.Request)
	// Route, if set, says which route a request is for. Default: the pattern that it matched in an [http.ServeMux], or its path if there is none.
	Route func(*http.Request) string
	// RequireKey refuses POST and PATCH requests of an account without a key with 400.
	RequireKey bool
	// FailOpen carries requests out as if they had no key while the store fails. By default they are answered 503, and not carried out: who
	// sends a key relies on it, and waiting a moment costs less than a payment made twice.
	FailOpen bool
	// TTL is how long an answer is kept after it was given, at most MaxTTL; 0: MaxTTL.
	TTL time.Duration
	// Lease is for how long others are kept waiting by an instance that has died while it carried out a request, at most 10 minutes; 0: 10 s. It
	// is renewed three times in that time as long as the handler runs.
	Lease time.Duration
	// StoreTimeout bounds each call of the store; 0: 250 ms.
	StoreTimeout time.Duration
	// MaxBody is how many bytes of a request's body are compared, at most 16 MiB; 0: 64 KiB. They are held in memory while the request
	// runs. Of longer bodies, the length is compared as well.
	MaxBody int
	// MaxResponse is how many bytes of a response are stored, with its header, at most 16 MiB; 0: 64 KiB. Retries of a request with a longer
	// response are told with 409 that it was carried out.
	MaxResponse int
	// OnOutcome, if set, is told what became of each request that came with a key, or had to.
	OnOutcome func(*http.Request, Outcome)
	// OnError, if set, is told why a call of the store failed.
	OnError func(error)
}

// Outcome is what became of a request.
type Outcome int

// The outcomes. All but FreeReplay were charged, unless they were Denied.
const (
	// Ran: carried out, and the answer is stored.
	Ran Outcome = iota + 1
	// RanOnly: carried out, and a retry will be again: the answer must not be stored, could not be, or the store fails and FailOpen holds.
	RanOnly
	// FreeReplay: answered from the store.
	FreeReplay
	// ChargedReplay: answered from the store, but not for free any more.
	ChargedReplay
	// NotKept: 409; carried out before, but the answer cannot be given again.
	NotKept
	// InFlight: 409; it is being carried out.
	InFlight
	// Reused: 422; the key belongs to another request.
	Reused
	// Refused: 400 or 413; no key or a malformed one, or a body that cannot be read.
	Refused
	// Unavailable: 503; the store fails.
	Unavailable
	// Denied: answered by the limiter.
	Denied
)

// String is the outcome's name, in lower case with hyphens, as a metric's label has it.
func (o Outcome) String() string {
	names := [...]string{
		Ran: "ran", RanOnly: "ran-only", FreeReplay: "free-replay", ChargedReplay: "charged-replay", NotKept: "not-kept",
		InFlight: "in-flight", Reused: "reused", Refused: "refused", Unavailable: "unavailable", Denied: "denied",
	}
	if o < Ran || int(o) >= len(names) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return names[o]
}

// withDefaults checks the options and fills them in.
func (o Options) withDefaults() (Options, error) {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Store == nil, "no store")
	fault(o.Account == nil, "no account: without one, anybody could have the answers of others")
	fault(o.Limit == nil, "no limit: want the method Handler of the limiter's middleware")
	o.TTL = cmp.Or(o.TTL, MaxTTL)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.StoreTimeout = cmp.Or(o.StoreTimeout, defaultStoreTimeout)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBytes)
	o.MaxResponse = cmp.Or(o.MaxResponse, defaultMaxBytes)
	fault(o.TTL < time.Millisecond || o.TTL > MaxTTL, "TTL %v: want 1ms to %v", o.TTL, MaxTTL)
	fault(o.Lease < time.Millisecond || o.Lease > maxLease, "lease %v: want 1ms to %v", o.Lease, maxLease)
	fault(o.StoreTimeout < 0, "store timeout %v: want more than 0", o.StoreTimeout)
	fault(o.MaxBody < 0 || o.MaxBody > maxMaxBytes, "%d bytes of body: want 1 to %d", o.MaxBody, maxMaxBytes)
	fault(o.MaxResponse < 0 || o.MaxResponse > maxMaxBytes, "%d bytes of response: want 1 to %d", o.MaxResponse, maxMaxBytes)
	if err := errors.Join(faults...); err != nil {
		return o, fmt.Errorf("idempotency: %w", err)
	}
	if o.Route == nil {
		o.Route = routeOf
	}
	return o, nil
}

func routeOf(r *http.Request) string { return cmp.Or(r.Pattern, r.URL.Path) }
