package page

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/topkeys"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const (
	// looks is how many unmatched descriptors are looked at in a second. More cost next to nothing.
	looks = 100
	// What is kept of a request, in entries and bytes: 300 kB for all shapes together.
	keptEntries = 64
	keptBytes   = 80
	// explaining is how long it may take to find out why, for shapes that are new: with ten thousand policies, it takes some milliseconds for each. The
	// others follow when the list is made again.
	explaining = 10 * time.Millisecond
)

// Unmatched is a kind of descriptor that fed no policy.
type Unmatched struct {
	Domain string `json:"domain"`
	// Entries are the keys of the descriptor, with values where these are shown; see [Why].
	Entries []ShownEntry `json:"entries"`
	// Calls is how many of these there were lately, of those that were looked at: 100 in a second. Each counts half after topkeys.HalfLife seconds.
	Calls float64 `json:"calls"`
	Error float64 `json:"error,omitempty"`
	Why
}

// ShownEntry is an entry of a descriptor.
type ShownEntry struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// shapes knows what descriptors that fed no policy looked like lately. Two have one shape if their domain and the keys of their entries are
// the same.
type shapes struct {
	seed maphash.Seed
	left atomic.Int64 // to be looked at in this second

	mu sync.Mutex
	topkeys.Sketch
	samples [topkeys.Slots]sample
	reader  *reader // by the set that was in force last
}

// sample is a request with a descriptor of a shape.
type sample struct {
	request *descriptors.Request
	at      int // the descriptor; -1: no policy serves the domain

	set *policy.Set // by which why was found
	why Why
	own []ShownEntry
}

func newShapes() *shapes {
	s := &shapes{seed: maphash.MakeSeed()}
	s.left.Store(looks)
	return s
}

// note takes note of a request of which some descriptors fed no policy: those without a bit in used.
func (s *shapes) note(req *descriptors.Request, used uint64) {
	for i := range req.Descriptors {
		if used>>i&1 == 0 && s.may() {
			s.add(req, i)
		}
	}
}

// may says whether one more may be looked at.
func (s *shapes) may() bool { return s.left.Load() > 0 && s.left.Add(-1) >= 0 }

func (s *shapes) noteDomain(domain []byte) {
	if s.may() {
		s.add(&descriptors.Request{Domain: domain}, -1)
	}
}

func (s *shapes) add(req *descriptors.Request, at int) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.Write(req.Domain)
	if at >= 0 {
		for _, e := range req.Descriptors[at].Entries {
			h.WriteByte(0)
			h.Write(e.Key)
		}
		h.WriteByte(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place, fresh := s.Add(h.Sum64())
	if fresh {
		s.samples[place] = sample{request: shortened(req), at: at, why: Why{Reasons: []string{}}}
	}
}

// shortened is a copy of the beginning of a request.
func shortened(req *descriptors.Request) *descriptors.Request {
	short := &descriptors.Request{Domain: beginning(req.Domain)}
	left := keptEntries
	for i := range req.Descriptors {
		var d descriptors.Descriptor
		for _, e := range req.Descriptors[i].Entries[:min(left, len(req.Descriptors[i].Entries))] {
			d.Entries = append(d.Entries, descriptors.Entry{Key: beginning(e.Key), Value: beginning(e.Value)})
		}
		left -= len(d.Entries)
		short.Descriptors = append(short.Descriptors, d)
	}
	return short
}

func beginning(b []byte) []byte { return slices.Clone(b[:min(len(b), keptBytes)]) }

// tick tells that a second has gone by.
func (s *shapes) tick() {
	s.left.Store(looks)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Decay(topkeys.Fade)
}

// list gives the shapes that there were lately, the most frequent first, and why set has no policy for them.
func (s *shapes) list(set *policy.Set) []Unmatched {
	all := []Unmatched{}
	if set == nil {
		return all
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil || s.reader.set != set {
		s.reader = newReader(set)
	}
	began := time.Now()
	for i := range s.samples {
		one := &s.samples[i]
		count, bound := s.Count(i)
		if one.request == nil || count < 0.5 {
			continue
		}
		if one.set != set && time.Since(began) < explaining {
			one.set, one.why = set, s.reader.why(one.request, one.at)
			one.own = s.reader.entries(one.request, one.at)
		}
		all = append(all, Unmatched{
			Domain: shown(string(one.request.Domain)), Entries: one.own, Calls: count, Error: bound, Why: one.why,
		})
	}
	slices.SortStableFunc(all, func(a, b Unmatched) int {
		switch {
		case a.Calls > b.Calls:
			return -1
		case a.Calls < b.Calls:
			return 1
		}
		return strings.Compare(a.Domain, b.Domain)
	})
	return all
}

// shown makes text of bytes that anybody may have chosen.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 { // nor what turns text around
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) >= keptBytes {
		s += "…"
	}
	return s
}
