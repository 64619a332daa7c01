package sizing

import "time"

// What was measured, each on one core of one machine; docs/results.md has the machine, the commands and all the rest. Whoever measures
// anew changes these and renews the tables of docs/sizing.md (go test ./internal/sizing -update).
const (
	// EmbeddedCPU is what a decision costs the service with buckets in its memory: one policy.
	EmbeddedCPU = 9_230 * time.Nanosecond
	// FloorCPU is what a gRPC server spends on a call about which it decides nothing.
	FloorCPU = 15_580 * time.Nanosecond

	// What a decision by Redis costs the service and Redis when many calls wait at a time and share their way there: one policy, and two
	// policies whose buckets are in one slot.
	BatchedCPU    = 16_480 * time.Nanosecond
	BatchedCPU2   = 17_670 * time.Nanosecond
	BatchedRedis  = 6_800 * time.Nanosecond
	BatchedRedis2 = 11_560 * time.Nanosecond
	// The same when each call travels alone.
	SingleCPU    = 27_790 * time.Nanosecond
	SingleCPU2   = 29_720 * time.Nanosecond
	SingleRedis  = 12_590 * time.Nanosecond
	SingleRedis2 = 17_370 * time.Nanosecond

	// BucketBytes is what a token bucket takes in the memory of an instance, KeyBytes what it takes in Redis, its name included.
	BucketBytes = 78
	KeyBytes    = 136
)

// Headroom: what is planned for beyond the figures.
const (
	// Busy is how much of its cores an instance or a Redis primary may use at the peak. At a half, the instances of two zones carry the load of a
	// third that is lost, at three quarters, and Redis' one thread answers before a queue builds up.
	Busy = 0.5
	// Zones is over how many the instances are spread: at least one in each, so that one zone less does not stop the service.
	Zones = 3
	// MinShards is the least a Redis Cluster is made of: two of three primaries can decide about the third.
	MinShards = 3
	// MemorySpare is by how much memory is planned above what buckets take: fragmentation, a table that is growing, copies while a
	// replica is filled.
	MemorySpare = 1.5
	// InstanceBase is what an instance needs besides its buckets, in bytes: the program, connections, and garbage, of which there is at most
	// 256 MiB.
	InstanceBase = 384 << 20
	// ShardBase is what a Redis process needs besides its keys, in bytes: connections, replication backlog.
	ShardBase = 128 << 20
	// ShardBytes is how much memory of a primary keys should take at the most: a replica that is filled anew copies them all.
	ShardBytes = 8 << 30
)
