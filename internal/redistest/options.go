package redistest

import (
	"cmp"
	"time"
)

// Options say what to run. The zero value is good: one plain server, or a cluster of 4 primaries with a replica each.
type Options struct {
	Primaries    int           // of a cluster; 0: 4
	ReplicasEach int           // of a cluster, for each primary; 0: 1; negative: none
	NodeTimeout  time.Duration // of a cluster: cluster-node-timeout, after which a node counts as failed; 0: 1 s
	Sentinels    int           // of a Sentinel setup; 0: 1

	// Ports are the client ports, primaries first, each with its bus port 10000 above it. Empty: free ones.
	Ports []int
	// Dir is an existing directory for configurations and logs. Empty: a temporary one.
	Dir string

	Password    string   // of the default user, and between primary and replica; empty: none
	Config      []string // further lines of redis.conf, such as "maxmemory 10mb" or "user ann on >secret ~rl:* &* +@all"
	UnixSocket  bool     // a socket beside the port
	TLS         bool     // TLS on the port, with certificates made for the run
	ClientCerts bool     // with TLS: clients need a certificate, too
	MovingClock bool     // allows Server.SetClock; needs Linux and gcc
	Network     *Network // of a cluster: allows Cluster.CutOff
}

const defaultNodeTimeout = time.Second

func (o Options) primaries() int { return cmp.Or(o.Primaries, 4) }

func (o Options) replicas() int { return o.primaries() * max(0, cmp.Or(o.ReplicasEach, 1)) }

func (o Options) nodeTimeout() time.Duration { return cmp.Or(o.NodeTimeout, defaultNodeTimeout) }
