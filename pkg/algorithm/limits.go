// Package algorithm holds the arithmetic of rate limiting: pure functions over a bucket's state, with the time as an argument.
//
// It knows nothing of policies, keys, stores or Envoy and imports only the standard library, so that the same rules
// can be written once more in Lua and compared bit for bit. Time is a count of microseconds from any fixed origin:
// the store supplies the clock.
package algorithm

// Kind says which algorithm decides a bucket. The zero Kind is invalid, so that a forgotten one is an error.
type Kind uint8

// The algorithms. Each has its own file and one row in the table below.
const (
	TokenBucket Kind = iota + 1
	SlidingLog
)

// Limits are the numbers that a bucket is decided by. They come from the policy in force at the time of the call and
// are never part of a bucket's state: a bucket outlives a change of its policy.
type Limits struct {
	Kind Kind
	// Capacity is the most that can be admitted at once: the token bucket's burst, the sliding log's limit. A whole
	// number from 0 to 1e15-1.
	Capacity float64
	// Rate is the token bucket's refill in tokens per microsecond. Zero for a sliding log.
	Rate float64
	// Window is the sliding log's window in microseconds. Zero for a token bucket.
	Window int64
}
