package ratelimit

import (
	"errors"
	"fmt"
	"slices"
)

// MaxAttributes is how many attributes a Request may have.
const MaxAttributes = 64

// Errors of requests that were made wrongly. Nothing was asked of the store then.
var (
	// ErrTooManyAttributes is the error of a request with more than MaxAttributes.
	ErrTooManyAttributes = errors.New("too many attributes")
	// ErrNotReservable is the error of a reservation under a policy whose algorithm has none.
	ErrNotReservable = errors.New("only token buckets can be reserved from")
	// ErrNotReserved is the error of a Commit of a reservation that was denied.
	ErrNotReserved = errors.New("the reservation was denied")
	// ErrSettled is the error of a Commit of a reservation that is settled already, by Commit or Cancel.
	ErrSettled = errors.New("the reservation is settled already")
)

// Request is what is known about something that somebody wants to do. Any string is a valid attribute value: long ones are
// hashed, and addresses, routes and API keys are made canonical before they count (an API key never appears in a store).
type Request struct {
	// Domain chooses the policy files: those with this domain, and those without any. A domain that no file serves has
	// no policies: everything is allowed, and Decision.DomainKnown is false.
	Domain string
	// Attributes are facts by name, as the policies' match and key know them: user, tenant, plan, route, ip, … Those that no
	// policy has a use for cost next to nothing. Of names that the files' attributes tables take for one attribute, such as ip and
	// remote_address, the alphabetically first counts. At most MaxAttributes.
	Attributes map[string]string
	// Cost is how many units the request takes. 0 means that none is stated: then it costs 1, or under a postpaid policy it is
	// only asked whether there is any left.
	Cost uint64
}

// begin takes a call from the pool and fills it with r.
func (l *Limiter) begin(r *Request) (*Call, error) {
	if n := len(r.Attributes); n > MaxAttributes {
		return nil, fmt.Errorf("%w: %d, of at most %d", ErrTooManyAttributes, n, MaxAttributes)
	}
	c := l.Begin([]byte(r.Domain))
	var room [8]string
	names := room[:0]
	for name := range r.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.AddString(0, name, r.Attributes[name])
	}
	if r.Cost > 0 {
		c.SetCost(r.Cost)
	}
	return c, nil
}
