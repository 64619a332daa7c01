package policy

import (
	"maps"
	"slices"
)

// Entries are the keys of a request's entries that some policy of the view has a use for, sorted.
func (v *View) Entries() []string { return slices.Sorted(maps.Keys(v.entries)) }
