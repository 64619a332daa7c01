package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// hooks counts what is unusual about calls and logs it, each kind at most once a second: callers decide how often it happens.
func (a *App) hooks() rls.Hooks {
	refused, unknown, unmatched, truncated, limits := a.sparing(), a.sparing(), a.sparing(), a.sparing(), a.sparing()
	return rls.Hooks{
		OnRefused: func(reason string) {
			a.metrics.OnGRPCError(codes.InvalidArgument.String())
			refused.log(slog.LevelWarn, "call refused", "reason", reason)
		},
		OnUnfed: func(req *descriptors.Request, used uint64) { a.page.OnUnfed(req, used) },
		OnUnknownDomain: func(domain []byte) {
			a.page.OnUnknownDomain(domain)
			if unknown.due(slog.LevelWarn) {
				unknown.write(slog.LevelWarn, "no policy file serves the domain; the request was let through", "domain", shorten(domain))
			}
		},
		OnUnmatched: func(domain []byte, n int) {
			a.metrics.OnUnmatched(domain, n)
			if unmatched.due(slog.LevelDebug) {
				unmatched.write(slog.LevelDebug, "descriptors that feed no policy", "domain", shorten(domain), "descriptors", n)
			}
		},
		OnTruncated: func(domain []byte) {
			a.metrics.OnTruncated(domain)
			if truncated.due(slog.LevelWarn) {
				truncated.write(slog.LevelWarn, "more descriptors or entries than are read; decided by onStoreFailure", "domain", shorten(domain))
			}
		},
		OnLimitIgnored: func(domain []byte, n int) {
			a.metrics.OnLimitIgnored(domain, n)
			if limits.due(slog.LevelWarn) {
				limits.write(slog.LevelWarn, "limits sent with descriptors are not used", "domain", shorten(domain), "descriptors", n)
			}
		},
	}
}

// onDecision counts decisions, and logs denials if somebody reads debug lines.
func (a *App) onDecision() func(*ratelimit.Decision) {
	if !a.log.Enabled(context.Background(), slog.LevelDebug) {
		return a.count
	}
	return func(d *ratelimit.Decision) {
		a.count(d)
		for i := range d.Checks {
			c := &d.Checks[i]
			if c.Denied() {
				a.log.Debug("denied", "policy", c.Policy.ID, "source", c.Result.Source.String(), "cost", c.Cost,
					"wait", c.Result.Wait, "shadow", c.Shadow())
			}
		}
	}
}

func (a *App) count(d *ratelimit.Decision) {
	a.metrics.OnDecision(d)
	a.page.OnDecision(d)
}

// use puts a new policy set in force.
func (a *App) use(set *policy.Set) {
	a.metrics.Use(set)
	a.page.Keys.Use(set)
	a.service.Prepare(set)
	a.limiter.Use(set)
	a.log.Info("policies loaded", append(a.origin(), "version", set.Version(), "policies", len(set.Policies()))...)
	a.news()
}

// origin says in the log where the policies in force came from.
func (a *App) origin() []any {
	if a.db != nil {
		return []any{"number", a.source.Status().Number}
	}
	return []any{"path", a.opts.Policies}
}

// restored tells that what reloadFailed told of is over, though nothing new was loaded.
func (a *App) restored(set *policy.Set) {
	if a.db != nil {
		a.log.Info("the policies in force are the active version", append(a.origin(), "version", set.Version())...)
	} else {
		a.log.Info("policy files are sound again", "version", set.Version())
	}
	a.news()
}

func (a *App) reloadFailed(err error) {
	a.metrics.OnReloadFailed(err)
	a.news()
	if set := a.source.Set(); set != nil {
		a.log.Error("policies not loaded; the old ones stay", "version", set.Version(), "error", err)
	}
}

func (a *App) watchFailed(err error) {
	a.log.Warn("nobody tells of changes of the policies; they are found by polling", "error", err)
}

// sparing logs at most once a second, and then says how often it kept quiet.
type sparing struct {
	to    *slog.Logger
	since time.Time
	next  atomic.Int64 // nanoseconds after since
	quiet atomic.Uint64
}

func (a *App) sparing() *sparing { return &sparing{to: a.log, since: time.Now()} }

func (s *sparing) log(level slog.Level, message string, args ...any) {
	if s.due(level) {
		s.write(level, message, args...)
	}
}

// due reports whether there is to be a line now, and counts what is kept quiet. Who asks before making the arguments makes none in vain.
func (s *sparing) due(level slog.Level) bool {
	if !s.to.Enabled(context.Background(), level) {
		return false
	}
	now, next := int64(time.Since(s.since)), s.next.Load()
	if now < next || !s.next.CompareAndSwap(next, now+int64(time.Second)) {
		s.quiet.Add(1)
		return false
	}
	return true
}

func (s *sparing) write(level slog.Level, message string, args ...any) {
	s.to.Log(context.Background(), level, message, append(args, "unlogged", s.quiet.Swap(0))...)
}

// shorten makes a loggable text of what a caller sent.
func shorten(b []byte) string {
	const most = 100
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}
