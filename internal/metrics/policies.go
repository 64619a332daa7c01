package metrics

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// outcome is what a policy said about a request, as the label shows it.
type outcome uint8

const (
	allowed outcome = iota
	denied
	shadowAllowed
	shadowDenied
	unasked  // denied by another policy before the store was asked
	outcomes = iota
)

const sources = int(ratelimit.FromBlocked) + 1

func (o outcome) String() string {
	return [outcomes]string{"allowed", "denied", "shadow-allowed", "shadow-denied", "unasked"}[o]
}

// policies counts by policy. A library counter looked up by its labels would cost each decision more than the decision; here
// a policy's place in its set is its counters' place in a slice.
type policies struct {
	current atomic.Pointer[table]

	spread *spread

	mu   sync.Mutex
	byID map[string]*counts // of the set in use: what a reload keeps goes on counting
	row  []atomic.Uint64    // counts.usual, of those that were there when it was made and of some that came later
	free int                // where in it there is room
}

// table is the counters of one policy set.
type table struct {
	set      *policy.Set
	loadedAt time.Time
	rows     []*counts // by policy.Policy.Index
	// usual are counts.usual of each, if they lie side by side like the policies; else nil. Of ten thousand policies each is cold to the processor:
	// here a decision waits for one place in memory, else for three.
	usual   []atomic.Uint64
	roles   []roles // the same
	spreads bool    // some policy knows the address, and some the user name
}

// counts are one policy's counters.
type counts struct {
	id        string
	usual     *atomic.Uint64         // what usually happens: see isUsual
	others    atomic.Pointer[others] // nil: none
	charged   atomic.Uint64          // by these
	uncharged atomic.Uint64
	spread    peak                      // guarded by spread.mu
	missing   atomic.Pointer[[]missing] // nil: none
}

// others are decisions that are not in counts.usual. Most policies of many never have one.
type others [outcomes][sources]atomic.Uint64

func (c *counts) madeOthers() *others {
	if made := c.others.Load(); made != nil {
		return made
	}
	c.others.CompareAndSwap(nil, new(others))
	return c.others.Load()
}

// isUsual reports whether a policy of a granted request has taken 1 from its bucket in the store.
func isUsual(check *ratelimit.Check) bool {
	r := &check.Result
	return check.Known && check.Op == ratelimit.Take && check.Cost == 1 && r.Outcome == ratelimit.Admitted && r.Source == ratelimit.FromStore &&
		r.Uncharged == 0 && check.Missing == "" && !check.Shadow()
}

// decisions are how many of an outcome came from a source.
func (c *counts) decisions(o outcome, s ratelimit.Source) uint64 {
	var n uint64
	if others := c.others.Load(); others != nil {
		n = others[o][s].Load()
	}
	if o == allowed && s == ratelimit.FromStore {
		n += c.usual.Load()
	}
	return n
}

// series are those that a policy has from the start, at 0, so that a first event is an increase to whoever asks for rates. A
// policy has room for many more outcomes than it will ever see: those appear when they happen.
type series struct {
	outcomes   [2]outcome
	attributes []string // of its key
	uncharged  bool
}

// missing counts requests that lacked one attribute of the key.
type missing struct {
	attribute string
	n         *atomic.Uint64
}

