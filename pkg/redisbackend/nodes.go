package redisbackend

import (
	"slices"
	"strings"
)

// NodeStats tell of one node.
type NodeStats struct {
	Address string
	Queued  int // calls that wait to be sent
	// Connected says whether there was a connection when one was needed last.
	Connected bool
}

// Nodes are those that calls have gone to lately, by address.
func (s *Store) Nodes() []NodeStats {
	s.client.mu.RLock()
	defer s.client.mu.RUnlock()
	nodes := make([]NodeStats, 0, len(s.client.nodes))
	for address, n := range s.client.nodes {
		nodes = append(nodes, NodeStats{address, len(n.queue), n.up.Load() > 0})
	}
	slices.SortFunc(nodes, func(a, b NodeStats) int { return strings.Compare(a.Address, b.Address) })
	return nodes
}
