package fallback

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// local decides buckets of policies whose onStoreFailure is local. There are no shares of limits as yet: it admits all.
type local struct{}

// decide answers the buckets at those indices, whose results carry why the store has not. denied says that the request is denied by
// others, so that nothing may be charged. wait is how long it is until the store is asked again, as far as known.
func (l *local) decide(_ []ratelimit.Bucket, results []ratelimit.Result, at []int, _ bool, _ time.Duration) {
	for _, i := range at {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromOpen}
	}
}
