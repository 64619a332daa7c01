package app

import (
	"runtime"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
)

// notReady says why requests must not come here now; empty: they may.
func (a *App) notReady() string {
	switch {
	case a.source.Set() == nil:
		return "no policy set is loaded"
	case !a.serving.Load():
		return "starting or stopping"
	}
	return ""
}

func (a *App) status() admin.Status {
	source, reason := a.source.Status(), a.notReady()
	s := admin.Status{
		Version: a.opts.Version, Commit: a.opts.Commit, GoVersion: runtime.Version(),
		StartedAt: a.started, UptimeSeconds: time.Since(a.started).Seconds(),
		Ready: reason == "", NotReady: reason,
		Policies: admin.PolicyStatus{
			Source: a.opts.PolicySource, Path: source.Path, Version: source.Version, LoadedAt: source.LoadedAt,
			Number: source.Number, Kept: source.Kept,
			Loads: source.Loads, Failures: source.Failures, Domains: []string{},
		},
		Store: a.storeStatus(),
	}
	if set := a.source.Set(); set != nil {
		s.Policies.Count = len(set.Policies())
		s.Policies.Domains = append(s.Policies.Domains, set.Domains()...)
	}
	if source.Unreachable != nil {
		s.Policies.Unreachable = source.Unreachable.Error()
	}
	if source.Err != nil {
		s.Policies.Error = source.Err.Error()
		s.Policies.FailedAt = &source.FailedAt
	}
	return s
}
