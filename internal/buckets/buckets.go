// Package buckets lets people look at single buckets and change them, while the service runs: reset, refund, set, block and unblock.
// Every change is told to all instances and kept in an audit.
package buckets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Action is something that is done with one bucket. It is the last part of the path too.
type Action string

// The actions. All but Show change something.
const (
	Show    Action = "show"
	Reset   Action = "reset"
	Refund  Action = "refund"
	Set     Action = "set"
	Block   Action = "block"
	Unblock Action = "unblock"
)

// Actions are all that there are.
func Actions() []Action { return []Action{Show, Reset, Refund, Set, Block, Unblock} }

// Known is a bucket that an id stands for.
type Known struct {
	PolicyID string
	Key      policy.Key
	Limits   algorithm.Limits // by which it was decided last; zero: the policy's own
}

// Shared tells the other instances. Its errors say why they may not learn it.
type Shared interface {
	Block(context.Context, blocklist.Block) error
	Unblock(ctx context.Context, key string) (found bool, err error)
	// Changed tells of a bucket that has so much left now. refund: something was given back, else it was given another state.
	Changed(ctx context.Context, key policy.Key, remaining float64, refund bool) error
}

// Options are what Handler works with. All but Shared, Authorize and Resolve are required.
type Options struct {
	// Policies are those in force; nil: there are none.
	Policies func() *policy.Set
	// Store has the buckets. What stands in front of it is told through Shared, or learns it from what passes.
	Store ratelimit.Store
	// Blocks is the list of this instance.
	Blocks *blocklist.Store
	// Shared, if not nil, tells the other instances.
	Shared Shared
	// Authorize says who asks for a change. An error, which is shown, refuses it: with the HTTP status of its method Status, if it has one, else
	// 403. Nil: nobody may.
	Authorize func(*http.Request) (actor string, err error)
	// Resolve finds the bucket that an id stands for. Nil: none.
	Resolve func(id string) (Known, bool)
	Audit   *Audit
	// OnAttempt is told of each request for a change and what came of it: done, failed, unknown, invalid or refused.
	OnAttempt func(a Action, outcome string)
}

// What came of a request for a change.
const (
	done    = "done"
	failed  = "failed"  // the store did not answer: nothing has changed
	unknown = "unknown" // it may have changed
	invalid = "invalid"
	refused = "refused"
)

// Outcomes are what OnAttempt can be told.
func Outcomes() []string { return []string{done, failed, unknown, invalid, refused} }

// Report is the answer to a request.
type Report struct {
	Action Action  `json:"action"`
	Policy string  `json:"policy"`
	Key    string  `json:"key"`   // in hidden form
	Limit  float64 `json:"limit"` // the capacity or limit
	Shadow bool    `json:"shadow,omitempty"`
	Before *State  `json:"before,omitempty"`
	After  State   `json:"after"`
	// Scope is who knows of the change: "all instances" or "this instance".
	Scope   string `json:"scope,omitempty"`
	Warning string `json:"warning,omitempty"` // why it is not all of them
}

// State is what there is of a bucket.
type State struct {
	Remaining float64 `json:"remaining"` // units; below 0: in debt
	// Unknown is whether the store could not be asked what remains: then that is no number to go by.
	Unknown bool       `json:"unknown,omitempty"`
	Block   *BlockView `json:"block,omitempty"`
}

// BlockView is a block for people.
type BlockView struct {
	ID     string    `json:"id"`
	Policy string    `json:"policy"`
	Key    string    `json:"key"` // in hidden form
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Actor  string    `json:"actor"`
}

const blockID = "block-" // and the digits of the hidden form

func viewOf(b blocklist.Block) BlockView {
	hidden := policy.HideKey([]byte(b.Key))
	return BlockView{
		ID: blockID + hidden[1:], Policy: b.PolicyID, Key: hidden, Since: b.Since.UTC(), Until: b.Until.UTC(), Reason: b.Reason, Actor: b.Actor,
	}
}

const (
	allInstances = "all instances"
	thisInstance = "this instance"
)

// fault is an error with an HTTP status. Its text is shown.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

func faultf(status int, format string, args ...any) error {
	return &fault{status, fmt.Sprintf(format, args...)}
}

// target is the bucket that a request is about.
type target struct {
	policyID string
	policy   *policy.Policy // nil: it is in force no more
	key      policy.Key
	limits   algorithm.Limits
	blocked  string // the key of a block, which needs no policy
}

