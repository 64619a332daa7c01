// Package memorybackend keeps buckets in the memory of the process: the store of a single instance, and the one that
// decides while a shared store does not answer.
//
// A call locks the shards of all its buckets in one order, reads the clock once, decides on copies and writes only what is
// admitted, so that calls are all or none and linearizable over any number of buckets. No goroutine is needed:
// buckets that are full again are forgotten a few at a time by the calls that add new ones.
//
// Memory is bounded by [Options]. A token bucket takes 70 to 98 bytes (56 at a load between 0.8 and 0.57), a log some 100 more
// and 16 for each run of entries with one time stamp. Growing copies one shard, 15,625 buckets at the default bound.
package memorybackend
