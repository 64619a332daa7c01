package idempotency

import (
	"context"
	"errors"
	"time"
)

// Store keeps who is carrying out a request, and then what it was answered. It must be safe for concurrent use, honour the context, and pass
// idempotencytest. An entry is absent, running or completed; each method looks at and changes one entry, atomically.
//
// [Memory] is a Store in the process; package redisstore has one that instances share.
type Store interface {
	// Claim takes the entry for a run if it is absent or its lease is over. Otherwise it tells what is there, and takes one of the free
	// replays of a completed entry with the claim's fingerprint if there are any left. A second Claim with the token that has the entry is
	// Claimed again: a reply may have been lost.
	Claim(context.Context, Claim) (Found, error)
	// Renew starts the lease of the claim anew if the claim has the entry, or if nobody has: the lease may have run out a moment ago. Otherwise
	// the error is ErrLost.
	Renew(context.Context, Claim) error
	// Complete makes the entry completed if the claim has it, or if nobody has. Otherwise the error is ErrLost. A second Complete of the same claim changes nothing. Data must not be kept: it may change afterwards.
	Complete(context.Context, Claim, Answer) error
	// Release removes the entry if the claim has it and did not complete it.
	Release(context.Context, Claim) error
}

// ErrLost says that a lease has run out and somebody else has taken the entry.
var ErrLost = errors.New("the lease was lost")

// ErrFull says that a Store has no room that it may take from others.
var ErrFull = errors.New("the store is full of requests that are running")

// Key identifies an entry: a SHA-256 of account, method, route and the client's key.
type Key [32]byte

// Fingerprint tells requests with one key apart: a SHA-256 of what they ask for.
type Fingerprint [32]byte

// Token is random, and tells the runs of one key apart.
type Token [16]byte

// Claim is one attempt to carry out a request.
type Claim struct {
	Key         Key
	Fingerprint Fingerprint
	Token       Token
	// Lease is how long the entry is taken if it is not renewed. Stores may count in milliseconds.
	Lease time.Duration
}

// Answer is what a request was answered.
type Answer struct {
	Data []byte
	// Free is how many claims are told Data without being charged.
	Free int
	// TTL is how long the entry is kept. Neither claims nor replays make it longer.
	TTL time.Duration
}

// State is what a Claim has found.
type State int

// The states.
const (
	// Claimed: the request is to be carried out by who asked.
	Claimed State = iota + 1
	// Running: somebody else is carrying it out, with the same fingerprint.
	Running
	// Mismatch: the entry is of a request with another fingerprint, running or completed.
	Mismatch
	// Completed: here is the answer.
	Completed
)

// Found is what a Claim is told.
type Found struct {
	State State
	// Free reports whether this claim took a free replay of a completed entry.
	Free bool
	// Data is the answer of a completed entry. It belongs to the store and must not be changed.
	Data []byte
}
