package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
	"github.com/envoy-rls/envoy-rls/pkg/policysource"
)

// The places that policies come from, as Options.PolicySource names them.
const (
	sourceFile     = "file"
	sourcePostgres = "postgres"
)

// policies is where they come from.
type policies struct {
	source *policysource.Source

	db       *policydb.DB // nil: files
	instance string       // what the database calls this one
	beat     chan struct{}
}

// openPolicies makes the source that the options name. It reads and connects to nothing.
func (a *App) openPolicies() {
	o := policysource.Options{
		Path: a.opts.Policies, PollInterval: a.opts.PollInterval, Read: a.opts.Read,
		OnSet: a.use, OnError: a.reloadFailed, OnRestored: a.restored, OnWatchError: a.watchFailed,
	}
	if a.opts.PolicySource == sourcePostgres {
		a.db = policydb.New(policydb.Options{DSNFile: a.opts.PolicyDSNFile})
		a.instance = instanceName()
		a.beat = make(chan struct{}, 1)
		o.Path = ""
		o.Remote = &policysource.Remote{Active: a.activeVersion, Fetch: a.fetchVersion, Watch: a.watchVersions, KeptFile: a.opts.PolicyKeptFile}
		o.OnUnreachable, o.OnKept, o.OnNotKept = a.unreachable, a.kept, a.notKept
	}
	a.source = policysource.New(o)
}

// instanceName is that of the machine, and something that tells instances on it apart.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var unique [3]byte
	_, _ = rand.Read(unique[:]) // never fails
	return host + "-" + hex.EncodeToString(unique[:])
}

// checkPolicies finds out before anything is started whether there can be policies at all: a database that does not answer may be replaced by
// what was kept, but not a connection string.
func (a *App) checkPolicies() error {
	if a.db == nil {
		return nil
	}
	if err := a.db.Check(); err != nil {
		return fmt.Errorf("policy-dsn-file: %w", err)
	}
	return nil
}

func (a *App) activeVersion(ctx context.Context) (policysource.Version, error) {
	v, err := a.db.Active(ctx)
	return policysource.Version{Number: v.Number, Sum: v.SHA256}, remoteError(err)
}

func (a *App) fetchVersion(ctx context.Context, v policysource.Version) ([]policy.Text, error) {
	full, err := a.db.Get(ctx, v.Number)
	return full.Files, remoteError(err)
}

// remoteError tells errors about what is kept in the database from those of reaching it.
func remoteError(err error) error {
	if err == nil || errors.Is(err, policydb.ErrNoVersion) || errors.Is(err, policydb.ErrDamaged) {
		return err
	}
	return fmt.Errorf("the policy database %w: %w", policysource.ErrUnreachable, err)
}

func (a *App) watchVersions(ctx context.Context, changed func(), lost func(error)) {
	a.db.Listen(ctx, policydb.Listener{Changed: changed, Lost: lost})
}

func (a *App) unreachable(err error) {
	switch {
	case err == nil:
		a.log.Info("the policy database answers again")
	case a.source.Set() != nil:
		a.log.Warn("the policies in force stay", "error", err)
	}
}

func (a *App) kept(set *policy.Set, cause error) {
	a.log.Warn("starting with the policies that were kept here", "file", a.opts.PolicyKeptFile, "version", set.Version(), "error", cause)
}

func (a *App) notKept(err error) {
	a.log.Warn("a start without the policy database will not have these policies", "error", err)
}

// startSource begins to follow the policies.
func (a *App) startSource() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := a.serve("policies", func() error { return a.source.Run(ctx) })
	a.closers.push(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	if a.db != nil {
		a.startBeats()
	}
	return nil
}

// startBeats begins to tell the database which version is in force here, at each change and at regular intervals, and to take leave in the end.
func (a *App) startBeats() {
	ctx, cancel := context.WithCancel(context.Background())
	done := a.serve("heartbeat", func() error {
		a.beats(ctx)
		return nil
	})
	a.closers.push(func(ctx context.Context) error {
		cancel()
		<-done
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = a.db.Leave(ctx, a.instance) // it is forgotten soon in any case
		return nil
	})
}

func (a *App) beats(ctx context.Context) {
	every := time.NewTicker(policydb.Heartbeat)
	defer every.Stop()
	told := ""
	for {
		err := a.db.Beat(ctx, a.describeInstance())
		if err != nil && ctx.Err() == nil && err.Error() != told && a.source.Status().Unreachable == nil {
			told = err.Error()
			a.log.Warn("the policy database does not take note of this instance", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-a.beat:
		}
	}
}

func (a *App) describeInstance() policydb.Instance {
	s := a.source.Status()
	i := policydb.Instance{
		ID: a.instance, Version: s.Number, Policies: s.Version, Kept: s.Kept, Build: a.opts.Version,
		Since: time.Since(s.LoadedAt), Up: time.Since(a.started),
	}
	if s.Err != nil {
		i.Error = s.Err.Error()
	}
	return i
}

// news makes the next heartbeat come at once.
func (a *App) news() {
	select {
	case a.beat <- struct{}{}:
	default: // one is due already, or nobody wants any
	}
}

// sourceState is what metrics show of a database.
func (a *App) sourceState() metrics.Source {
	s := a.source.Status()
	return metrics.Source{Up: s.Unreachable == nil, Version: s.Number, Kept: s.Kept}
}
