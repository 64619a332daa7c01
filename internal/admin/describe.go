package admin

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// The types below are /api/v1/policies: a policy set in the words of the policy file, defaults filled in.
type (
	setView struct {
		Version  string       `json:"version"`
		Domains  []string     `json:"domains"`
		Policies []policyView `json:"policies"`
	}

	policyView struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Domain   string          `json:"domain,omitempty"`
		Position positionView    `json:"position"`
		Match    []conditionView `json:"match"`
		Key      []string        `json:"key"`
		HashTag  string          `json:"hashTag,omitempty"`
		numbersView
		Overrides      []overrideView `json:"overrides"`
		OnStoreFailure string         `json:"onStoreFailure"`
		Reconcile      *bool          `json:"reconcile,omitempty"` // local policies only
		OnMissingKey   string         `json:"onMissingKey"`
		Expose         string         `json:"expose"`
		Advertise      string         `json:"advertise"`
		Mode           string         `json:"mode"`
		Charge         string         `json:"charge"`
		Normalize      string         `json:"normalize"`
	}

	positionView struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Column int    `json:"column"`
	}

	conditionView struct {
		Attribute string   `json:"attribute"`
		Is        string   `json:"is"` // anyOf, prefix, present, absent
		Values    []string `json:"values,omitempty"`
	}

	numbersView struct {
		Algorithm       string   `json:"algorithm"`
		Capacity        *float64 `json:"capacity,omitempty"`
		RefillPerSecond *float64 `json:"refillPerSecond,omitempty"`
		RefillPerMinute *float64 `json:"refillPerMinute,omitempty"`
		RefillPerHour   *float64 `json:"refillPerHour,omitempty"`
		RefillPerDay    *float64 `json:"refillPerDay,omitempty"`
		Overdraft       *float64 `json:"overdraft,omitempty"`
		Limit           *float64 `json:"limit,omitempty"`
		Window          string   `json:"window,omitempty"`
	}

	overrideView struct {
		Position positionView    `json:"position"`
		Match    []conditionView `json:"match"`
		numbersView
		Comment string     `json:"comment,omitempty"`
		Until   *time.Time `json:"until,omitempty"`
	}
)

func describe(set *policy.Set) setView {
	v := setView{Version: set.Version(), Domains: orEmpty(set.Domains()), Policies: []policyView{}}
	for _, p := range set.Policies() {
		v.Policies = append(v.Policies, describePolicy(p))
	}
	return v
}

func describePolicy(p *policy.Policy) policyView {
	v := policyView{
		ID: p.ID, Name: p.Name, Domain: p.Domain, Position: describePosition(p.Pos),
		Match: describeMatch(p.Match), Key: orEmpty(p.Key), HashTag: p.HashTag,
		numbersView:    describeNumbers(p.Numbers, p.Charge),
		Overrides:      []overrideView{},
		OnStoreFailure: p.OnStoreFailure.String(),
		OnMissingKey:   p.OnMissingKey.String(),
		Expose:         p.Expose.String(),
		Advertise:      p.Advertise.String(),
		Mode:           p.Mode.String(),
		Charge:         p.Charge.String(),
		Normalize:      p.Normalize.String(),
	}
	if p.OnStoreFailure == policy.Local {
		reconcile := !p.NoReconcile
		v.Reconcile = &reconcile
	}
	for _, o := range p.Overrides {
		view := overrideView{
			Position: describePosition(o.Pos), Match: describeMatch(o.Match),
			numbersView: describeNumbers(o.Numbers, p.Charge), Comment: o.Comment,
		}
		if !o.Until.IsZero() {
			view.Until = &o.Until
		}
		v.Overrides = append(v.Overrides, view)
	}
	return v
}

func describePosition(p policy.Position) positionView {
	return positionView{File: p.File, Line: p.Line, Column: p.Column}
}

func describeMatch(match []policy.Condition) []conditionView {
	views := []conditionView{}
	for _, c := range match {
		views = append(views, conditionView{
			Attribute: c.Attribute, Is: word(c.Kind, "anyOf", "prefix", "present", "absent"), Values: c.Values,
		})
	}
	return views
}

func describeNumbers(n policy.Numbers, charge policy.Charge) numbersView {
	v := numbersView{Algorithm: n.Kind.String()}
	if n.Kind == algorithm.SlidingLog {
		v.Limit = &n.Capacity
		v.Window = policy.FormatWindow(n.Window)
		return v
	}
	v.Capacity = &n.Capacity
	if charge == policy.Postpaid {
		v.Overdraft = &n.Overdraft
	}
	switch n.Unit {
	case policy.PerSecond:
		v.RefillPerSecond = &n.Refill
	case policy.PerMinute:
		v.RefillPerMinute = &n.Refill
	case policy.PerHour:
		v.RefillPerHour = &n.Refill
	case policy.PerDay:
		v.RefillPerDay = &n.Refill
	}
	return v
}

// word is the spelling of an enumeration that counts from 1.
func word[E ~uint8](e E, words ...string) string {
	if e == 0 || int(e) > len(words) {
		return ""
	}
	return words[e-1]
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
