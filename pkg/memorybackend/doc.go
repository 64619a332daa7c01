// Package memorybackend keeps buckets in the memory of the process: the store of a single instance, and the one that
// decides while a shared store does not answer.
//
// A call locks the shards of all its buckets in one order, reads the clock once, decides on copies and writes only what is
// admitted, so that calls are all or none and linearizable over any number of buckets. No goroutine is needed:
// buckets that are full again are forgotten a few at a time by the calls that add new ones.
//
// Memory is bounded by [Options]. A token bucket takes about 56 bytes over the table's load (never below 0.57 once a
// shard has grown past its first size). A log takes some 80 bytes more, and 16 for each run of entries with one time stamp.
package memorybackend
