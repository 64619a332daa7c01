package redistest

import (
	"context"
	"os"
	"sync"
	"testing"
)

// Shared is a cluster that the tests of a package have in common: starting one takes seconds. The first test that asks for it starts it.
type Shared struct {
	Options Options

	once    sync.Once
	cluster *Cluster
	err     error
}

// Cluster gives the cluster to a test, which may do anything to it, but not beside another one. When the test ends all nodes are run, and in
// order, again.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	need(t)
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		t.Fatalf("start redis: %v", s.err)
	}
	t.Cleanup(func() {
		if err := s.cluster.mend(); err != nil {
			t.Errorf("the cluster is left in disorder: %v", err)
		}
	})
	return s.cluster
}

func (s *Shared) start() (err error) {
	if s.Options.Dir, err = os.MkdirTemp("", "redistest"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.cluster, err = NewCluster(ctx, s.Options)
	return err
}

// mend makes all nodes run and waits until the cluster is in order.
func (c *Cluster) mend() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := c.each(func(_ int, node *Server) error {
		if !node.Running() {
			return node.Restart(ctx)
		}
		return node.Resume()
	})
	if err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// Close stops the cluster, if there is one, when all tests have run.
func (s *Shared) Close() error {
	if s.Options.Dir == "" {
		return nil
	}
	if s.cluster != nil {
		s.cluster.Close()
	}
	return os.RemoveAll(s.Options.Dir)
}
