package redisbackend

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reason says in one word why a bucket could not be decided. It is meant to be a label of a metric: there are few, and they don't change
// from call to call.
type Reason string

// The reasons that come from this side of the connection.
const (
	// ReasonTimeout: no answer in the time that the caller had. The call may have been carried out, or still be.
	ReasonTimeout Reason = "timeout"
	// ReasonUnsent: the time was up while the call waited to be sent. It was not and never will be.
	ReasonUnsent Reason = "unsent"
	// ReasonQueueFull: too many calls wait for the same node. Not sent.
	ReasonQueueFull Reason = "queue-full"
	// ReasonDial: no connection to the node, which includes TLS, and a name that doesn't resolve. Not sent.
	ReasonDial Reason = "dial"
	// ReasonConnection: the connection broke, or stayed silent beyond Options.ConnectionTimeout. The call may have been carried out.
	ReasonConnection Reason = "connection"
	// ReasonNoNode: it is not known yet which node has the bucket. Not sent.
	ReasonNoNode Reason = "no-node"
	// ReasonRedirects: the node that should have the bucket said again that another one has it. Not carried out.
	ReasonRedirects Reason = "redirects"
	// ReasonReply: the reply was none that our script gives. The call may have been carried out.
	ReasonReply Reason = "reply"
	// ReasonClosed: the store is closed, or not started. Not sent.
	ReasonClosed Reason = "closed"
	// ReasonWithheld: calls are not made as long as a node is in trouble. No call fails by it: see Store.Relearn.
	ReasonWithheld Reason = "withheld"
)

// The reasons that a node gives. The call was not carried out.
const (
	ReasonOOM         Reason = "oom"         // over maxmemory
	ReasonLoading     Reason = "loading"     // reading its data from disk
	ReasonReadOnly    Reason = "readonly"    // a replica
	ReasonClusterDown Reason = "clusterdown" // the slot is served by nobody
	ReasonMasterDown  Reason = "masterdown"  // a replica without its primary
	ReasonBusy        Reason = "busy"        // a script runs for too long
	ReasonNoAuth      Reason = "noauth"      // wrong or missing password
	ReasonNoPerm      Reason = "noperm"      // the user may not do this
	ReasonMisconf     Reason = "misconf"     // cannot write to its disk and is told not to go on
	ReasonMaxClients  Reason = "maxclients"  // too many connections
	ReasonNoReplicas  Reason = "noreplicas"  // fewer replicas than it is told to insist on
	ReasonWrongType   Reason = "wrongtype"   // the key holds something that is not a bucket
	ReasonNoScript    Reason = "noscript"    // the script could not be loaded
	ReasonTryAgain    Reason = "tryagain"    // a slot is moving, for longer than the caller had time
	ReasonOther       Reason = "error"       // any other error reply
)

// Error says why a bucket could not be decided.
type Error struct {
	Reason Reason
	// Node is the address of the node that was asked; empty if none was.
	Node string
	// MayHaveRun reports whether the call may have been carried out all the same. It is never sent again.
	MayHaveRun bool
	// Began is when the caller began to wait, and Waited how long it did. Both are zero if its context had ended before.
	Began  time.Time
	Waited time.Duration

	late *late // if the reply may still come
	err  error
}

// Error gives the reason, the node and what lies behind it. It contains no credentials and no key.
func (e *Error) Error() string {
	text := "redis: " + string(e.Reason)
	if e.Node != "" {
		text += " at " + e.Node
	}
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap gives the error behind it: for a caller whose time was up, that of its context or context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.err }

// ReasonOf finds the reason in an error of this package. Contexts that ended by themselves count as timeouts; ReasonOther stands for
// errors from elsewhere, and the empty Reason for nil.
func ReasonOf(err error) Reason {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ReasonUnsent
	}
	return ReasonOther
}

// replyReasons are the first words of error replies.
var replyReasons = []struct {
	prefix string
	reason Reason
}{
	{"OOM ", ReasonOOM},
	{"LOADING ", ReasonLoading},
	{"READONLY ", ReasonReadOnly},
	{"CLUSTERDOWN ", ReasonClusterDown},
	{"MASTERDOWN ", ReasonMasterDown},
	{"BUSY ", ReasonBusy},
	{"NOAUTH ", ReasonNoAuth},
	{"WRONGPASS ", ReasonNoAuth},
	{"NOPERM ", ReasonNoPerm},
	{"MISCONF ", ReasonMisconf},
	{"NOREPLICAS ", ReasonNoReplicas},
	{"WRONGTYPE ", ReasonWrongType},
	{"NOSCRIPT ", ReasonNoScript},
	{"TRYAGAIN ", ReasonTryAgain},
	{"MOVED ", ReasonRedirects},
	{"ASK ", ReasonRedirects},
	{"ERR max number of clients reached", ReasonMaxClients},
}

// isReply reports whether an error is what a node replied.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// replyReason classifies an error reply.
func replyReason(err error) Reason {
	text := err.Error()
	for _, r := range replyReasons {
		if strings.HasPrefix(text, r.prefix) {
			return r.reason
		}
	}
	// An error in a script is reported with the script's name in front of what the command said, by some versions.
	if strings.Contains(text, "WRONGTYPE ") {
		return ReasonWrongType
	}
	return ReasonOther
}
