package policylint

import (
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// guards are what a connection manager does to the headers of clients before it asks.
type guards struct {
	trusted bool        // the client's address is not taken from what the client says
	removed []matcher   // headers that are removed, or replaced by what clients cannot choose
	late    []string    // headers that routes remove: too late
	checked []string    // headers whose value is verified
	judges  []judgement // filters that may do either
}

// judgement is a filter whose doing a configuration does not tell.
type judgement struct {
	name string
	pos  policy.Position
	code string // what is known of it; empty: nothing
}

// matcher finds header names.
type matcher struct {
	exact, prefix, suffix, contains string
}

func (m matcher) matches(header string) bool {
	switch {
	case m.exact != "":
		return header == m.exact
	case m.prefix != "":
		return strings.HasPrefix(header, m.prefix)
	case m.suffix != "":
		return strings.HasSuffix(header, m.suffix)
	}
	return m.contains != "" && strings.Contains(header, m.contains)
}

func readGuards(n *policy.Node) guards {
	g := guards{}
	g.trusted = n.Get("use_remote_address").String() == "true" || n.Get("original_ip_detection_extensions") != nil
	if list := n.Get("early_header_mutation_extensions"); list != nil {
		for _, item := range list.Items {
			g.mutations(item.Get("typed_config", "mutations"))
		}
	}
	if list := n.Get("http_filters"); list != nil {
		for _, f := range list.Items {
			if isRateLimit(f.Get("typed_config")) {
				break // what comes later is too late
			}
			g.filter(f)
		}
	}
	g.lateRemovals(n)
	return g
}

// mutations reads those of a header mutation.
func (g *guards) mutations(list *policy.Node) {
	if list == nil {
		return
	}
	for _, m := range list.Items {
		if name := m.Get("remove").String(); name != "" {
			g.remove(name)
		}
		if k := m.Get("remove_on_match", "key_matcher"); k != nil {
			lower := func(field string) string { return strings.ToLower(k.Get(field).String()) }
			g.removed = append(g.removed, matcher{lower("exact"), lower("prefix"), lower("suffix"), lower("contains")})
		}
		if strings.HasPrefix(m.Get("append", "append_action").String(), "OVERWRITE_IF_EXISTS_OR_ADD") {
			g.remove(m.Get("append", "header", "key").String())
		}
	}
}

func (g *guards) remove(header string) {
	if header != "" {
		g.removed = append(g.removed, matcher{exact: strings.ToLower(header)})
	}
}

// filter reads one that comes before the rate limit.
func (g *guards) filter(f *policy.Node) {
	config := f.Get("typed_config")
	switch kind := typeOf(config); kind {
	case "header_mutation.v3.HeaderMutation":
		g.mutations(config.Get("mutations", "request_mutations"))
	case "jwt_authn.v3.JwtAuthentication":
		g.jwt(config)
	case "basic_auth.v3.BasicAuth":
		g.remove(config.Get("forward_username_header").String())
	case "api_key_auth.v3.ApiKeyAuth":
		g.remove(config.Get("forwarding", "header").String())
		if list := config.Get("key_sources"); list != nil {
			for _, s := range list.Items {
				g.checked = append(g.checked, strings.ToLower(s.Get("header").String()))
			}
		}
	case "lua.v3.Lua":
		code := config.Get("default_source_code", "inline_string").String() + config.Get("inline_code").String()
		g.judges = append(g.judges, judgement{"lua", f.Pos, code})
	case "ext_authz.v3.ExtAuthz", "ext_proc.v3.ExternalProcessor", "wasm.v3.Wasm", "golang.v3alpha.Config":
		name, _, _ := strings.Cut(kind, ".")
		g.judges = append(g.judges, judgement{name, f.Pos, ""})
	}
}

// jwt reads which headers are replaced by what a verified token says.
func (g *guards) jwt(config *policy.Node) {
	providers := config.Get("providers")
	if providers == nil {
		return
	}
	for _, p := range providers.Fields {
		g.remove(p.Value.Get("forward_payload_header").String())
		if claims := p.Value.Get("claim_to_headers"); claims != nil {
			for _, c := range claims.Items {
				g.remove(c.Get("header_name").String())
			}
		}
	}
}

// lateRemovals collects what routes remove from requests: that happens when the service has been asked already.
func (g *guards) lateRemovals(n *policy.Node) {
	for _, f := range n.Fields {
		if f.Name == "request_headers_to_remove" {
			for _, item := range f.Value.Items {
				g.late = append(g.late, strings.ToLower(item.String()))
			}
		}
		g.lateRemovals(f.Value)
	}
	for _, item := range n.Items {
		g.lateRemovals(item)
	}
}

func (g *guards) removes(header string) bool {
	return slices.ContainsFunc(g.removed, func(m matcher) bool { return m.matches(header) })
}

// judge is a filter that may set or check header; nil if there is none.
func (g *guards) judge(header string) *judgement {
	for i := range g.judges {
		if j := &g.judges[i]; j.code == "" || strings.Contains(strings.ToLower(j.code), header) {
			return j
		}
	}
	return nil
}
