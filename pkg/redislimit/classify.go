package redislimit

import (
	"context"
	"errors"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

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

// answered reports whether the node works, and what it says concerns the bucket.
func answered(r redisbackend.Reason) bool {
	switch r {
	case redisbackend.ReasonWrongType, redisbackend.ReasonNoScript, redisbackend.ReasonTryAgain, redisbackend.ReasonRedirects:
		return true
	}
	return false
}

// classify says what an error of Redis tells of the node. That a caller's time was up tells nothing if it was short, or if the caller went before:
// its own clients could have it go. Nor if the caller learnt it much too late, for then it is this machine that was busy.
func classify(timeout time.Duration) func(error) fallback.Fault {
	enough, tooMuch := timeout/2, 2*timeout
	return func(err error) fallback.Fault {
		var e *redisbackend.Error
		if !errors.As(err, &e) {
			return fallback.Fault{}
		}
		f := fallback.Fault{
			Shard: e.Node, Reason: string(e.Reason), Sent: e.Began, MayHaveRun: e.MayHaveRun, Trouble: trouble(e.Reason), Answered: answered(e.Reason),
		}
		if e.Reason == redisbackend.ReasonTimeout || e.Reason == redisbackend.ReasonUnsent {
			f.Trouble = e.Waited >= enough && e.Waited <= tooMuch && e.Node != "" && !errors.Is(e, context.Canceled)
		}
		return f
	}
}
