package app

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// unanswered counts buckets that the failure mode decided.
func (a *App) unanswered() func(*ratelimit.Bucket, error) {
	modes := map[policy.FailureMode]string{policy.Local: "local", policy.Open: "open", policy.Closed: "closed"}
	return func(b *ratelimit.Bucket, err error) {
		reason := string(redisbackend.ReasonOf(err))
		switch {
		case errors.Is(err, fallback.ErrOpen):
			reason = string(redisbackend.ReasonWithheld)
		case errors.Is(err, fallback.ErrOwed):
			reason = "owing"
		}
		a.metrics.OnUnanswered(modes[b.OnFailure], reason)
	}
}

// breakerChanged counts the changes of breakers, and tells the log when one opens and when it closes: once a second for each node at
// most, should it go on and on.
func (a *App) breakerChanged() func(fallback.Transition) {
	var logs sync.Map // of *sparing, by node and what it says
	return func(t fallback.Transition) {
		a.metrics.OnBreaker(t.Shard, t.To.String())
		level, message := slog.LevelDebug, "one call is let through to the store's node"
		switch {
		case t.To == fallback.StateOpen && t.From == fallback.StateClosed:
			level, message = slog.LevelWarn, "a node of the store fails; each policy's onStoreFailure decides for it"
		case t.To == fallback.StateOpen:
			message = "the store's node still fails"
		case t.To == fallback.StateClosed && t.Reason == fallback.ReasonGone:
			level, message = slog.LevelInfo, "a node of the store that failed is gone; others have its buckets"
		case t.To == fallback.StateClosed:
			level, message = slog.LevelInfo, "a node of the store works again"
		}
		to, _ := logs.LoadOrStore(t.Shard+" "+message, a.sparing())
		to.(*sparing).log(level, message, "node", t.Shard, "reason", t.Reason, "after", t.After, "next", t.Next)
		if t.Reason == fallback.ReasonGone {
			logs.Clear()
		}
	}
}
