// Package topkeys finds the keys that each policy allows and denies most often, as of now: what somebody wants to know who is woken by an alert.
//
// It keeps a bounded number of keys, counts with a bounded error, and forgets what was long ago. A million distinct keys cost no more memory
// than a hundred. Keys are shown in a hidden form only: see [Item].
package topkeys

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// HalfLife is after how many seconds, that is calls of Tick, a call counts half.
const HalfLife = 30

// Fade is what a second leaves of a count: 0.5 to the power of 1/HalfLife.
const Fade = 0.977159968434245

// MaxLists bounds the lists of keys: two for each policy, of those allowed and those denied. A list takes about 16 kB, and 80 kB if its keys are as
// long as keys can be: 8 MB in all, 40 MB at most.
const MaxLists = 512

// forgotten is the weight below which a list makes room for another one.
const forgotten = 0.01

// Keys knows the busiest keys of each policy. Its methods are safe for concurrent use. Make one with New.
type Keys struct {
	seed    maphash.Seed
	current atomic.Pointer[table]
	skipped atomic.Uint64
	full    atomic.Bool // there are MaxLists

	mu    sync.Mutex // guards changes of lists, and byID
	lists int
	byID  map[string]*row
}

// table has the rows of one policy set.
type table struct {
	set  *policy.Set
	rows []row // by policy.Policy.Index
	// some has a bit for each row: whether it ever had a list. Of ten thousand policies few have one, and a row that is looked at in vain is one more
	// place in memory that a decision waits for.
	some []atomic.Uint64
}

func newTable(set *policy.Set) *table {
	n := len(set.Policies())
	return &table{set: set, rows: make([]row, n), some: make([]atomic.Uint64, (n+63)/64)}
}

func (t *table) mark(index int) { t.some[index/64].Or(1 << (index % 64)) }

func (t *table) marked(index int) bool { return t.some[index/64].Load()>>(index%64)&1 == 1 }

// row has the lists of one policy. They are made when there is something to list.
type row struct {
	allowed, denied atomic.Pointer[list]
}

// New makes Keys that count nothing until Use.
func New() *Keys { return &Keys{seed: maphash.MakeSeed(), byID: map[string]*row{}} }

// Use makes set the one whose decisions count. A policy that was in the set before it keeps its lists.
func (k *Keys) Use(set *policy.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	byID := make(map[string]*row, len(set.Policies()))
	t := newTable(set)
	for i, p := range set.Policies() {
		r := &t.rows[i]
		if old := k.byID[p.ID]; old != nil {
			r.allowed.Store(old.allowed.Load())
			r.denied.Store(old.denied.Load())
			t.mark(i)
			delete(k.byID, p.ID)
		}
		byID[p.ID] = r
	}
	for _, gone := range k.byID {
		k.drop(&gone.allowed)
		k.drop(&gone.denied)
	}
	k.byID = byID
	k.current.Store(t)
}

// drop forgets a list. It is called with mu held.
func (k *Keys) drop(at *atomic.Pointer[list]) {
	if at.Swap(nil) != nil {
		k.lists--
		k.full.Store(false)
	}
}

// Count counts what a decision's policies said of its keys: takes and looks, not what was given back or reported later. It allocates nothing but
// the lists. A decision by another set than the one in use, which was under way while that changed, is not counted.
func (k *Keys) Count(d *ratelimit.Decision) {
	t := k.current.Load()
	if t == nil || t.set != d.Set {
		return
	}
	check, skipped := 0, 0
	for i := range d.Hits {
		hit := &d.Hits[i]
		if skipped < len(d.Skipped) && d.Skipped[skipped].Policy == hit.Policy && d.Skipped[skipped].Missing == hit.Missing {
			skipped++
			continue
		}
		if check == len(d.Checks) {
			return
		}
		k.count(t, hit, &d.Checks[check])
		check++
	}
}

func (k *Keys) count(t *table, hit *policy.Hit, check *ratelimit.Check) {
	key := hit.Key.Bytes()
	if len(key) == 0 || hit.Policy != check.Policy || !check.Op.Deniable() {
		return
	}
	if check.Result.Outcome == 0 { // it was not asked
		return
	}
	if l := k.list(t, hit.Policy.Index, check.Result.Outcome); l != nil {
		l.add(maphash.Bytes(k.seed, key), hit)
	} else {
		k.skip()
	}
}

// skipsAtOnce is how many skipped keys are counted at a time, by one in as many: decisions on several cores would wait for a count that they share.
const skipsAtOnce = 64

func (k *Keys) skip() {
	if rand.Uint32()%skipsAtOnce == 0 {
		k.skipped.Add(skipsAtOnce)
	}
}

// list gives the list of a policy's keys with an outcome. It makes one, unless there are too many, or t is no longer in use.
func (k *Keys) list(t *table, index int, o ratelimit.Outcome) *list {
	full := k.full.Load()
	if full && !t.marked(index) {
		return nil
	}
	at := &t.rows[index].allowed
	if o == ratelimit.Denied {
		at = &t.rows[index].denied
	}
	if l := at.Load(); l != nil {
		return l
	}
	if full || !k.mu.TryLock() {
		return at.Load() // a decision does not wait for Tick
	}
	defer k.mu.Unlock()
	if l := at.Load(); l != nil || k.lists == MaxLists || k.current.Load() != t {
		return l
	}
	k.lists++
	k.full.Store(k.lists == MaxLists)
	l := &list{}
	t.mark(index)
	at.Store(l)
	return l
}

// Tick tells that a second has gone by: what was counted fades, and lists of which nothing is left make room for others.
func (k *Keys) Tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.byID {
		for _, at := range []*atomic.Pointer[list]{&r.allowed, &r.denied} {
			if l := at.Load(); l != nil && l.decay() < forgotten {
				k.drop(at)
			}
		}
	}
}

// Uncounted is about how many keys were not counted, since the start, for want of a list.
func (k *Keys) Uncounted() uint64 { return k.skipped.Load() }
