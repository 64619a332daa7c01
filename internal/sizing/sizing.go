// Package sizing tells how many instances and Redis primaries a load needs, and how much memory, from what decisions were measured to cost.
// docs/sizing.md is made of it.
package sizing

import (
	"math"
	"time"
)

// Load is what has to be borne.
type Load struct {
	Rate     float64 // decisions a second at the peak
	Keys     int     // that have been used lately: each policy has a bucket for each
	Policies int     // that apply to a request: 1, or 2 whose buckets are in one slot of Redis
	Cores    int     // of an instance
}

// Plan is what bears a load.
type Plan struct {
	Instances      int
	InstanceBusy   float64 // the share of its cores that each uses
	InstanceMemory float64 // bytes of each

	Shards      int     // primaries; none with buckets in memory. Each needs a replica of the same size.
	ShardBusy   float64 // the share of its one core that each uses
	ShardMemory float64 // bytes of each
}

// Embedded plans for buckets in the memory of the instances, each of which counts for itself and may meet every key.
func Embedded(l Load) Plan {
	return Plan{Instances: instances(l, EmbeddedCPU)}.at(l, EmbeddedCPU, 0)
}

// Redis plans for buckets in Redis, at the cost of calls that travel alone: between many instances and many shards there is seldom a second one
// to share the way.
func Redis(l Load) Plan {
	service, redis := redisCost(l.Policies)
	byCPU := cores(l.Rate, redis) / Busy
	byMemory := float64(l.Keys*l.Policies*KeyBytes) / ShardBytes
	shards := max(MinShards, ceil(byCPU), ceil(byMemory))
	return Plan{Instances: instances(l, service), Shards: shards}.at(l, service, redis)
}

// OnRedis tells how a number of instances and shards bears a load, however many it needs.
func OnRedis(l Load, instances, shards int) Plan {
	service, redis := redisCost(l.Policies)
	return Plan{Instances: instances, Shards: shards}.at(l, service, redis)
}

// PerInstance is how many decisions a second an instance bears at the most, if each costs so much of its cores.
func PerInstance(cores int, cost time.Duration) float64 {
	return Busy * float64(cores) / cost.Seconds()
}

// at fills in what each instance and shard of p has to bear.
func (p Plan) at(l Load, service, redis time.Duration) Plan {
	buckets := float64(l.Keys * l.Policies)
	p.InstanceBusy = cores(l.Rate, service) / float64(p.Instances*l.Cores)
	p.InstanceMemory = InstanceBase
	if p.Shards == 0 {
		p.InstanceMemory += buckets * BucketBytes * MemorySpare
		return p
	}
	p.ShardBusy = cores(l.Rate, redis) / float64(p.Shards)
	p.ShardMemory = ShardBase + buckets*KeyBytes*MemorySpare/float64(p.Shards)
	return p
}

func instances(l Load, cost time.Duration) int {
	return max(Zones, ceil(l.Rate/PerInstance(l.Cores, cost)))
}

// cores is how many are busy with so many decisions a second.
func cores(rate float64, cost time.Duration) float64 { return rate * cost.Seconds() }

// redisCost is what a decision costs the service and Redis.
func redisCost(policies int) (service, redis time.Duration) {
	if policies == 1 {
		return SingleCPU, SingleRedis
	}
	return SingleCPU2, SingleRedis2
}

func ceil(f float64) int { return int(math.Ceil(f)) }
