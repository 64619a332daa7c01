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
	rate     float64  // calls a second; 0: as the flags say
	against  []string // the variants that are measured, too
	bars     bars
}

// The stores.
const (
	storeMemory = "memory"
	storeRedis  = "redis"
)

// scenarios go with the policies in bench/policies.yaml. The first is the main one.
func scenarios(store string) []scenario {
	if store == storeRedis {
		return redisScenarios()
	}
	return []scenario{
		{name: "one policy, allowed", policies: []string{"free"}, request: func(key uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "free", "api_key", fmt.Sprintf("k%d", key)))
		}},
		{name: "two policies, allowed", policies: []string{"free", "tenant"}, request: func(key uint64) *rls.RateLimitRequest {
			return request(
				descriptor("plan", "free", "api_key", fmt.Sprintf("k%d", key)),
				descriptor("tenant", fmt.Sprintf("t%d", key%1000)),
			)
		}},
		{name: "one policy, denied", policies: []string{"spent"}, request: func(key uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "spent", "api_key", fmt.Sprintf("k%d", key%1000)))
		}},
	}
}

// redisScenarios have buckets that stay in Redis between calls.
func redisScenarios() []scenario {
	return []scenario{
		{name: "one policy, allowed", policies: []string{"daily"}, request: func(key uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "daily", "api_key", fmt.Sprintf("k%d", key)))
		}, against: []string{emptyScript, oneByOne}, bars: bars{floor: 1.3, empty: 5.2, oneByOne: 0.65}},
		{name: "two policies in one slot, allowed", policies: []string{"shared", "org"}, request: func(key uint64) *rls.RateLimitRequest {
			return request(
				descriptor("plan", "shared", "api_key", fmt.Sprintf("k%d", key)),
				descriptor("org", fmt.Sprintf("o%d", key%1000)),
			)
		}, against: []string{emptyScript, oneByOne}, bars: bars{floor: 1.45, empty: 7}},
		{name: "one drained key, 20,000/s", policies: []string{"spent"}, request: func(uint64) *rls.RateLimitRequest {
			return request(descriptor("plan", "spent", "api_key", "k"))
		}, rate: 20_000, bars: bars{scripts: 0.01}},
		hot("one hot key, allowed", "hot", bars{unmerged: 0.7, scripts: 0.3}, "hot"),
		hot("one hot log, allowed", "hotlog", bars{unmerged: 0.7, scripts: 0.3}, "hotlog"),
		hot("two hot policies in one slot, allowed", "hotter", bars{unmerged: 0.7, scripts: 0.3}, "site", "hotter"),
	}
}

// hot has all callers at one key, with room for all.
func hot(name, plan string, most bars, policies ...string) scenario {
	return scenario{name: name, policies: policies, request: func(uint64) *rls.RateLimitRequest {
		return request(descriptor("plan", plan, "api_key", "k"))
	}, against: []string{unmerged}, bars: most}
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
