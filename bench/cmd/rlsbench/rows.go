package main

import (
	"context"
	"fmt"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// The stores.
const (
	storeMemory  = "memory"
	storeRedis   = "redis"
	storeCluster = "cluster"
)

// row is a line of the acceptance table.
type row struct {
	name     string
	store    string
	scenario string   // name of one that comes with the program, or the text of one
	against  []string // the variants of envoy-rls that are measured, too
	measure  func(context.Context, *lineup, row) (*result, error)
}

// rows are all of the table.
func rows() []row {
	return []row{
		{"embedded, 1 policy", storeMemory, "one-policy", nil, measureRatio},
		{"embedded, 3 policies", storeMemory, "three-policies", nil, measureRatio},
		{"Redis, 1 policy", storeRedis, "one-policy", []string{emptyScript, oneByOne}, measureRatio},
		{"Redis, 2 policies in one slot", storeRedis, "one-slot", []string{emptyScript, oneByOne}, measureRatio},
		{"Redis, hot drained key", storeRedis, "drained-key", []string{emptyScript}, measureRatio},
		{"Redis, hot key", storeRedis, hot("{ id: hot, " + hotBucket), []string{unmerged}, measureRatio},
		{"Redis, hot log", storeRedis, hot("{ id: hot, " + hotLog), []string{unmerged}, measureRatio},
		{"Redis, two hot policies", storeRedis, hot("{ id: hot, "+hotBucket, "{ id: site, "+hotLog), []string{unmerged}, measureRatio},
		{"cluster, 2 policies in one slot", storeCluster, "one-slot", []string{emptyScript}, measureRatio},
		{"cluster, 2 policies in two slots", storeCluster, "two-slots", []string{emptyScript}, measureRatio},
		{"memory, embedded", storeMemory, "one-policy", nil, measureHeap},
		{"memory, Redis", storeRedis, "one-policy", nil, measureLayout},
		{"latency, embedded", storeMemory, "one-policy", nil, measureLatency},
		{"latency, Redis", storeRedis, "one-policy", nil, measureLatency},
		{"flat, policies", storeMemory, "many-policies", nil, measurePolicies},
		{"flat, keys", storeMemory, "one-policy", nil, measureKeys},
	}
}

// One key has all of the load, and room for it.
const (
	hotBucket = "key: [apiKey], algorithm: token-bucket, capacity: 1000000000, refillPerMinute: 1000000000, onStoreFailure: local }"
	hotLog    = "key: [apiKey], algorithm: sliding-log, limit: 100000000, window: 1h, onStoreFailure: local }"
)

// hot is a scenario with one key.
func hot(policies ...string) string {
	text := fmt.Sprintf("calls: [{ descriptors: [{ api_key: k }], policies: %d }]\npolicies: |\n  domain: bench\n  policies:\n", len(policies))
	for _, p := range policies {
		text += "    - " + p + "\n"
	}
	return text
}

// open reads the row's scenario, with as many keys as there are to be.
func (r row) open(keys uint64) (*bench.Scenario, error) {
	read := bench.Open
	if len(r.scenario) > 0 && r.scenario[len(r.scenario)-1] == '\n' {
		read = func(text string) (*bench.Scenario, error) {
			return bench.Parse(r.name, policy.Text{Path: r.name, Data: []byte(text)})
		}
	}
	s, err := read(r.scenario)
	if err != nil {
		return nil, err
	}
	if s.Keys.Count > 1 {
		s.Keys.Count = keys
	}
	return s, nil
}
