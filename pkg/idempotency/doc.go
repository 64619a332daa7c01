// Package idempotency is middleware for net/http servers that answers the retry of a request from what the first one was answered, so that a
// client may safely repeat it, and need not pay for it: a retry spends no quota of the limiter behind.
//
// Clients mark a POST or PATCH with the field Idempotency-Key of draft-ietf-httpapi-idempotency-key-header-07. The first request with a key
// is carried out; while it runs, others with the key get 409; afterwards they get the same answer, marked with Idempotent-Replayed.
// A key that comes with another request gets 422.
//
// # What is free
//
// Only a replay, at most [FreeReplays] times a key, and only if account, method, route and request are the same. Everything else goes
// through [Options.Limit] first and is charged as any request is: 400, 409, 422, further replays, and 503 while the store fails. So
// nobody gets around a limit by means of keys.
//
// # What is promised
//
// While the store answers, a request is not carried out twice at a time, and not again as long as its answer is stored. An instance that dies,
// or is stopped for longer than its lease, while it carries one out, loses that; the next retry is carried out and charged. Answers 429 and 503 are never stored, and those of 400 and
// above are not if the client had hung up: a retry is carried out.
package idempotency
