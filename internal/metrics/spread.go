package metrics

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// The attributes whose values are told apart: whose address, and whose name.
const (
	addressAttribute = "ip"
	nameAttribute    = "username"
)

const (
	spreadWindow = time.Minute
	spreadSets   = 1024 // of spreadWays addresses each: about 100 kB
	spreadWays   = 4
	spreadBits   = 64
)

var spreadDesc = desc("denied_usernames_per_address",
	"The most user names that a policy denied to one address within a minute, this one or the last. An estimate, 266 at the most.", "policy")

// spread finds addresses that are denied on many user names: somebody tries passwords. It keeps no address and no name, only hashes that
// nobody outside can foresee, and of each address one bit for each of 64 classes of names, from which the number of names is estimated.
// Its room is fixed; when it is short, the address with the fewest names is forgotten.
type spread struct {
	seed  maphash.Seed
	start time.Time

	mu    sync.Mutex
	slots [spreadSets][spreadWays]spreadSlot
}

// spreadSlot is one address that one policy denied in one window.
type spreadSlot struct {
	window int64 // from 1; 0: empty
	source uint64
	names  uint64 // a bit for each class seen
}

// peak is the most classes of names that any address of a policy came to.
type peak struct {
	window    int64
	now, last int
}

// roles say what a policy's key tells about a request.
type roles struct{ address, name bool }

func newSpread() *spread { return &spread{seed: maphash.MakeSeed(), start: time.Now()} }

func rolesOf(rule *policy.Policy) roles {
	return roles{rule.Tag() == addressAttribute, slices.Contains(rule.Key, nameAttribute)}
}

func (s *spread) window() int64 { return 1 + int64(time.Since(s.start)/spreadWindow) }

// note takes note of a denied request, if its policies know its address and its user name. It allocates nothing.
func (s *spread) note(t *table, d *ratelimit.Decision) {
	if !t.spreads {
		return
	}
	var address, name []byte
	for i := range d.Hits {
		hit := &d.Hits[i]
		if hit.Missing != "" {
			continue
		}
		is := t.roles[hit.Policy.Index]
		if is.address && address == nil {
			address = hit.Key.Tag()
		}
		if is.name && name == nil {
			name = hit.Key.Bytes()
		}
	}
	if address == nil || name == nil {
		return
	}
	source := maphash.Bytes(s.seed, address)
	class := maphash.Bytes(s.seed, name) % spreadBits
	window := s.window()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range d.Checks {
		if check := &d.Checks[i]; check.Denied() && !check.Shadow() && check.Known {
			index := check.Policy.Index
			t.rows[index].spread.add(window, s.see(window, source+uint64(index)*0x9e3779b97f4a7c15, class))
		}
	}
}

// see adds a class of names to an address, and gives how many it has now.
func (s *spread) see(window int64, source, class uint64) int {
	set := &s.slots[source%spreadSets]
	at := &set[0]
	for i := range set {
		slot := &set[i]
		if slot.window == window && slot.source == source {
			at = slot
			break
		}
		if slot.worth(window) < at.worth(window) {
			at = slot
		}
	}
	if at.window != window || at.source != source {
		*at = spreadSlot{window: window, source: source}
	}
	at.names |= 1 << class
	return bits.OnesCount64(at.names)
}

func (s *spreadSlot) worth(window int64) int {
	if s.window != window {
		return 0
	}
	return bits.OnesCount64(s.names)
}

func (p *peak) add(window int64, classes int) {
	p.advance(window)
	p.now = max(p.now, classes)
}

func (p *peak) advance(window int64) {
	switch p.window {
	case window:
		return
	case window - 1:
		p.last = p.now
	default:
		p.last = 0
	}
	p.window, p.now = window, 0
}

// estimate is how many names leave their marks in so many classes, most likely.
func estimate(classes int) float64 {
	return math.Round(spreadBits * math.Log(spreadBits/max(spreadBits-float64(classes), 1)))
}

// collect gives the gauge of each policy that sees an address or a user name.
func (s *spread) collect(t *table, ch chan<- prometheus.Metric) {
	if !t.spreads {
		return
	}
	window := s.window()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range t.rows {
		if t.roles[i] == (roles{}) && c.spread.window == 0 {
			continue
		}
		c.spread.advance(window)
		value := estimate(max(c.spread.now, c.spread.last))
		ch <- prometheus.MustNewConstMetric(spreadDesc, prometheus.GaugeValue, value, c.id)
	}
}
