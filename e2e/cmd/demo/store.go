package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// store is where buckets are: in the one service, or in a Redis Cluster that two share.
type store struct {
	kind        string // memory or redis
	urls        string // of a cluster that runs already, comma-separated; empty: the demo starts one
	grpc, admin port   // of the second service

	cluster *redistest.Cluster // nil: not ours
}

func newStore() *store {
	s := &store{
		kind:  "memory",
		grpc:  port{"second-grpc-port", "the second envoy-rls, calls from Envoy", 8082},
		admin: port{"second-admin-port", "the second envoy-rls, health and metrics", 8083},
	}
	flag.StringVar(&s.kind, "store", s.kind, "where buckets are: memory, or redis (two services share a Redis Cluster)")
	flag.StringVar(&s.urls, "redis-url", "", "with -store redis: a cluster that runs already, URLs separated by commas; else the demo starts one")
	return s
}

func (s *store) check() error {
	switch {
	case s.kind != "memory" && s.kind != "redis":
		return fmt.Errorf("--store %s: it is memory or redis", s.kind)
	case s.kind == "memory" && s.urls != "":
		return fmt.Errorf("--redis-url goes with --store redis")
	}
	return nil
}

// ports are those that only this store needs.
func (s *store) ports() []*port {
	if s.kind == "memory" {
		return nil
	}
	return []*port{&s.grpc, &s.admin}
}

// start starts the cluster, if one is to be started, below dir.
func (s *store) start(ctx context.Context, dir string) error {
	if s.kind == "memory" || s.urls != "" {
		return nil
	}
	var err error
	s.cluster, err = redistest.NewCluster(ctx, redistest.Options{Dir: dir + "/redis"})
	if err != nil {
		return err
	}
	s.urls = strings.Join(s.cluster.URLs(), ",")
	return nil
}

func (s *store) stop() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// serviceArgs are the flags of the service.
func (s *store) serviceArgs() []string {
	if s.kind == "memory" {
		return nil
	}
	args := []string{"--store", "redis", "--redis-mode", "cluster"}
	for url := range strings.SplitSeq(s.urls, ",") {
		args = append(args, "--redis-url", url)
	}
	return args
}

// services are the instances after the first.
func (s *store) services() []harness.ServiceAddress {
	if s.kind == "memory" {
		return nil
	}
	return []harness.ServiceAddress{{GRPC: s.grpc.addr(), Admin: s.admin.addr()}}
}

// welcome says what there is besides the demo with the embedded store.
func (s *store) welcome() string {
	if s.kind == "memory" {
		return ""
	}
	text := "The second envoy-rls: http://" + s.admin.addr() + ". Both share a Redis Cluster.\n"
	if s.cluster == nil {
		return text
	}
	text += "Its nodes, primaries first (redis-cli -c -p PORT):"
	for _, node := range s.cluster.Nodes {
		text += " " + strconv.Itoa(node.Port)
	}
	return text + "\n"
}
