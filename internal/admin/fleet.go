package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
)

// Instance is what an instance of the service says of itself.
type Instance struct {
	ID        string    `json:"id"`
	This      bool      `json:"this,omitempty"` // the one that answers
	Address   string    `json:"address"`        // host and port of the rate limit service
	Admin     string    `json:"admin"`          // host and port of these pages
	Version   string    `json:"version"`
	Commit    string    `json:"commit,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	Ready     bool      `json:"ready"`
	// Policies is the version of the set in force, Number that of the database's, and Failing whether something newer could not be loaded.
	Policies string `json:"policies"`
	Number   int64  `json:"number,omitempty"`
	Failing  bool   `json:"failing,omitempty"`
	Blocks   int    `json:"blocks"` // that it knows of
}

// InstanceList is /api/v1/instances.
type InstanceList struct {
	Scope string `json:"scope"` // "all instances" or "this instance"
	// Error says why the others are not known.
	Error string `json:"error,omitempty"`
	// Silent is how many more live that say nothing of themselves.
	Silent    int        `json:"silent,omitempty"`
	Instances []Instance `json:"instances"`
}

// Shard is a node of the store.
type Shard struct {
	Node      string `json:"node"`
	Connected bool   `json:"connected"`
	Queued    int    `json:"queued"`
	Breaker   string `json:"breaker"`
}

type shardList struct {
	Kind      string  `json:"kind"`
	Available float64 `json:"available"`
	Shards    []Shard `json:"shards"`
}

// breaker is that of one node.
type breaker struct {
	Node   string     `json:"node"`
	State  string     `json:"state"`
	Since  *time.Time `json:"since,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Next   *time.Time `json:"nextProbe,omitempty"`
}

type breakerList struct {
	Breakers []breaker `json:"breakers"`
}

// shardsOf is the nodes of a store. A store in memory has none, and is always available.
func shardsOf(s StoreStatus) shardList {
	list := shardList{Kind: s.Kind, Available: 1, Shards: []Shard{}}
	if s.Redis == nil {
		return list
	}
	list.Available = s.Redis.Available
	for _, n := range s.Redis.Nodes {
		list.Shards = append(list.Shards, Shard{n.Node, n.Connected, n.Queued, n.Breaker})
	}
	return list
}

func breakersOf(s StoreStatus) breakerList {
	list := breakerList{Breakers: []breaker{}}
	if s.Redis == nil {
		return list
	}
	for _, n := range s.Redis.Nodes {
		list.Breakers = append(list.Breakers, breaker{n.Node, n.Breaker, n.Since, n.Reason, n.Next})
	}
	return list
}

// serveFleet adds the pages about instances and the nodes of the store.
func serveFleet(mux *http.ServeMux, o *Options) {
	mux.Handle("/api/v1/shards", read(func(w http.ResponseWriter, _ *http.Request) {
		adminhttp.Reply(w, http.StatusOK, shardsOf(o.Status().Store))
	}))
	mux.Handle("/api/v1/breakers", read(func(w http.ResponseWriter, _ *http.Request) {
		adminhttp.Reply(w, http.StatusOK, breakersOf(o.Status().Store))
	}))
	if o.Instances == nil {
		return
	}
	mux.Handle("/api/v1/instances", read(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), fleetTimeout)
		defer cancel()
		adminhttp.Reply(w, http.StatusOK, o.Instances(ctx))
	}))
}

// fleetTimeout is how long others may take to be found.
const fleetTimeout = 3 * time.Second
