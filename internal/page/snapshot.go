package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/topkeys"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// What one snapshot shows at most.
const (
	mostPolicies = 100 // those that deny most
	mostTops     = 30  // policies with their busiest keys
	mostKeys     = 10
	mostListed   = 100 // instances, blocks and changes
)

// Snapshot is the service at one time.
type Snapshot struct {
	At       time.Time    `json:"at"`
	Status   admin.Status `json:"status"`
	Problems []Problem    `json:"problems"`
	Now      Now          `json:"now"`
	// Policies are those that deny most; MorePolicies is how many are left out.
	Policies     []PolicyRates    `json:"policies"`
	MorePolicies int              `json:"morePolicies,omitempty"`
	Keys         []topkeys.Policy `json:"keys"`
	MoreKeys     int              `json:"moreKeys,omitempty"` // policies whose keys are left out
	Unmatched    []Unmatched      `json:"unmatched"`
	Instances    []Instance       `json:"instances"`
	Blocks       []Block          `json:"blocks"`
	Changes      []Change         `json:"changes"`
	// Actions says that buckets can be changed from the page.
	Actions bool `json:"-"`
}

// Now is what happened in the last second: rates are per second.
type Now struct {
	Time      float64            `json:"time"` // in seconds since 1970
	Allowed   float64            `json:"allowed"`
	Denied    float64            `json:"denied"`
	WouldDeny float64            `json:"wouldDeny"`
	BySource  map[string]float64 `json:"bySource"`
	Decision  Latency            `json:"decision"`
	Store     Latency            `json:"store"`
	// StoreShare is the part of the decisions of the last 10 seconds that the store made; nil: there was none.
	StoreShare *float64 `json:"storeShare"`
}

// made is a snapshot with what was made of it.
type made struct {
	Snapshot
	json []byte

	rendering sync.Once
	html      []byte // made when it is asked for
}

// snapshot gives that of the last second, made once for all.
func (p *Page) snapshot() *made {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != nil {
		return p.made
	}
	m := &made{Snapshot: Snapshot{At: time.Now().UTC(), Status: p.opts.Status(), Now: p.now(), Actions: p.opts.Actions}}
	m.Policies, m.MorePolicies = p.policyRows()
	m.Keys = busiest(p.Keys.Top(mostKeys))
	m.MoreKeys = max(0, len(m.Keys)-mostTops)
	m.Keys = m.Keys[:len(m.Keys)-m.MoreKeys]
	m.Unmatched = p.shapes.list(p.opts.Set())
	m.Instances = p.instances(&m.Status)
	m.Blocks, m.Changes = listed(p.opts.Blocks), listed(p.opts.Changes)
	m.Problems = p.problems(&m.Snapshot)
	m.json, _ = json.Marshal(&m.Snapshot) // its types are those of JSON, and no number is infinite
	p.made = m
	return m
}

func listed[T any](list func() []T) []T {
	all := []T{}
	if list != nil {
		all = append(all, list()...)
	}
	return all[:min(len(all), mostListed)]
}

func (p *Page) now() Now {
	n := Now{BySource: map[string]float64{}}
	last := p.history.last(shareSeconds)
	lost, all := 0.0, 0.0
	for i := range last {
		some, of := last[i].unanswered()
		lost, all = lost+some, all+of
	}
	if all > 0 {
		share := 1 - lost/all
		n.StoreShare = &share
	}
	if len(last) == 0 {
		return n
	}
	s := &last[len(last)-1]
	n.Time, n.Decision, n.Store = float64(s.at.UnixMilli())/1e3, s.decision, s.store
	n.Allowed, n.Denied, n.WouldDeny = tidy(s.allowed), tidy(s.denied), tidy(s.wouldDeny)
	for source := 1; source < sources; source++ {
		n.BySource[ratelimit.Source(source).String()] = tidy(s.bySource[source])
	}
	return n
}

// policyRows are the policies' rates with what else is told of them, and how many more there are.
func (p *Page) policyRows() (rows []PolicyRates, more int) {
	rows = p.rates.rows()
	more = max(0, len(rows)-mostPolicies)
	rows = rows[:len(rows)-more]
	set := p.opts.Set()
	for i := range rows {
		r := &rows[i]
		if rule := ruleOf(set, r); rule != nil {
			r.Numbers, r.Shadow, r.Failure = rule.Numbers.String(), rule.Mode == policy.Shadow, rule.OnStoreFailure.String()
		}
	}
	return rows, more
}

// ruleOf is the policy that has the rates. It stands elsewhere if a set with another order came into force since they were read.
func ruleOf(set *policy.Set, r *PolicyRates) *policy.Policy {
	switch {
	case set == nil:
		return nil
	case r.place < len(set.Policies()) && set.Policies()[r.place].ID == r.Policy:
		return set.Policies()[r.place]
	}
	return set.Policy(r.Policy)
}

// busiest has the policies that deny most first.
func busiest(all []topkeys.Policy) []topkeys.Policy {
	denied := func(p *topkeys.Policy) (n float64) {
		for _, item := range p.Denied {
			n += item.Calls
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b topkeys.Policy) int { return cmp.Compare(denied(&b), denied(&a)) })
	return all
}

func (p *Page) instances(s *admin.Status) []Instance {
	if known := listed(p.opts.Instances); len(known) > 0 {
		return known
	}
	return []Instance{{
		Self: true, Build: s.Version, Policies: s.Policies.Version, Started: s.StartedAt,
		Ready: s.Ready, Failing: s.Policies.Error != "",
	}}
}

// messages are what viewers are sent of m.
func (m *made) messages(tables bool) (plain, withTables []byte) {
	plain = event("snapshot", m.json)
	if !tables {
		return plain, nil
	}
	return plain, append(bytes.Clone(plain), event("tables", m.renderTables())...)
}

// event is one of a stream of server-sent events. JSON has no line ends but those of its layout.
func event(name string, data []byte) []byte {
	return bytes.Join([][]byte{[]byte("event: " + name), append([]byte("data: "), data...), nil, nil}, []byte{'\n'})
}
