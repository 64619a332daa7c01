package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// SentinelMaster is the name under which sentinels know the primary.
const SentinelMaster = "limits"

// Sentinel is a primary and a replica, watched by sentinels. A primary that does not answer for cluster-node-timeout (Options.NodeTimeout) is
// replaced.
type Sentinel struct {
	Nodes     []*Server // as started: the primary, the replica
	Sentinels []*Server
	o         Options
}

// NewSentinel starts a Sentinel setup and returns when the sentinels know each other and both servers. Whoever calls it stops it with
// [Sentinel.Close] and removes o.Dir, which must be set. On an error nothing is left running. [Options.TLS] is not supported here.
func NewSentinel(ctx context.Context, o Options) (*Sentinel, error) {
	if o.TLS {
		return nil, errors.New("sentinels with TLS are not supported")
	}
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &Sentinel{o: o, Nodes: []*Server{s.server(0, "primary"), s.server(1, "replica")}}
	for i := range cmp.Or(o.Sentinels, 1) {
		sentinel := s.server(2+i, "sentinel-"+strconv.Itoa(i))
		sentinel.sentry = true
		sentinel.o.Password = "" // the password is the servers' own
		sentinel.clock = nil
		w.Sentinels = append(w.Sentinels, sentinel)
	}
	if err := w.form(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close stops all servers and sentinels, and returns when they are gone.
func (w *Sentinel) Close() {
	var all sync.WaitGroup
	for _, s := range append(w.Sentinels[:len(w.Sentinels):len(w.Sentinels)], w.Nodes...) {
		all.Go(s.Kill)
	}
	all.Wait()
}

// SentinelAddrs returns host:port of every sentinel.
func (w *Sentinel) SentinelAddrs() []string {
	addrs := make([]string, len(w.Sentinels))
	for i, s := range w.Sentinels {
		addrs[i] = s.Addr()
	}
	return addrs
}

func (w *Sentinel) form(ctx context.Context) error {
	for _, s := range append(w.Nodes[:2:2], w.Sentinels...) {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	primary := w.Nodes[0]
	if _, err := w.Nodes[1].Do(ctx, "REPLICAOF", "127.0.0.1", primary.Port); err != nil {
		return err
	}
	if err := poll(ctx, "the replica to be in step", func() error { return w.Nodes[1].inStep(ctx, w.Nodes[:1]) }); err != nil {
		return err
	}
	for _, sentinel := range w.Sentinels {
		if err := w.watch(ctx, sentinel); err != nil {
			return err
		}
	}
	if err := w.WaitReady(ctx); err != nil {
		return err
	}
	// Sentinels that went on like this would find no replica good enough, and revert a promotion before they hear of it: how old knowledge may
	// be is a multiple of these periods.
	for _, sentinel := range w.Sentinels {
		if _, err := sentinel.Do(ctx, "SENTINEL", "DEBUG", "info-period", 1000, "publish-period", 500, "ping-period", 1000, "ask-period", 1000); err != nil {
			return err
		}
	}
	return nil
}

// watch sets a sentinel on the primary. It makes it ask and tell often, so that the setup is complete in a moment.
func (w *Sentinel) watch(ctx context.Context, sentinel *Server) error {
	quorum := len(w.Sentinels)/2 + 1
	timeout := w.o.nodeTimeout().Milliseconds()
	commands := [][]any{
		{"SENTINEL", "DEBUG", "info-period", 100, "publish-period", 100, "ping-period", 100, "ask-period", 100, "default-down-after", timeout},
		{"SENTINEL", "MONITOR", SentinelMaster, "127.0.0.1", w.Nodes[0].Port, quorum},
		{"SENTINEL", "SET", SentinelMaster, "down-after-milliseconds", timeout},
		{"SENTINEL", "SET", SentinelMaster, "failover-timeout", 5 * timeout},
	}
	if w.o.Password != "" {
		commands = append(commands, []any{"SENTINEL", "SET", SentinelMaster, "auth-pass", w.o.Password})
	}
	for _, command := range commands {
		if _, err := sentinel.Do(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady waits until every running sentinel knows the others and a replica of the primary, and agrees with the servers on who is primary.
func (w *Sentinel) WaitReady(ctx context.Context) error {
	for _, sentinel := range w.Sentinels {
		if !sentinel.Running() {
			continue
		}
		err := poll(ctx, "sentinel "+sentinel.Addr()+" to be ready", func() error { return w.ready(ctx, sentinel) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Sentinel) ready(ctx context.Context, sentinel *Server) error {
	reply, err := sentinel.Do(ctx, "SENTINEL", "MASTER", SentinelMaster)
	if err != nil {
		return err
	}
	list := reply.([]any)
	seen := map[any]any{}
	for i := 0; i+1 < len(list); i += 2 {
		seen[list[i]] = list[i+1]
	}
	switch {
	case seen["flags"] != "master":
		return fmt.Errorf("the primary is %v", seen["flags"])
	case seen["num-other-sentinels"] != strconv.Itoa(len(w.Sentinels)-1), seen["num-slaves"] != "1":
		return fmt.Errorf("knows %v other sentinels and %v replicas", seen["num-other-sentinels"], seen["num-slaves"])
	}
	primary, err := w.Primary(ctx)
	if err == nil && strconv.Itoa(primary.Port) != seen["port"] {
		return fmt.Errorf("takes port %v for the primary, not %d", seen["port"], primary.Port)
	}
	return err
}

// Primary returns the running server that calls itself primary.
func (w *Sentinel) Primary(ctx context.Context) (*Server, error) {
	var primary *Server
	for _, node := range w.Nodes {
		if !node.Running() {
			continue
		}
		info, err := node.Info(ctx, "replication")
		if err != nil {
			return nil, err
		}
		if info["role"] == "master" {
			if primary != nil {
				return nil, errors.New("both servers call themselves primary")
			}
			primary = node
		}
	}
	if primary == nil {
		return nil, errors.New("no running server is primary")
	}
	return primary, nil
}

// Failover has the sentinels make the replica primary, and returns it once the old primary, if it runs, follows it.
func (w *Sentinel) Failover(ctx context.Context) (*Server, error) {
	old, err := w.Primary(ctx)
	if err != nil {
		return nil, err
	}
	if err := poll(ctx, "the failover to begin", func() error {
		_, err := w.Sentinels[0].Do(ctx, "SENTINEL", "FAILOVER", SentinelMaster)
		return err
	}); err != nil {
		return nil, err
	}
	return w.AwaitPromotion(ctx, old)
}

// AwaitPromotion waits until another server than old is the only primary and every running sentinel knows.
func (w *Sentinel) AwaitPromotion(ctx context.Context, old *Server) (*Server, error) {
	var primary *Server
	err := poll(ctx, "a new primary", func() (err error) {
		if primary, err = w.Primary(ctx); err == nil && primary == old {
			return errors.New("it is the old one still")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return primary, w.WaitReady(ctx)
}
