package rlheaders

import (
	"slices"

	"github.com/dunglas/httpsfv"
)

// maxMerged is how many bytes of a field that others sent are read. A response has more only by mistake.
const maxMerged = 8 << 10

// Merge joins own, a value of RateLimit or RateLimit-Policy that was rendered here, with the lines of the same field that others behind have
// put into the response: an inner limiter, or the answer of another service that is passed on. All lines of a field are one list (RFC 9651,
// 3.1), so the result is one line, own's items first, and no policy name appears twice in it: where two items have a name in common,
// the one with less left (r) stays, or own's if that says nothing. What is not a list of named items would make clients ignore the whole field,
// and is dropped; so are items of the policies of Elsewhere.
func (r *Renderer) Merge(own string, lines []string) string {
	merged := namedItems([]string{own})
	for _, item := range namedItems(lines) {
		if slices.Contains(r.Elsewhere, item.Value.(string)) {
			continue
		}
		at := slices.IndexFunc(merged, func(other httpsfv.Item) bool { return other.Value == item.Value })
		switch {
		case at < 0:
			merged = append(merged, item)
		case less(item, merged[at]):
			merged[at] = item
		}
	}
	var list httpsfv.List
	for _, item := range merged {
		list = append(list, item)
	}
	text, err := httpsfv.Marshal(list)
	if err != nil {
		return own // what was parsed has a serialisation
	}
	return text
}

// namedItems are the items of a list that begin with a string; none if the lines are no list.
func namedItems(lines []string) []httpsfv.Item {
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	if size > maxMerged {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	var items []httpsfv.Item
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		if _, ok := item.Value.(string); ok {
			items = append(items, item)
		}
	}
	return items
}

// less reports whether a says that less is left than b does.
func less(a, b httpsfv.Item) bool {
	ra, okA := integer(a, "r")
	rb, okB := integer(b, "r")
	return okA && okB && ra < rb
}

func integer(item httpsfv.Item, param string) (int64, bool) {
	value, _ := item.Params.Get(param)
	n, ok := value.(int64)
	return n, ok
}
