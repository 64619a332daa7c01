// Package page is what somebody looks at who wants to know how the service is doing: a web page that follows it second by second, without
// anything to install, and the same as JSON.
//
// It is written for somebody who was woken by an alert: what is wrong now stands at the top. It shows no key, no user name and no address whole;
// see internal/topkeys.
package page

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/topkeys"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Options are what the page asks the service. All but the last four are required.
type Options struct {
	// Status is the state of the service.
	Status func() admin.Status
	// Set is the policy set in force; nil if there is none.
	Set func() *policy.Set
	// Counts appends what each policy has said so far to a slice.
	Counts func([]metrics.Counts) []metrics.Counts
	// Instances are those of the service that are known, this one among them. Nil, or none: this one.
	Instances func() []Instance
	// Blocks are the buckets that are blocked; Changes what was changed by hand lately, the latest first. Nil: there can be none.
	Blocks  func() []Block
	Changes func() []Change
	// Actions says that the service has /api/v1/buckets, by which whoever may changes buckets.
	Actions bool
}

// Instance is one that runs.
type Instance struct {
	Name     string    `json:"name"`
	Self     bool      `json:"self,omitempty"`
	Build    string    `json:"build"`
	Policies string    `json:"policies"` // version of the policies in force
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	Failing  bool      `json:"failing,omitempty"` // newer policies than those could not be loaded
}

// Block is a bucket that denies until a time, because somebody said so.
type Block struct {
	Policy string    `json:"policy"`
	ID     string    `json:"id,omitempty"` // for its removal
	Key    string    `json:"key"`          // in hidden form
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Actor  string    `json:"actor"`
}

// Change is something that somebody did by hand.
type Change struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Policy string    `json:"policy"`
	Key    string    `json:"key"` // in hidden form
	Detail string    `json:"detail,omitempty"`
}

// Page follows the service. Its methods are safe for concurrent use. Make one with New.
type Page struct {
	// Keys are the busiest keys of each policy.
	Keys *topkeys.Keys

	opts       Options
	shapes     *shapes
	decisions  histogram
	storeCalls histogram
	allowed    atomic.Uint64
	denied     atomic.Uint64
	viewers    viewers

	mu      sync.Mutex // guards all below
	rates   rates
	history history
	evicted eviction
	made    *made // the latest snapshot
}

// New makes a Page. It starts nothing.
func New(o Options) *Page {
	return &Page{Keys: topkeys.New(), opts: o, shapes: newShapes(), viewers: viewers{all: map[*viewer]struct{}{}}}
}

// OnDecision takes note of a decision. It allocates nothing.
func (p *Page) OnDecision(d *ratelimit.Decision) {
	if d.Allowed {
		p.allowed.Add(1)
	} else {
		p.denied.Add(1)
	}
	p.decisions.observe(d.Took)
	p.Keys.Count(d)
}

// OnStoreCall takes note of how long a call to a shared store took.
func (p *Page) OnStoreCall(took time.Duration) { p.storeCalls.observe(took) }

// OnUnfed takes note of a request of which some descriptors fed no policy: those that have no bit in used.
func (p *Page) OnUnfed(req *descriptors.Request, used uint64) { p.shapes.note(req, used) }

// OnUnknownDomain takes note of a request whose domain no policy file serves.
func (p *Page) OnUnknownDomain(domain []byte) { p.shapes.noteDomain(domain) }

// Run follows the service until ctx ends, and then sends the viewers away.
func (p *Page) Run(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	defer p.viewers.close()
	p.second(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			p.Keys.Tick()
			p.shapes.tick()
			p.second(now)
			if wanted := p.viewers.wanted(); wanted.any {
				p.viewers.tell(p.snapshot().messages(wanted.tables))
			}
		}
	}
}

// second reads the counters.
func (p *Page) second(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.opts.Status()
	p.evicted.read(&status.Store, now)
	s, ok := p.rates.read(p, now)
	if ok {
		p.history.add(s)
	}
	p.made = nil
}
