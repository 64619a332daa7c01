// Package redistest runs real redis-server processes for tests and tools: one alone, a cluster, or a pair watched by sentinels, on free ports
// of loopback and without persistence. The tests' forms ([StartStandalone], [StartCluster], [StartSentinel]) stop everything when the test
// ends; the others ([NewStandalone], [NewCluster], [NewSentinel]) are for programs. On Linux the servers die with the process that started
// them, however that ends.
//
// What a test does to a server (pause, kill, restart, failover, a slot half moved, a clock that steps) is a method; everything else is a
// command through [Server.Do].
package redistest
