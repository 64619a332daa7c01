package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
)

// Problem is something that is wrong now, and what it means.
type Problem struct {
	// Severe: clients notice, or limits do not hold. Otherwise it should be looked at.
	Severe bool   `json:"severe"`
	What   string `json:"what"`
	Means  string `json:"means"`
}

// problems are what is wrong now, the severe ones first.
func (p *Page) problems(s *Snapshot) []Problem {
	var l problemList
	l.service(&s.Status)
	l.policies(&s.Status.Policies)
	l.store(&s.Status.Store)
	l.share(p.history.last(shareSeconds))
	l.evictions(p.evicted)
	l.versions(s.Instances)
	l.traffic(s)
	return append(append([]Problem{}, l.severe...), l.others...)
}

type problemList struct{ severe, others []Problem }

func (l *problemList) bad(means, format string, args ...any) {
	l.severe = append(l.severe, Problem{true, fmt.Sprintf(format, args...), means})
}

func (l *problemList) warn(means, format string, args ...any) {
	l.others = append(l.others, Problem{false, fmt.Sprintf(format, args...), means})
}

func (l *problemList) service(s *admin.Status) {
	if !s.Ready {
		l.bad("Envoy is told to send requests elsewhere.", "This instance is not ready: %s", s.NotReady)
	}
}

func (l *problemList) policies(s *admin.PolicyStatus) {
	if s.Error != "" {
		first, _, _ := strings.Cut(s.Error, "\n")
		since := ""
		if s.FailedAt != nil {
			since = " since " + s.FailedAt.UTC().Format(time.RFC3339)
		}
		l.bad("The policies of before stay in force. /api/v1/status has every fault.", "The policies cannot be loaded%s: %s", since, first)
	}
	if s.Unreachable != "" {
		l.warn("The policies in force stay; new ones do not arrive.", "The policy database does not answer: %s", s.Unreachable)
	}
	if s.Kept {
		l.warn("They were in force when this instance ran last.", "The policies come from this instance's own copy")
	}
}

func (l *problemList) store(s *admin.StoreStatus) {
	if s.Redis == nil {
		return
	}
	for i := range s.Redis.Nodes {
		l.node(&s.Redis.Nodes[i])
	}
	if s.Redis.MayEvict != nil && *s.Redis.MayEvict {
		l.warn("A bucket that is forgotten is full again: its client gets more than it should. Set maxmemory-policy noeviction.",
			"Redis may forget buckets when its memory runs short")
	}
}

func (l *problemList) node(n *admin.NodeStatus) {
	name := n.Node
	if name == "" {
		name = "of some buckets"
	}
	switch {
	case n.Breaker != "closed":
		reason := ""
		if n.Reason != "" {
			reason = ": " + n.Reason
		}
		l.bad("Each policy's onStoreFailure decides about the buckets that it has.", "The breaker of store node %s is %s%s", name, n.Breaker, reason)
	case !n.Connected:
		l.warn("Calls connect first, or each policy's onStoreFailure decides.", "There is no connection to store node %s", name)
	}
}

// shareSeconds is how far back the store's share of the decisions is looked at.
const shareSeconds = 10

func (l *problemList) share(seconds []second) {
	lost, all := 0.0, 0.0
	for i := range seconds {
		some, of := seconds[i].unanswered()
		lost, all = lost+some, all+of
	}
	if lost > 0 {
		l.bad("They are decided by shares (local), admitted (open) or denied (closed), as each policy says.",
			"%s of the decisions of the last %d s were made without the store", percent(lost/all), shareSeconds)
	}
}

// eviction follows how many buckets were forgotten for want of room.
type eviction struct {
	seen uint64
	last time.Time // when there were more
}

// evictionSeconds is for how long it is told.
const evictionSeconds = 60

func (e *eviction) read(s *admin.StoreStatus, now time.Time) {
	if s.MemoryStatus != nil && s.EvictedBuckets > e.seen {
		e.seen, e.last = s.EvictedBuckets, now
	}
}

func (l *problemList) evictions(e eviction) {
	if !e.last.IsZero() && time.Since(e.last) < evictionSeconds*time.Second {
		l.bad("A bucket that is forgotten is full again: its client gets more than it should. Raise --max-buckets.",
			"The store forgets buckets for want of room, %d so far", e.seen)
	}
}

func (l *problemList) versions(all []Instance) {
	versions := map[string]bool{}
	for _, i := range all {
		versions[i.Policies] = true
		if i.Failing && !i.Self {
			l.warn("The policies of before stay in force there.", "Instance %s cannot load newer policies", i.Name)
		}
	}
	if len(versions) > 1 {
		l.warn("For a moment after a change that is as it should be. If it stays, some instances do not get the new policies.",
			"Instances have different policies in force: %d versions", len(versions))
	}
}

// The share of denied requests, and how many there must be each second, that is worth a word.
const (
	muchDenied = 0.5
	fewDenied  = 10
)

func (l *problemList) traffic(s *Snapshot) {
	if all := s.Now.Allowed + s.Now.Denied; s.Now.Denied >= fewDenied && s.Now.Denied > muchDenied*all {
		l.warn("The keys that are denied most are below.", "%s of the requests are denied", percent(s.Now.Denied/all))
	}
	for i := range s.Unmatched {
		if u := &s.Unmatched[i]; len(u.Entries) == 0 && len(u.Reasons) > 0 && strings.HasPrefix(u.Reasons[0], "no policy file") {
			l.warn("They are let through.", "Requests come in domain %q: %s", u.Domain, u.Reasons[0])
		}
	}
}

// percent is a share for people: never 0 or 100 % where it is not quite.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.001:
		return "<0.1 %"
	case share < 1 && share > 0.999:
		return ">99.9 %"
	case share < 0.1 || share > 0.99 && share < 1:
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
