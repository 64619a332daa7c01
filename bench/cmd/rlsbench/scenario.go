package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// scenario is a row of the table: a kind of call.
type scenario struct {
	name string
	// policies are the names of those that decide, most constraining first, as envoy-rls has them in its answer.
	policies []string
	request  func(key uint64) *rls.RateLimitRequest
}

// scenarios go with the policies in bench/policies.yaml. The first is the main one.
func scenarios() []scenario {
	return []scenario{
		{"one policy, allowed", []string{"free"}, func(key uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "free", "api_key", fmt.Sprintf("k%d", key)))
		}},
		{"two policies, allowed", []string{"free", "tenant"}, func(key uint64) *rls.RateLimitRequest {
			return request(
				descriptor("plan", "free", "api_key", fmt.Sprintf("k%d", key)),
				descriptor("tenant", fmt.Sprintf("t%d", key%1000)),
			)
		}},
		{"one policy, denied", []string{"spent"}, func(key uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "spent", "api_key", fmt.Sprintf("k%d", key%1000)))
		}},
	}
}

func request(descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "bench", Descriptors: descriptors}
}

// descriptor is made of alternating keys and values.
func descriptor(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// verify makes one call and fails unless the scenario's policies decided it, lest the benchmark measure something else.
func (s scenario) verify(ctx context.Context, c rls.RateLimitServiceClient) error {
	answer, err := c.ShouldRateLimit(ctx, s.request(0))
	if err != nil {
		return err
	}
	var got []string
	for _, h := range answer.ResponseHeadersToAdd {
		if h.Key != "ratelimit-policy" {
			continue
		}
		for item := range strings.SplitSeq(h.Value, ", ") {
			name, _, _ := strings.Cut(item, ";")
			got = append(got, strings.Trim(name, `"`))
		}
	}
	if !slices.Equal(got, s.policies) {
		return fmt.Errorf("decided by policies %q, want %q", got, s.policies)
	}
	return nil
}
