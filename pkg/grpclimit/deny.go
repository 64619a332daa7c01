package grpclimit

import (
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// pushback is the metadata by which a server tells clients when to retry, in milliseconds as a signed 32-bit number; less than 0: not at all
// (gRFC A6).
const pushback = "grpc-retry-pushback-ms"

// leastUnavailable is how long clients are sent away while the store is down, if nobody knows when it is asked again.
const leastUnavailable = time.Second

// deny makes v the denial that d is.
func (v *verdict) deny(d *ratelimit.Decision) {
	wait, ever := d.Wait()
	st := status.New(codes.ResourceExhausted, "rate limit exceeded")
	var details []protoadapt.MessageV1
	if d.Unavailable() {
		st = status.New(codes.Unavailable, "temporarily reduced capacity")
		wait = max(wait, leastUnavailable)
	} else if f := quotaFailure(d); len(f.Violations) > 0 {
		details = append(details, f)
	}
	v.fields[pushback] = []string{"-1"}
	if ever {
		ms := milliseconds(wait)
		v.fields[pushback] = []string{strconv.FormatInt(min(ms, math.MaxInt32), 10)}
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(ms) * time.Millisecond)})
	}
	if detailed, err := st.WithDetails(details...); err == nil { // else a text is not UTF-8, which the loader of policies refuses
		st = detailed
	}
	v.err = st.Err()
}

// milliseconds are whole ones, rounded up, and at least 1.
func milliseconds(d time.Duration) int64 {
	return max(1, int64(d/time.Millisecond)+min(1, int64(d%time.Millisecond)))
}

// quotaFailure names the policies that denied, each once, as far as clients may know them.
func quotaFailure(d *ratelimit.Decision) *errdetails.QuotaFailure {
	f := new(errdetails.QuotaFailure)
	var last *policy.Policy // checks of one policy follow each other
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.Shadow() || !c.Denied() || c.Policy.Expose == policy.ExposeNever || c.Policy == last {
			continue
		}
		last = c.Policy
		f.Violations = append(f.Violations, &errdetails.QuotaFailure_Violation{
			Subject: "policy:" + c.Policy.Name, Description: description(c), QuotaId: c.Policy.Name,
		})
	}
	return f
}

func description(c *ratelimit.Check) string {
	switch c.Result.Source {
	case ratelimit.FromMissingKey:
		return "the call lacks what this policy counts by"
	case ratelimit.FromNever:
		return "the call costs more than this policy ever allows"
	case ratelimit.FromClosed:
		return "this policy's store does not answer"
	case ratelimit.FromBlocked:
		return "the caller is blocked"
	}
	return "nothing left for now"
}
