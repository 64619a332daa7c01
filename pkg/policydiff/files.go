package policydiff

import (
	"maps"
	"slices"
	"strconv"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// compareFiles compares what the policies of a file have in common.
func compareFiles(from, to []*policy.File) []Change {
	d := differ{changes: []Change{}}
	was, is := ipv6Prefix(from), ipv6Prefix(to)
	d.field("ipv6Prefix", strconv.Itoa(was), strconv.Itoa(is), more(was, is), "buckets of IPv6 clients start anew")
	before, after := rules(from), rules(to)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.field(name, before[name], after[name], Both, "requests may get other attributes")
	}
	return d.changes
}

// ipv6Prefix is that of the whole set: files that say one agree.
func ipv6Prefix(files []*policy.File) int {
	for _, f := range files {
		if f.IPv6PrefixPos != (policy.Position{}) {
			return f.IPv6Prefix
		}
	}
	return policy.DefaultIPv6Prefix
}

// rules are the lines of the files' attributes, by domain and name.
func rules(files []*policy.File) map[string]string {
	m := map[string]string{}
	for _, f := range files {
		of := ""
		if f.Domain != "" {
			of = " of domain " + f.Domain
		}
		for _, r := range f.Attributes {
			m["attributes."+r.Name+of] = r.Attribute + r.Template
		}
	}
	return m
}
