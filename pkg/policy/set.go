package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"
)

// DefaultIPv6Prefix is how many leading bits of an IPv6 address make one client: what a provider gives to a household.
const DefaultIPv6Prefix = 64

// Set is what a number of policy files say together. It never changes, so that one request never sees two versions.
type Set struct {
	version    string
	policies   []*Policy
	block      []Policy // what policies points to. Who keeps a policy keeps all of it
	numbers    []*Numbers
	attributes []attribute
	keys       [][]int32 // attributes that policies count by, or use
	texts      string    // those that decisions read of the policies, policy by policy
	ipv6Prefix int
	views      map[string]*View
	everywhere *View // of a domain that no file names: the policies of files without a domain
	now        func() time.Time
}

// attribute is one that some policy of the set uses. Its place in the set is its id.
type attribute struct {
	name string
	row  row
}

// View is the part of a set that serves one domain.
type View struct {
	set       *Set
	domain    string
	known     bool
	entries   map[string]int32 // entry key -> attribute
	templates []template
	policies  []*Policy
	all       []int32 // their Index
	index     index
}

// WithClock gives s for requests of another time: now says when it is, to overrides that have an until.
func (s *Set) WithClock(now func() time.Time) *Set {
	other := s.clone()
	other.now = now
	return other
}

func (s *Set) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// clone is s with views of its own. What they hold is shared.
func (s *Set) clone() *Set {
	other := *s
	other.views = maps.Clone(s.views)
	for domain, v := range s.views {
		other.views[domain] = v.of(&other)
	}
	other.everywhere = s.everywhere.of(&other)
	return &other
}

func (v *View) of(set *Set) *View {
	other := *v
	other.set = set
	return &other
}

// Version names the content of the files that the set was made of: 12 hexadecimal digits.
func (s *Set) Version() string { return s.version }

// Policies are all policies of the set, in file order. A policy's Index is its place here.
func (s *Set) Policies() []*Policy { return s.policies }

// Numbers are all numbers of the set, the policies' own and their overrides'. A Numbers' Index is its place here.
func (s *Set) Numbers() []*Numbers { return s.numbers }

// IPv6Prefix is how many leading bits of an IPv6 address make one client.
func (s *Set) IPv6Prefix() int { return s.ipv6Prefix }

// Domains are the domains that files name, sorted. Files without a domain serve every one.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.views)) }

// View gives the policies that serve domain.
func (s *Set) View(domain []byte) *View {
	if v, ok := s.views[string(domain)]; ok {
		return v
	}
	return s.everywhere
}

// Set is the set that the view is part of.
func (v *View) Set() *Set { return v.set }

// Known reports whether any policy file serves the domain.
func (v *View) Known() bool { return v.known }

// Policies are those that serve the domain, in file order.
func (v *View) Policies() []*Policy { return v.policies }

// NewSet joins files, in this order; a file belongs to one set from then on. It reports what is wrong between them and between their parts as [Faults].
func NewSet(files []*File) (*Set, error) {
	set, faults := build(files)
	if err := quoted(faults, files...); err != nil {
		return nil, err
	}
	return set, nil
}

// build makes the set and finds its faults. With faults of the files' own, the set is useless but the faults are right.
func build(files []*File) (*Set, Faults) {
	b := newBuilder(files)
	b.faults = duplicateIDs(files)
	b.addPolicies(files)
	b.setIPv6Prefix(files)
	b.addViews(files)
	for _, p := range b.set.policies {
		b.compile(p)
	}
	if len(b.faults) > 0 {
		return nil, b.faults
	}
	b.list()
	b.pack()
	for _, v := range b.views() {
		v.index = newIndex(b.set, v.policies)
	}
	return b.set, nil
}

// version hashes what the files say, so that the same files have the same version on every instance.
func version(files []*File) string {
	h := sha256.New()
	for _, f := range files {
		sum := sha256.Sum256(f.source)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
