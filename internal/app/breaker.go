package app

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func (a *App) fallbackOptions() fallback.Options {
	return fallback.Options{
		Store: a.redis, Shard: a.redis.Node, Classify: a.classify(),
		OnFailure: a.unanswered(), OnUndo: a.undone, OnTransition: a.breakerChanged(),
		OnWithheld: a.redis.Relearn,
		Local:      localStore(), Instances: a.fleet.Instances, Timeout: a.storeTimeout(),
		Regret: func(err error) {
			var e *redisbackend.Error
			if errors.As(err, &e) {
				e.GiveBack()
			}
		},
	}
}

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

// trouble reports whether other calls to the node fail, too, and waiting may help: not what one key alone can cause, nor what ends by
// doing as the reply says.
func trouble(r redisbackend.Reason) bool {
	switch r {
	case redisbackend.ReasonTimeout, redisbackend.ReasonUnsent, redisbackend.ReasonQueueFull,
		redisbackend.ReasonDial, redisbackend.ReasonConnection, redisbackend.ReasonNoNode,
		redisbackend.ReasonOOM, redisbackend.ReasonLoading, redisbackend.ReasonReadOnly, redisbackend.ReasonClusterDown,
		redisbackend.ReasonMasterDown, redisbackend.ReasonBusy, redisbackend.ReasonMaxClients, redisbackend.ReasonNoAuth,
		redisbackend.ReasonNoPerm, redisbackend.ReasonMisconf, redisbackend.ReasonNoReplicas:
		return true
	}
	return false
}

// classify says what an error of Redis tells of the node. That a caller's time was up tells nothing if it was short; nor if the caller learnt it
// much too late, for then it is this machine that was busy.
func (a *App) classify() func(error) fallback.Fault {
	enough, tooMuch := a.storeTimeout()/2, 2*a.storeTimeout()
	return func(err error) fallback.Fault {
		var e *redisbackend.Error
		if !errors.As(err, &e) {
			return fallback.Fault{}
		}
		f := fallback.Fault{Shard: e.Node, Reason: string(e.Reason), Sent: e.Began, MayHaveRun: e.MayHaveRun, Trouble: trouble(e.Reason)}
		if e.Reason == redisbackend.ReasonTimeout || e.Reason == redisbackend.ReasonUnsent {
			f.Trouble = e.Waited >= enough && e.Waited <= tooMuch && e.Node != ""
		}
		return f
	}
}

// late takes in what Redis said to a call that nobody waits for any more.
func (a *App) late(c *redisbackend.Call) {
	if a.warmed.Load() {
		a.metrics.OnLateReply(c.Node)
	}
	a.cache.Learn(c.Buckets, c.Results, c.Queued)
	a.fallback.Learn(c.Buckets, c.Results)
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

// storeTimeout is how long a decision waits for Redis at most.
func (a *App) storeTimeout() time.Duration {
	if a.opts.StoreTimeout == 0 {
		return redisbackend.DefaultTimeout
	}
	return a.opts.StoreTimeout
}
