package policylint

import (
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// identities are the attributes that say who the client is.
var identities = []string{"ip", "apiKey", "tenant", "username", "plan"}

// view is what decides the requests that a policy is for.
func (l *linter) view(p *policy.Policy) *policy.View { return l.set.View([]byte(p.Domain)) }

// fed finds policies that need what no descriptor gives.
func (l *linter) fed() {
	if l.envoy.elsewhere {
		return
	}
	for _, p := range l.set.Policies() {
		if p.Domain != "" && !slices.Contains(l.envoy.domains, p.Domain) {
			l.warn(NotFed, p.Pos, policy.DidYouMean(p.Domain, l.envoy.domains), "policy %s is for domain %q, and no rate limit filter has that", p.ID, p.Domain)
			continue
		}
		for i := range p.Match {
			c := &p.Match[i]
			if c.Kind == policy.Absent {
				continue
			}
			if l.need(p, c.Attribute, c.Pos) {
				l.values(p, c)
			}
		}
		for i, name := range p.Key {
			if condition(p.Match, name) == nil {
				l.need(p, name, p.KeyPos(i))
			}
		}
		if p.HashTag != "" && condition(p.Match, p.HashTag) == nil {
			l.need(p, p.HashTag, p.TagPos())
		}
	}
}

// need checks that something gives an attribute.
func (l *linter) need(p *policy.Policy, attribute string, pos policy.Position) bool {
	if l.envoy.gives(l.view(p), attribute) {
		return true
	}
	parts, lacking := l.parts(p, attribute)
	switch {
	case lacking != "":
		l.warn(NotFed, pos, "", "policy %s needs %s, which is composed of %s, and no descriptor gives %s", p.ID, attribute, strings.Join(parts, " and "), lacking)
		return false
	case len(parts) > 0:
		return true
	}
	var keys []string
	for _, s := range l.envoy.sources() {
		keys = append(keys, s.entry)
	}
	l.warn(NotFed, pos, policy.DidYouMean(attribute, keys), "policy %s needs %s, and no descriptor gives it", p.ID, attribute)
	return false
}

// parts are what an attribute is composed of, and the first of them that no descriptor gives.
func (l *linter) parts(p *policy.Policy, attribute string) (parts []string, lacking string) {
	_, parts = l.set.Composed(p, attribute)
	for _, part := range parts {
		if !l.envoy.gives(l.view(p), part) {
			return parts, part
		}
	}
	return parts, ""
}

// values checks that an attribute which has only a few fixed values has one that meets the condition.
func (l *linter) values(p *policy.Policy, c *policy.Condition) {
	if parts, lacking := l.parts(p, c.Attribute); len(parts) > 0 && lacking == "" {
		return // made of what requests bring
	}
	var possible []string
	for _, s := range l.envoy.sources() {
		if l.view(p).Attribute([]byte(s.entry)) != c.Attribute {
			continue
		}
		if len(s.fixed) == 0 {
			return
		}
		possible = append(possible, s.fixed...)
	}
	given := &policy.Condition{Attribute: c.Attribute, Kind: policy.AnyOf, Values: possible}
	if disjoint(p, given, c) {
		slices.Sort(possible)
		l.warn(NotFed, c.Pos, "", "policy %s can never apply: the only values of %s are %q", p.ID, c.Attribute, slices.Compact(possible))
	}
}

// pathHeaders have a path with its query string.
var pathHeaders = []string{":path", "x-envoy-original-path", "x-original-url", "x-rewrite-url"}

// rawEntries finds policies that compare or count a path as it came: /login and /login?x=1 differ.
func (l *linter) rawEntries() {
	sources := []source{}
	for _, header := range pathHeaders {
		sources = append(sources, source{entry: header, header: header})
	}
	if l.envoy != nil {
		sources = append(sources, l.envoy.sources()...)
	}
	for _, p := range l.set.Policies() {
		for _, s := range sources {
			attribute := l.view(p).Attribute([]byte(s.entry))
			if !slices.Contains(pathHeaders, s.header) || attribute == "" || attribute == "path" || attribute == "route" {
				continue
			}
			const hint = "name the entry path, or use route: those are compared without query string, in one spelling"
			if c := condition(p.Match, attribute); c != nil {
				l.warn(RawPath, c.Pos, hint, "policy %s matches %s, the raw path of %s: a query string or a second slash escapes it", p.ID, attribute, s.header)
			}
			if i := slices.Index(p.Key, attribute); i >= 0 {
				l.warn(RawPath, p.KeyPos(i), hint, "policy %s counts by %s, the raw path of %s: each query string has a bucket of its own", p.ID, attribute, s.header)
			}
		}
	}
}

// spoofable finds identities that the client can write.
func (l *linter) spoofable() {
	for _, m := range l.envoy.managers {
		for _, s := range append(slices.Clone(m.sources), l.envoy.loose...) {
			for _, p := range l.set.Policies() {
				if a := l.view(p).Attribute([]byte(s.entry)); slices.Contains(identities, a) && uses(p, a) {
					l.identity(m, s, a)
				}
			}
		}
	}
}

func uses(p *policy.Policy, attribute string) bool {
	if condition(p.Match, attribute) != nil || slices.Contains(p.Key, attribute) || p.HashTag == attribute {
		return true
	}
	return slices.ContainsFunc(p.Overrides, func(o policy.Override) bool { return condition(o.Match, attribute) != nil })
}

// identity judges one source of an identity.
func (l *linter) identity(m *manager, s source, attribute string) {
	g := &m.guards
	fromPeer := s.entry == "remote_address" || s.entry == "masked_remote_address"
	switch {
	case s.header == "" && fromPeer && !g.trusted:
		l.warn(Spoofable, s.pos, "write use_remote_address: true, and xff_num_trusted_hops if there are proxies in front",
			"%s is what the client writes into x-forwarded-for", attribute)
		return
	case s.header == "", g.removes(s.header), slices.Contains(g.checked, s.header):
		return
	}
	if j := g.judge(s.header); j != nil {
		l.add(Spoofable, Note, s.pos, "", "%s is taken from header %s; whether the %s filter in line %d sets or checks it for every request cannot be told from here",
			attribute, s.header, j.name, j.pos.Line)
		return
	}
	hint := "remove it in early_header_mutation_extensions, and have a filter that authenticates the client set it"
	if slices.Contains(g.late, s.header) {
		hint = "request_headers_to_remove acts when the service has been asked already: remove it in early_header_mutation_extensions"
	}
	if attribute == "apiKey" {
		l.warn(Spoofable, s.pos, "check keys in front of the rate limit: api_key_auth, ext_authz",
			"nothing checks the API key in header %s: a client that invents keys has a new bucket with each", s.header)
		return
	}
	l.warn(Spoofable, s.pos, hint, "%s is what the client writes into header %s: nothing removes or sets it", attribute, s.header)
}
