// Package policylint finds what is allowed in policy files and most likely not meant: policies that can never apply, attributes that nothing
// gives, identities that a client can write itself.
package policylint

import (
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Rule names a kind of finding.
type Rule string

// The rules.
const (
	Unreachable      Rule = "unreachable"       // a policy that no request can meet
	OverrideUnused   Rule = "override-unused"   // an override that no request can meet, or whose time is over
	NotFed           Rule = "not-fed"           // a policy that needs what no descriptor of Envoy gives
	Spoofable        Rule = "spoofable"         // who the client is, in the client's own words
	RawPath          Rule = "raw-path"          // a path with its query string, compared or counted as it is
	HashTags         Rule = "hash-tags"         // one request, several slots of the store
	LocalShare       Rule = "local-share"       // a limit too small to be shared by the instances
	AlgorithmChanged Rule = "algorithm-changed" // another algorithm under the same id
)

// Severity says how sure a finding is.
type Severity string

// The severities.
const (
	Warning Severity = "warning" // something to mend
	Note    Severity = "note"    // something to know, or that cannot be judged from the files
)

// Finding is one thing found.
type Finding struct {
	Rule     Rule         `json:"rule"`
	Severity Severity     `json:"severity"`
	Fault    policy.Fault `json:"fault"`
}

// Error is the text of the finding, as a compiler would write it.
func (f Finding) Error() string {
	fault := f.Fault
	fault.Message = fmt.Sprintf("%s[%s]: %s", f.Severity, f.Rule, fault.Message)
	return fault.Error()
}

// Options say what to look at.
type Options struct {
	Policies []policy.Text
	// Against are the policies that are in force; none: unknown.
	Against []policy.Text
	// Envoy are configurations of Envoy that belong together; none: unknown.
	Envoy []policy.Text
	// Instances is how many share the limits; 0: unknown.
	Instances int
	// Now is the time that overrides are judged by. The zero Time: now.
	Now time.Time
}

// Lint reads and checks the files. The error is of type [policy.Faults]: then a file cannot be read.
func Lint(o Options) ([]Finding, error) {
	set, err := policy.LoadTexts(o.Policies...)
	if err != nil {
		return nil, err
	}
	l := &linter{set: set, now: o.Now, told: map[place]bool{}}
	if o.Now.IsZero() {
		l.now = time.Now()
	}
	if len(o.Envoy) > 0 {
		if l.envoy, err = readEnvoy(o.Envoy); err != nil {
			return nil, err
		}
	}
	for _, p := range set.Policies() {
		l.reach(p)
		l.overrides(p)
		l.share(p, o.Instances)
	}
	l.hashTags()
	if err := l.against(o.Against); err != nil {
		return nil, err
	}
	l.rawEntries()
	if l.envoy != nil {
		l.fed()
		l.spoofable()
	}
	return l.quoted(append(o.Policies, o.Envoy...)), nil
}

// linter collects findings.
type linter struct {
	set   *policy.Set
	envoy *envoy // nil: unknown
	now   time.Time
	found []Finding
	told  map[place]bool
}

// place is where a rule has found something.
type place struct {
	rule Rule
	pos  policy.Position
}

func (l *linter) add(rule Rule, severity Severity, pos policy.Position, hint, format string, args ...any) {
	at := place{rule, pos}
	if l.told[at] {
		return // one is enough for a place
	}
	l.told[at] = true
	l.found = append(l.found, Finding{rule, severity, policy.Fault{Pos: pos, Hint: hint, Message: fmt.Sprintf(format, args...)}})
}

func (l *linter) warn(rule Rule, pos policy.Position, hint, format string, args ...any) {
	l.add(rule, Warning, pos, hint, format, args...)
}

// quoted puts the findings in order and gives them their lines.
func (l *linter) quoted(texts []policy.Text) []Finding {
	var sorted []Finding
	for _, text := range texts {
		var mine []Finding
		for _, f := range l.found {
			if f.Fault.Pos.File == text.Path {
				mine = append(mine, f)
			}
		}
		sortByPlace(mine)
		for i := range mine {
			fault := policy.Faults{mine[i].Fault}
			_ = policy.Quote(fault, text) // in place
			mine[i].Fault = fault[0]
		}
		sorted = append(sorted, mine...)
	}
	return sorted
}
