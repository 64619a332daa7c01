package ratelimit

import (
	"context"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Op is what a store is asked to do with a bucket. The zero Op is invalid.
type Op uint8

// The operations on a bucket.
const (
	// Take spends Cost if every enforced bucket of the call can.
	Take Op = iota + 1
	// Peek tells whether a Take of Cost would be admitted and spends nothing. A Peek that would be denied denies the call.
	Peek
	// Undo gives back a Take whose sibling was denied elsewhere. Before and At are those of the Take's Result.
	Undo
	// Refund gives Cost back: clamped at capacity, or the newest Cost entries of a log removed. Never denied.
	Refund
	// Force charges Cost even where there is not enough: a token bucket down to -Limits.Overdraft at most, a log up to its
	// limit at most. Never denied; what could not be charged is Result.Uncharged.
	Force
	// Reset forgets the bucket: it is full again.
	Reset
	// Put forgets the bucket and charges Cost to the full one, up to its capacity: it has Capacity - Cost left then, whatever it had before.
	// Never denied; what could not be charged is Result.Uncharged.
	Put
)

// Deniable reports whether a call can be denied for want of what the operation asks for: a Take or Peek. The others are
// always carried out.
func (op Op) Deniable() bool { return op == Take || op == Peek }

// Bucket names one bucket of a call and says what to do with it.
type Bucket struct {
	// Key identifies the bucket. It is valid until the call returns; a store that keeps it copies it.
	Key    policy.Key
	Limits algorithm.Limits
	// Overdraft is how far below zero Force may charge a token bucket.
	Overdraft float64
	// Cost in tokens or log entries. At least 1, and at most Limits.Capacity for Take and Peek.
	Cost uint64
	Op   Op
	// Shadow marks a bucket that takes part in nothing: charged only when every enforced one admits, its denial or
	// failure changes no other result.
	Shadow bool
	// OnFailure is what answers when the bucket cannot be counted. A store that must forget buckets for want of room never
	// forgets a policy.Closed one to the benefit of the client. The zero value is taken for policy.Open.
	OnFailure policy.FailureMode
	// NoReconcile says that what a policy.Local bucket admits while the store fails is not charged to the store afterwards.
	NoReconcile bool
	// Undoable says of a Take that an Undo may follow, since somebody who is not asked in this call has a say in the request: a denial until
	// that is settled is Result.Tentative. A store that has no Tentative denials need not know.
	Undoable bool
	// Before and At are, for Undo only, those of the Result of the Take that is given back.
	Before float64
	At     int64
}

// Outcome is a store's answer about one bucket. The zero Outcome means that there is none: the bucket could not be decided
// (see Err), or was not asked, since another one of the call was known to deny (Source FromCache or FromBlocked, no Err).
type Outcome uint8

// The outcomes.
const (
	// Admitted: the bucket has what was asked for. It was charged if the whole call was admitted.
	Admitted Outcome = iota + 1
	// Denied: it has not, and nothing was charged to any enforced bucket of the call.
	Denied
)

// Source says who made a decision. The zero Source is invalid.
type Source uint8

// The sources.
const (
	FromStore      Source = iota + 1 // the store counted
	FromCache                        // known to be empty
	FromLocal                        // this instance's share, while the store does not answer
	FromOpen                         // admitted, since the store did not answer
	FromClosed                       // denied, since the store did not answer
	FromMissingKey                   // denied, since the request lacks an attribute of the key
	FromNever                        // denied for ever: the cost is more than the bucket holds
	FromBlocked                      // denied, since an operator has blocked the bucket
)

// String is the source as it appears in metrics and metadata.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return ""
}

var sourceNames = [...]string{
	FromStore: "store", FromCache: "cache", FromLocal: "local", FromOpen: "open", FromClosed: "closed",
	FromMissingKey: "missing-key", FromNever: "never", FromBlocked: "blocked",
}

// Result is what became of one Bucket.
type Result struct {
	Outcome Outcome
	Source  Source
	// Remaining is what the bucket has left after the call: tokens, or entries that still fit into the window. Negative
	// for a token bucket in debt.
	Remaining float64
	// Wait is, for a denial, how long until a call of the same cost would be admitted if nobody else called: at Wait it is,
	// a microsecond earlier it is not. Zero for an admission.
	Wait time.Duration
	// Tentative marks a denial by a bucket from which others have taken what may yet be undone, since it belongs to requests that another
	// bucket may deny. Wait is then until that is settled, a second at most, if the bucket needs longer should it all stand: a call after
	// Wait may be denied again.
	Tentative bool
	// Reset is, for a sliding log, how long until its oldest entry leaves the window; zero if it is empty.
	Reset time.Duration
	// Before and At are, for an admitted Take, what Undo needs to know: the tokens before it and the store's time in
	// microseconds, which is not 0. At is 0 for a shadow Take that was only looked at: it has charged nothing, and is not to be undone.
	Before float64
	At     int64
	// Uncharged is the part of a Force or Put that found no room.
	Uncharged uint64
	// Err says why the bucket could not be decided. Every other field but Source is then meaningless.
	Err error
}

// Store keeps buckets and decides on them. Implementations are safe for concurrent use.
type Store interface {
	// Acquire decides on buckets, whose keys are distinct, and returns one Result for each, in order, in results if that has
	// the room (so that a caller that keeps its slice allocates nothing).
	//
	// All or none over the enforced (not Shadow) Take buckets: if any Take or Peek among the enforced is denied, no Take is
	// charged, and the others still say what they have left. Force, Refund, Undo, Reset and Put take no part in that: they are
	// always carried out. A bucket that could not be decided carries Err, and the others their result, as if it had not been
	// part of the call: if none of them is denied, what they took stands, and who answers for the failed ones gives it back if
	// need be.
	// Acquire honours ctx: when it ends before a bucket could be decided, that bucket carries its error.
	Acquire(ctx context.Context, buckets []Bucket, results []Result) []Result
}
