// Package ratelimit is the front door of the limiter: it decides whether a request may pass.
//
// A [Limiter] is made of a policy set, which says who may do how much (package policy reads it from YAML), and of a [Store], which
// keeps the counts: package memorybackend in the process, package redislimit on a Redis that all instances of a service share, with what
// answers when Redis does not.
//
//	set, err := policy.Load("policies.yaml")
//	…
//	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: set})
//	…
//	d, err := limiter.Check(ctx, ratelimit.Request{Attributes: map[string]string{"user": "alice"}})
//
// A [Request] says what is known about what somebody wants to do. Every policy that matches it has a bucket for it, and all of
// them must have room, or nothing is charged to any. The answer is a [Decision].
//
// # Denials and errors
//
// A denial is a value, never an error: look at [Decision.Allowed]. [Decision.Wait] tells when to come back.
//
// An error means that the call was made wrongly, and that nothing was asked or charged: more than [MaxAttributes] attributes, a
// reservation under a policy that has none, one that is settled twice. A store that fails is no error either: each policy
// says by its onStoreFailure whether the request then passes, and [Result.Source] says that it was so decided.
//
// # Four ways to ask
//
//   - [Limiter.Check] charges the cost if there is room for it.
//   - [Limiter.Peek] only looks.
//   - [Limiter.Refund] gives back what a Check has charged, when what it paid for did not happen.
//   - [Limiter.Reserve] is for costs that are known afterwards only: it charges an estimate, and [Reservation.Commit] makes it the
//     actual cost.
//
// [Limiter.Begin] is for servers that decide ten thousand times a second: the same decisions without allocations.
package ratelimit