func (t *target) bucket(op ratelimit.Op, cost uint64) ratelimit.Bucket {
	b := ratelimit.Bucket{Key: t.key, Limits: t.limits, Op: op, Cost: cost, OnFailure: policy.Open}
	if t.policy != nil {
		b.OnFailure = t.policy.OnStoreFailure
	}
	return b
}

// find finds the bucket that w says.
func (o *Options) find(w *which) (*target, error) {
	set := o.Policies()
	switch {
	case set == nil:
		return nil, faultf(http.StatusServiceUnavailable, "no policy set is loaded")
	case w.ID != "" && (w.Policy != "" || len(w.Attributes) > 0):
		return nil, faultf(http.StatusBadRequest, "id does not go with policy and attributes: it stands for both")
	case w.ID != "":
		return o.findID(set, w.ID)
	case w.Policy == "":
		return nil, faultf(http.StatusBadRequest, "say which bucket: policy and attributes, or id")
	}
	if w.Hashed {
		set = set.WithHashedKeys()
	}
	return findAttributes(set, w)
}

func (o *Options) findID(set *policy.Set, id string) (*target, error) {
	for _, b := range o.Blocks.Blocks() {
		if key, ok := policy.KeyOf([]byte(b.Key)); ok && viewOf(b).ID == id {
			t := &target{policyID: b.PolicyID, policy: set.Policy(b.PolicyID), key: key, blocked: b.Key}
			if t.policy != nil {
				t.limits = t.policy.Numbers.Limits
			}
			return t, nil
		}
	}
	if o.Resolve != nil {
		if k, ok := o.Resolve(id); ok {
			t := &target{policyID: k.PolicyID, policy: set.Policy(k.PolicyID), key: k.Key, limits: k.Limits}
			if t.policy != nil && t.limits.Kind == 0 {
				t.limits = t.policy.Numbers.Limits
			}
			return t, nil
		}
	}
	return nil, faultf(http.StatusNotFound, "no bucket has this id now; say policy and attributes")
}

// findAttributes asks for what the policy counts by only, and not for what it matches.
func findAttributes(set *policy.Set, w *which) (*target, error) {
	p := set.Policy(w.Policy)
	if p == nil {
		var ids []string
		for _, other := range set.Policies() {
			ids = append(ids, other.ID)
		}
		return nil, faultf(http.StatusNotFound, "no policy has the id %q%s", shorten(w.Policy), hint(w.Policy, ids))
	}
	if len(w.Attributes) > ratelimit.MaxAttributes {
		return nil, faultf(http.StatusBadRequest, "%d attributes: want at most %d", len(w.Attributes), ratelimit.MaxAttributes)
	}
	var facts policy.Attributes
	facts.Reset(set.ViewOf(p))
	names := make([]string, 0, len(w.Attributes))
	for name := range w.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !facts.Add(0, []byte(name), []byte(w.Attributes[name])) {
			return nil, faultf(http.StatusBadRequest, "no policy has a use for attribute %q%s", shorten(name), hint(name, wanted(p)))
		}
	}
	hit := facts.Bucket(p)
	if hit.Missing != "" {
		return nil, faultf(http.StatusBadRequest, "policy %q counts by %q: say which in attributes", p.ID, hit.Missing)
	}
	if facts.InvalidIPs > 0 {
		return nil, faultf(http.StatusBadRequest, "one of the attributes should be an address, and is not")
	}
	return &target{policyID: p.ID, policy: p, key: hit.Key.Clone(), limits: hit.Numbers.Limits}, nil
}

// wanted are the attributes that the policy counts by.
func wanted(p *policy.Policy) []string {
	if p.HashTag == "" {
		return p.Key
	}
	return append([]string{p.HashTag}, p.Key...)
}

func hint(wrong string, right []string) string {
	if near := policy.DidYouMean(wrong, right); near != "" {
		return ": " + near
	}
	return ""
}

func shorten(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// state asks the store what a bucket has left, and the list whether it is blocked.
func (o *Options) state(ctx context.Context, t *target) (State, error) {
	var s State
	if b, ok := o.Blocks.Find(t.key.Bytes()); ok {
		v := viewOf(b)
		s.Block = &v
	}
	if t.limits.Kind == 0 { // a block of a policy that is gone
		return s, nil
	}
	r, err := o.acquire(ctx, t.bucket(ratelimit.Peek, 1))
	s.Remaining = r.Remaining
	return s, err
}

// errUnknown is in the chain of the error of a change that may have been made.
var errUnknown = errors.New("it is not known whether it was carried out")
