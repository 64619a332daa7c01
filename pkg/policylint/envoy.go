package policylint

import (
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// envoy is what a configuration says about what the service is asked.
type envoy struct {
	managers  []*manager
	loose     []source // of routes that stand outside any connection manager, in a file of their own
	domains   []string // of the rate limit filters
	elsewhere bool     // some routes come from a server: what they give is not known
}

// source is an action of a rate limit: what gives one entry.
type source struct {
	pos    policy.Position
	entry  string
	header string   // that its value is taken from, in lower case; empty: from elsewhere
	fixed  []string // the one value that it can have; none: any
}

// manager is an HTTP connection manager, or another filter chain that asks.
type manager struct {
	sources []source
	guards  guards
}

// readEnvoy reads configurations.
func readEnvoy(texts []policy.Text) (*envoy, error) {
	e := &envoy{}
	for _, text := range texts {
		root, err := policy.ParseDocument(text, true)
		if err != nil {
			return nil, err
		}
		e.loose = append(e.loose, e.walk(root, nil)...)
	}
	return e, nil
}

// typeOf is the last part of a typed config's type, such as ratelimit.v3.RateLimit.
func typeOf(n *policy.Node) string {
	parts := strings.Split(n.Get("@type").String(), ".")
	return strings.Join(parts[max(0, len(parts)-3):], ".")
}

func isRateLimit(n *policy.Node) bool { return typeOf(n) == "ratelimit.v3.RateLimit" }

// walk gives the sources in n, but for those inside a connection manager, which it adds to e.
func (e *envoy) walk(n *policy.Node, found []source) []source {
	if isRateLimit(n) {
		e.domains = append(e.domains, n.Get("domain").String())
	}
	for _, f := range n.Fields {
		switch {
		case f.Name == "rds":
			e.elsewhere = true
		case f.Name == "rate_limits" && f.Value.Kind == policy.List:
			for _, limit := range f.Value.Items {
				found = append(found, actions(limit.Get("actions"))...)
			}
		case f.Name == "descriptors" && isRateLimit(n): // a network filter
			found = append(found, entries(f.Value)...)
		case typeOf(f.Value) == "http_connection_manager.v3.HttpConnectionManager":
			m := &manager{guards: readGuards(f.Value)}
			m.sources = e.walk(f.Value, nil)
			e.managers = append(e.managers, m)
		default:
			found = e.walk(f.Value, found)
		}
	}
	for _, item := range n.Items {
		found = e.walk(item, found)
	}
	return found
}

// entries are those of a network filter's descriptors.
func entries(n *policy.Node) (found []source) {
	for _, d := range n.Items {
		list := d.Get("entries")
		if list == nil {
			continue
		}
		for _, entry := range list.Items {
			found = append(found, source{pos: entry.Pos, entry: entry.Get("key").String(), fixed: fixed(entry.Get("value"))})
		}
	}
	return found
}

// entryKeys are the keys of the entries that actions make without a descriptor_key.
var entryKeys = map[string]string{
	"generic_key": "generic_key", "header_value_match": "header_match", "query_parameter_value_match": "query_match",
	"remote_address": "remote_address", "masked_remote_address": "masked_remote_address", "remote_address_match": "remote_address_match",
	"source_cluster": "source_cluster", "destination_cluster": "destination_cluster",
}

// actions reads what a descriptor is made of.
func actions(list *policy.Node) (found []source) {
	if list == nil {
		return nil
	}
	for _, action := range list.Items {
		for _, f := range action.Fields {
			s := source{pos: f.Pos, entry: f.Value.Get("descriptor_key").String()}
			if s.entry == "" {
				s.entry = entryKeys[f.Name]
			}
			switch f.Name {
			case "request_headers":
				s.header = strings.ToLower(f.Value.Get("header_name").String())
			case "generic_key", "header_value_match", "query_parameter_value_match":
				s.fixed = fixed(f.Value.Get("descriptor_value"))
			case "extension":
				s.entry = f.Value.Get("typed_config", "descriptor_key").String()
			}
			found = append(found, s)
		}
	}
	return found
}

// fixed is the only value that n can have; none if it is made when a request comes.
func fixed(n *policy.Node) []string {
	if v := n.String(); v != "" && !strings.Contains(v, "%") {
		return []string{v}
	}
	return nil
}

// sources are all of the configuration.
func (e *envoy) sources() []source {
	all := slices.Clone(e.loose)
	for _, m := range e.managers {
		all = append(all, m.sources...)
	}
	return all
}

// gives reports whether some entry gives the attribute by itself. Without a configuration that is not known.
func (e *envoy) gives(v *policy.View, attribute string) bool {
	return e != nil && slices.ContainsFunc(e.sources(), func(s source) bool { return v.Attribute([]byte(s.entry)) == attribute })
}