var (
	decisionsDesc = desc("decisions_total", "What each policy said about the requests that it applied to.", "policy", "outcome", "source")
	missingDesc   = desc("missing_keys_total", "Requests that a policy matched, but that lacked an attribute of its key.", "policy", "attribute")
	chargedDesc   = desc("charged_cost_total", "Cost that each policy's buckets were charged. What is given back later is not taken off.", "policy")
	unchargedDesc = desc("uncharged_cost_total", "Cost reported after the fact that found no room in its bucket.", "policy")
	setInfoDesc   = desc("policy_set_info", "Always 1; the label names the policy set in force.", "version")
	setLoadedDesc = desc("policy_set_loaded_timestamp_seconds", "When the policy set in force was loaded.")
	setSizeDesc   = desc("policy_set_policies", "How many policies the set in force has.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

func newPolicies() *policies { return &policies{byID: map[string]*counts{}, spread: newSpread()} }

// Use counts set as loaded and makes it the one that decisions are counted by. Call it before set decides: a policy that is in
// the set before it and in set goes on counting, one that is not in set is counted no more.
func (m *Metrics) Use(set *policy.Set) {
	m.policies.use(set)
	m.reloaded.Inc()
}

func (p *policies) use(set *policy.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := set.Policies()
	p.grow(rules)
	t := &table{set: set, loadedAt: time.Now(), rows: make([]*counts, len(rules)), roles: make([]roles, len(rules))}
	byID := make(map[string]*counts, len(rules))
	inRow := len(rules) <= len(p.row)
	var all roles
	for i, rule := range rules {
		c := p.byID[rule.ID]
		byID[rule.ID] = c
		t.rows[i], t.roles[i] = c, rolesOf(rule)
		all = roles{all.address || t.roles[i].address, all.name || t.roles[i].name}
		inRow = inRow && c.usual == &p.row[i]
	}
	if inRow {
		t.usual = p.row[:len(rules)]
	}
	t.spreads = all.address && all.name
	p.byID = byID
	p.current.Store(t)
}

// piece is how many counts have their memory in common. The garbage collector finds each piece that is alive, each time; but one that
// is needed keeps its whole piece.
const piece = 64

// grow makes counters for the policies that have none.
func (p *policies) grow(rules []*policy.Policy) {
	var fresh []*policy.Policy
	for _, rule := range rules {
		if p.byID[rule.ID] == nil {
			fresh = append(fresh, rule)
		}
	}
	if len(fresh) == len(rules) {
		p.row, p.free = make([]atomic.Uint64, len(rules)+len(rules)/4+piece), 0
	}
	for some := range slices.Chunk(fresh, piece) {
		made := make([]counts, len(some))
		room := p.row[p.free:]
		if len(room) < len(some) {
			room = make([]atomic.Uint64, len(some))
		} else {
			p.free += len(some)
		}
		var ids strings.Builder // they outlive the set
		for _, rule := range some {
			ids.WriteString(strings.ToValidUTF8(rule.ID, "\uFFFD"))
		}
		text := ids.String()
		for i, rule := range some {
			length := len(strings.ToValidUTF8(rule.ID, "\uFFFD"))
			made[i].id, made[i].usual = text[:length], &room[i]
			text = text[length:]
			p.byID[rule.ID] = &made[i]
		}
	}
}

func seriesOf(rule *policy.Policy) series {
	u := series{outcomes: [2]outcome{allowed, denied}, attributes: keyAttributes(rule), uncharged: rule.Charge == policy.Postpaid}
	if rule.Mode == policy.Shadow {
		u.outcomes = [2]outcome{shadowAllowed, shadowDenied}
	}
	return u
}

// keyAttributes are those that a request may lack.
func keyAttributes(rule *policy.Policy) []string {
	if rule.HashTag == "" || slices.Contains(rule.Key, rule.HashTag) {
		return rule.Key
	}
	return append([]string{rule.HashTag}, rule.Key...)
}

func find(list []missing, attribute string) *atomic.Uint64 {
	for i := range list {
		if list[i].attribute == attribute {
			return list[i].n
		}
	}
	return nil
}

// count counts what each policy said.
func (p *policies) count(d *ratelimit.Decision) {
	t := p.current.Load()
	if t == nil || t.set != d.Set {
		p.countOther(d)
		return
	}
	for i := range d.Checks {
		check := &d.Checks[i]
		if d.Allowed && isUsual(check) {
			t.counter(check.Policy.Index).Add(1)
			continue
		}
		t.rows[check.Policy.Index].count(check, d.Allowed)
	}
	for i := range d.Skipped {
		t.rows[d.Skipped[i].Policy.Index].lack(d.Skipped[i].Missing)
	}
	if !d.Allowed {
		p.spread.note(t, d)
	}
}

// counter counts what usually happens to a policy.
func (t *table) counter(index int) *atomic.Uint64 {
	if t.usual != nil {
		return &t.usual[index]
	}
	return t.rows[index].usual
}

// countOther counts a decision of another set than the one in use: a request that was under way while the set changed.
func (p *policies) countOther(d *ratelimit.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range d.Checks {
		if c := p.byID[d.Checks[i].Policy.ID]; c != nil {
			c.count(&d.Checks[i], d.Allowed)
		}
	}
	for i := range d.Skipped {
		if c := p.byID[d.Skipped[i].Policy.ID]; c != nil {
			c.lack(d.Skipped[i].Missing)
		}
	}
}

func (c *counts) count(check *ratelimit.Check, granted bool) {
	o := unasked
	switch check.Result.Outcome {
	case ratelimit.Admitted:
		o = allowed
	case ratelimit.Denied:
		o = denied
	}
	if o != unasked && check.Shadow() {
		o += shadowAllowed - allowed
	}
	c.madeOthers()[o][check.Result.Source].Add(1)
	switch {
	case o == unasked || !check.Known: // no bucket was charged
	case check.Op == ratelimit.Take && granted && check.Result.Outcome == ratelimit.Admitted:
		c.charged.Add(check.Cost)
	case check.Op == ratelimit.Force:
		c.charged.Add(check.Cost - min(check.Cost, check.Result.Uncharged))
	}
	if check.Missing != "" {
		c.lack(check.Missing)
	}
	if check.Result.Uncharged > 0 {
		c.uncharged.Add(check.Result.Uncharged)
	}
}

func (c *counts) lacks() []missing {
	if list := c.missing.Load(); list != nil {
		return *list
	}
	return nil
}

// lack counts a request that lacks an attribute of the policy's key.
func (c *counts) lack(attribute string) {
	for {
		known := c.missing.Load()
		var list []missing
		if known != nil {
			list = *known
		}
		if n := find(list, attribute); n != nil {
			n.Add(1)
			return
		}
		more := append(slices.Clone(list), missing{attribute, new(atomic.Uint64)})
		c.missing.CompareAndSwap(known, &more)
	}
}

// lacked is how many there were.
func (c *counts) lacked(attribute string) uint64 {
	if n := find(c.lacks(), attribute); n != nil {
		return n.Load()
	}
	return 0
}

// Describe implements prometheus.Collector.
func (p *policies) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisionsDesc, missingDesc, chargedDesc, unchargedDesc, setInfoDesc, setLoadedDesc, setSizeDesc, spreadDesc} {
		ch <- d
	}
	for _, d := range numbersDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *policies) Collect(ch chan<- prometheus.Metric) {
	t := p.current.Load()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(setInfoDesc, 1, t.set.Version())
	gauge(setLoadedDesc, float64(t.loadedAt.UnixMilli())/1e3)
	gauge(setSizeDesc, float64(len(t.rows)))
	for i, c := range t.rows {
		rule := t.set.Policies()[i]
		c.collect(ch, seriesOf(rule))
		c.collectNumbers(ch, rule)
	}
	p.spread.collect(t, ch)
}

func (c *counts) collect(ch chan<- prometheus.Metric, u series) {
	counter := func(d *prometheus.Desc, n uint64, usual bool, labels ...string) {
		if n > 0 || usual {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
	}
	for o := range outcomes {
		for s := range sources {
			source := ratelimit.Source(s)
			usual := source == ratelimit.FromStore && slices.Contains(u.outcomes[:], outcome(o))
			counter(decisionsDesc, c.decisions(outcome(o), source), usual, c.id, outcome(o).String(), sourceLabel(source))
		}
	}
	for _, attribute := range u.attributes {
		counter(missingDesc, c.lacked(attribute), true, c.id, attribute)
	}
	for _, m := range c.lacks() { // those of an earlier key
		if !slices.Contains(u.attributes, m.attribute) {
			counter(missingDesc, m.n.Load(), false, c.id, m.attribute)
		}
	}
	counter(chargedDesc, c.usual.Load()+c.charged.Load(), true, c.id)
	counter(unchargedDesc, c.uncharged.Load(), u.uncharged, c.id)
}

func sourceLabel(s ratelimit.Source) string {
	if s == 0 {
		return "none"
	}
	return s.String()
}
