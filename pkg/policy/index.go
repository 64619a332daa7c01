package policy

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// index finds the policies that can match without asking each: a policy is listed under the values of one of its
// conditions, so that ten thousand of them cost little more than ten.
type index struct {
	always []int32 // policies without a condition on a value
	lists  []indexed
	flat   []int32 // what the lists list, by Policy.Index
}

// indexed lists policies by a value of one attribute, or by its first bytes. It is a hash table with open addressing: of ten thousand policies each is
// cold to the processor, and here one line of its cache leads to a value's policies.
type indexed struct {
	attribute int32
	prefix    int // length of the prefix; 0: the whole value
	slots     []slot
	block     []Policy // of the set
	texts     string   // of the set
}

// slot is a value and who is listed under it. Empty if list is 0.
type slot struct {
	hash   uint32
	text   uint32 // where the value begins in texts
	length uint32
	list   uint32 // 1 + the only policy, or several + a place in index.flat: how many there are, and then they
}

const several = 1 << 31

var indexSeed = maphash.MakeSeed()

// find gives the list of a value, 0 if there is none.
func (e *indexed) find(value []byte) uint32 {
	hash := uint32(maphash.Bytes(indexSeed, value))
	for at := int(hash); ; at++ {
		s := &e.slots[at&(len(e.slots)-1)]
		if s.list == 0 || s.hash == hash && e.ahead(s.list) && e.texts[s.text:][:s.length] == string(value) {
			return s.list
		}
	}
}

// ahead is always true: it has the processor wait for the policy while it waits for the text, not after that.
func (e *indexed) ahead(list uint32) bool {
	return list >= several || e.block[list-1].compiled.listing.attribute == e.attribute
}

// listing is the condition by which a policy is listed: who finds it there need not ask for that one again.
type listing struct{ condition, attribute int32 }

// unlisted is the listing of a policy that is asked whatever the request.
var unlisted = listing{-1, -1}

// list chooses for each policy that exact condition whose attribute tells most policies of its domain apart, else a prefix. One without a domain is
// listed alike in every view.
func (b *builder) list() {
	for _, v := range b.views() {
		distinct := v.distinct()
		for _, p := range v.policies {
			if b.set.ViewOf(p) == v {
				p.list(distinct)
			}
		}
	}
}

// distinct are the values that conditions look for, by attribute.
func (v *View) distinct() map[int32]map[string]struct{} {
	distinct := map[int32]map[string]struct{}{}
	for _, p := range v.policies {
		for _, c := range p.rest.conditions {
			for _, v := range c.list() {
				if distinct[c.attribute] == nil {
					distinct[c.attribute] = map[string]struct{}{}
				}
				distinct[c.attribute][v] = struct{}{}
			}
		}
	}
	return distinct
}

func (p *Policy) list(distinct map[int32]map[string]struct{}) {
	best, conditions := (*condition)(nil), p.rest.conditions
	p.compiled.listing = unlisted
	for j := range conditions {
		if c := &conditions[j]; c.better(best, distinct) {
			best, p.compiled.listing = c, listing{int32(j), c.attribute}
		}
	}
	p.compiled.only = best != nil && len(conditions) == 1
}

// newIndex lists each policy as it is to be.
func newIndex(set *Set, policies []*Policy) (x index) {
	var lists lists
	for _, p := range policies {
		if p.compiled.listing == unlisted {
			x.always = append(x.always, int32(p.Index))
			continue
		}
		lists.add(p)
	}
	lists.pack(&x, set)
	return x
}

// lists are those of an index in the making.
type lists []list

// list has the policies by value, in the order of the policies.
type list struct {
	indexed
	values   []located
	policies map[string][]int32
}

// located is a value and its place in the set's texts.
type located struct {
	value string
	at    uint32
}

func (l *lists) add(p *Policy) {
	c, index := &p.rest.conditions[p.compiled.listing.condition], int32(p.Index)
	length := 0
	if c.kind == Prefix {
		length = len(c.values[0])
	}
	at := slices.IndexFunc(*l, func(one list) bool { return one.attribute == c.attribute && one.prefix == length })
	if at < 0 {
		at = len(*l)
		*l = append(*l, list{indexed: indexed{attribute: c.attribute, prefix: length}, policies: map[string][]int32{}})
	}
	one := &(*l)[at]
	place := p.compiled.texts + uint32(p.compiled.prefix)
	for i := range p.rest.conditions {
		of := &p.rest.conditions[i]
		for _, v := range of.values {
			if of == c && !endsWith(one.policies[v], index) { // a value may be written twice, or in two ways
				if one.policies[v] == nil {
					one.values = append(one.values, located{v, place})
				}
				one.policies[v] = append(one.policies[v], index)
			}
			place += uint32(len(v))
		}
	}
}

func endsWith(list []int32, n int32) bool { return len(list) > 0 && list[len(list)-1] == n }

// pack makes the tables, and puts what a look-up reads close together.
func (l *lists) pack(x *index, set *Set) {
	for i := range *l {
		one := &(*l)[i]
		one.block, one.texts = set.block, set.texts
		one.slots = make([]slot, 1<<bits.Len(uint(len(one.values)*3/2))) // a quarter to two thirds of them will be taken
		for _, l := range one.values {
			v := l.value
			hash := uint32(maphash.String(indexSeed, v))
			at := int(hash)
			for one.slots[at&(len(one.slots)-1)].list != 0 {
				at++
			}
			s := slot{hash: hash, text: l.at, length: uint32(len(v)), list: uint32(one.policies[v][0]) + 1}
			if n := len(one.policies[v]); n > 1 {
				s.list = several + uint32(len(x.flat))
				x.flat = append(append(x.flat, int32(n)), one.policies[v]...)
			}
			one.slots[at&(len(one.slots)-1)] = s
		}
		x.lists = append(x.lists, one.indexed)
	}
}

// list gives the values that the condition looks for as a request has them, none if it does not look for values.
func (c *condition) list() []string {
	if c.lower {
		return nil
	}
	if c.kind == AnyOf || c.kind == Prefix {
		return c.values
	}
	return nil
}

// better reports whether c leads to fewer policies than other.
func (c *condition) better(other *condition, distinct map[int32]map[string]struct{}) bool {
	switch {
	case len(c.list()) == 0:
		return false
	case other == nil:
		return true
	case c.kind != other.kind:
		return c.kind == AnyOf
	}
	return len(distinct[c.attribute]) > len(distinct[other.attribute])
}
