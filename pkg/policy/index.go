package policy

// index finds the policies that can match without asking each: a policy is listed under the values of one of its
// conditions, so that ten thousand of them cost little more than ten.
type index struct {
	always []int32 // policies without a condition on a value
	lists  []indexed
}

// indexed lists policies by a value of one attribute, or by its first bytes.
type indexed struct {
	attribute int32
	prefix    int // length of the prefix; 0: the whole value
	byValue   map[string][]int32
}

// newIndex lists each policy under that exact condition whose attribute tells most policies apart, else under a prefix.
func newIndex(policies []*Policy) index {
	distinct := map[int32]map[string]struct{}{}
	for _, p := range policies {
		for _, c := range p.compiled.conditions {
			for _, v := range c.list() {
				if distinct[c.attribute] == nil {
					distinct[c.attribute] = map[string]struct{}{}
				}
				distinct[c.attribute][v] = struct{}{}
			}
		}
	}
	var x index
	places := map[[2]int]int{}
	for i, p := range policies {
		best := (*condition)(nil)
		for j := range p.compiled.conditions {
			if c := &p.compiled.conditions[j]; c.better(best, distinct) {
				best = c
			}
		}
		if best == nil {
			x.always = append(x.always, int32(i))
			continue
		}
		x.list(places, best, int32(i))
	}
	return x
}

func (x *index) list(places map[[2]int]int, c *condition, policy int32) {
	length := 0
	if c.kind == Prefix {
		length = len(c.values[0])
	}
	at := [2]int{int(c.attribute), length}
	place, ok := places[at]
	if !ok {
		place = len(x.lists)
		places[at] = place
		x.lists = append(x.lists, indexed{attribute: c.attribute, prefix: length, byValue: map[string][]int32{}})
	}
	for _, v := range c.list() {
		x.lists[place].byValue[v] = append(x.lists[place].byValue[v], policy)
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
