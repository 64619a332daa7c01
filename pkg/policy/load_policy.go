package policy

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// maxKey is how many attributes a policy can count by.
const maxKey = 8

var policyFields = []string{
	"id", "name", "match", "key", "hashTag", "algorithm",
	"capacity", "refillPerSecond", "refillPerMinute", "refillPerHour", "refillPerDay", "overdraft", "limit", "window",
	"onStoreFailure", "reconcile", "onMissingKey", "expose", "advertise", "mode", "charge", "normalize", "overrides",
}

// algorithms are those of pkg/algorithm's table.
var algorithms = func() (choices []choice[algorithm.Kind]) {
	for _, name := range algorithm.Names() {
		kind, _ := algorithm.ByName(name)
		choices = append(choices, choice[algorithm.Kind]{name, kind})
	}
	return choices
}()

var failureModes = []choice[FailureMode]{{"local", Local}, {"open", Open}, {"closed", Closed}}

var reconciles = []choice[bool]{{"true", true}, {"false", false}}

var missingKeys = []choice[MissingKey]{{"skip", SkipPolicy}, {"deny", DenyRequest}}

var exposes = []choice[Expose]{{"always", ExposeAlways}, {"onReject", ExposeOnReject}, {"never", ExposeNever}}

var advertises = []choice[Advertise]{{"burst", AdvertiseBurst}, {"sustained", AdvertiseSustained}}

var modes = []choice[Mode]{{"enforce", Enforce}, {"shadow", Shadow}}

var charges = []choice[Charge]{{"prepaid", Prepaid}, {"postpaid", Postpaid}}

var normalizes = []choice[Normalize]{{"none", NormalizeNone}, {"lower", NormalizeLower}}

// policy reads one policy. It is complete only if no fault was noted.
func (l *loader) policy(node ast.Node, domain string) *Policy {
	p := &Policy{Domain: domain, Pos: l.pos(node)}
	o, ok := l.object(node, "a policy", policyFields)
	if !ok {
		return p
	}
	l.identity(p, &o)
	if f, ok := o.fields["match"]; ok {
		p.Match = l.conditions(f)
	}
	l.key(p, &o)
	l.behaviour(p, &o)
	l.policyNumbers(p, &o)
	return p
}

// identity reads what the policy is called.
func (l *loader) identity(p *Policy, o *object) {
	l.missing(o, "id", "")
	if id, f, ok := l.text(o, "id"); ok {
		p.ID, p.Pos = id, f.pos
		l.shownName(f, id)
		o.what = fmt.Sprintf("policy %q", id)
	}
	p.Name = p.ID
	if name, f, ok := l.text(o, "name"); ok {
		p.Name = name
		l.shownName(f, name)
	}
}

// shownName refuses what a header field cannot carry as a structured-field string (RFC 9651, section 3.3.3).
func (l *loader) shownName(f field, name string) {
	for _, r := range name {
		if r < ' ' || r > '~' {
			l.fault(f.pos, "use printable ASCII characters", "%s cannot hold the character %q", f.name, r)
			return
		}
	}
	if name == "" || len(name) > maxName {
		l.fault(f.pos, "", "%s has 1 to %d characters, not %d", f.name, maxName, len(name))
	}
}

// key reads what the policy counts by.
func (l *loader) key(p *Policy, o *object) {
	l.missing(o, "key", "write key: [] for one bucket that all requests share")
	if f, ok := o.fields["key"]; ok {
		p.Key, p.keyPos = l.keyAttributes(f)
	}
	tag, f, ok := l.text(o, "hashTag")
	if !ok || !l.attributeName(f.pos, tag) {
		return
	}
	p.HashTag, p.tagPos = tag, f.pos
	if o.has("key") && !slices.Contains(p.Key, tag) && !o.has("onMissingKey") && !o.meant["onMissingKey"] {
		l.fault(f.key, "write onMissingKey: deny or skip",
			"hashTag %s is not in key: say what happens to a request without it", tag)
	}
}

func (l *loader) keyAttributes(f field) (names []string, places []Position) {
	nodes, ok := l.list(f, "key: [ip]; for one bucket that all requests share, key: []")
	if !ok {
		return nil, nil
	}
	names, places = make([]string, 0, len(nodes)), make([]Position, 0, len(nodes))
	for _, n := range nodes {
		name, ok := scalar(n)
		switch {
		case !ok:
			l.fault(l.pos(n), "", "key lists names of attributes, not %s", kindOf(n))
		case !l.attributeName(l.pos(n), name):
		case slices.Contains(names, name):
			l.fault(l.pos(n), "", "key has %s twice", name)
		default:
			names, places = append(names, name), append(places, l.pos(n))
		}
	}
	if len(names) > maxKey {
		l.fault(f.pos, "", "key has %d attributes, more than %d", len(names), maxKey)
	}
	return names, places
}

// behaviour reads how the policy acts, apart from its numbers.
func (l *loader) behaviour(p *Policy, o *object) {
	l.missing(o, "onStoreFailure", "write onStoreFailure: local, open or closed")
	p.OnStoreFailure = choose(l, o, "onStoreFailure", failureModes)
	l.reconcile(p, o)
	p.OnMissingKey = orDefault(choose(l, o, "onMissingKey", missingKeys), SkipPolicy)
	if p.OnStoreFailure == Closed && !o.has("onMissingKey") {
		p.OnMissingKey = DenyRequest
	}
	p.Expose = orDefault(choose(l, o, "expose", exposes), ExposeAlways)
	p.Advertise = orDefault(choose(l, o, "advertise", advertises), AdvertiseBurst)
	p.Mode = orDefault(choose(l, o, "mode", modes), Enforce)
	p.Charge = orDefault(choose(l, o, "charge", charges), Prepaid)
	p.Normalize = orDefault(choose(l, o, "normalize", normalizes), NormalizeNone)
}

// reconcile reads whether the store learns of what it missed: of local shares only.
func (l *loader) reconcile(p *Policy, o *object) {
	f, ok := o.fields["reconcile"]
	if !ok {
		return
	}
	on := choose(l, o, "reconcile", reconciles)
	p.NoReconcile = !on && !o.meant["reconcile"]
	if p.OnStoreFailure != Local && p.OnStoreFailure != 0 {
		l.fault(f.key, "leave it out, or write onStoreFailure: local", "reconcile goes with onStoreFailure: local only")
	}
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
