package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// What a scenario may ask for: more is a mistake.
const (
	MaxKeys        = 100_000_000
	MaxWorkers     = 10_000
	MaxConnections = 1000
	MaxTime        = 24 * time.Hour
	maxDescriptors = 1000
	maxPolicies    = 1_000_000
	maxRate        = 10_000_000
	maxWeight      = 1_000_000
)

var (
	scenarioFields = []string{
		"about", "domain", "policies", "manyPolicies", "keys", "fill", "calls", "rates", "workers", "connections", "duration", "warmUp", "faults", "decidedBy", "limit",
	}
	keyFields  = []string{"count", "draw", "exponent"}
	callFields = []string{"weight", "cost", "descriptors", "policies"}
	manyFields = []string{"count", "each"}
)

const callExample = "write calls: [{descriptors: [{api_key: 'k{key}'}]}]"

// Parse reads a scenario. name is what it is called. The error is of type [policy.Faults] and holds all faults of the file.
func Parse(name string, text policy.Text) (*Scenario, error) {
	root, err := policy.ParseDocument(text, false)
	if err != nil {
		return nil, err
	}
	r := &reader{}
	s := r.scenario(root)
	s.Name = name
	if err := policy.Quote(r.faults, text); err != nil {
		return nil, err
	}
	return s, nil
}

// reader turns a document into a scenario and collects its faults.
type reader struct{ faults policy.Faults }

func (r *reader) fault(n *policy.Node, hint, format string, args ...any) {
	r.faults = append(r.faults, policy.Fault{Pos: n.Pos, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// mapping checks the fields of n; false if it has none.
func (r *reader) mapping(n *policy.Node, what string, known []string) bool {
	r.faults = append(r.faults, n.CheckFields(what, known)...)
	return n.Kind == policy.Mapping
}

func (r *reader) scenario(root *policy.Node) *Scenario {
	s := &Scenario{}
	if !r.mapping(root, "a scenario", scenarioFields) {
		return s
	}
	s.About, s.Domain = r.word(root.Get("about"), ""), r.word(root.Get("domain"), "bench")
	s.Policies = r.word(root.Get("policies"), "")
	if n := root.Get("manyPolicies"); n != nil {
		s.Policies = r.many(n, s.Policies)
	}
	s.Keys = r.keys(root.Get("keys"))
	s.Fill = r.flag(root.Get("fill"))
	s.Limit = r.whole(root.Get("limit"), 0, 0, maxRate)
	for _, n := range r.list(root.Get("calls"), root, "calls", callExample) {
		if r.mapping(n, "a call", callFields) {
			s.Calls = append(s.Calls, r.call(n))
		}
	}
	s.Load = r.shape(root)
	s.DecidedBy = []string{"store"}
	if n := root.Get("decidedBy"); n != nil {
		s.DecidedBy = nil
		for _, item := range r.list(n, n, "decidedBy", "write decidedBy: [store, cache]") {
			s.DecidedBy = append(s.DecidedBy, r.word(item, ""))
		}
	}
	return s
}

func (r *reader) shape(root *policy.Node) Shape {
	s := Shape{
		Workers:     int(r.whole(root.Get("workers"), 64, 1, MaxWorkers)),
		Connections: int(r.whole(root.Get("connections"), 4, 1, MaxConnections)),
		Duration:    r.time(root.Get("duration"), 10*time.Second),
		WarmUp:      r.time(root.Get("warmUp"), 2*time.Second),
		Rates:       []Rate{{}},
		Faults:      []Fault{Healthy},
	}
	if s.Duration == 0 {
		r.fault(root.Get("duration"), "", "the duration is nothing")
	}
	if n := root.Get("rates"); n != nil {
		s.Rates = nil
		for _, item := range r.list(n, n, "rates", "write rates: [25%, 50%, 100%]") {
			rate, err := ParseRate(r.word(item, ""))
			if err != nil {
				r.fault(item, "", "%v", err)
			}
			s.Rates = append(s.Rates, rate)
		}
	}
	if n := root.Get("faults"); n != nil {
		s.Faults = nil
		for _, item := range r.list(n, n, "faults", "write faults: [healthy, shard-killed]") {
			s.Faults = append(s.Faults, Fault(r.oneOf(item, string(Healthy), string(ShardKilled))))
		}
	}
	return s
}

// ParseRate reads a rate: 25%, 20000/s or closed.
func ParseRate(text string) (Rate, error) {
	if text == "closed" {
		return Rate{}, nil
	}
	for unit, make := range map[string]func(float64) Rate{
		"/s": func(n float64) Rate { return Rate{PerSecond: n} },
		"%":  func(n float64) Rate { return Rate{Share: n / 100} },
	} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			if n, err := strconv.ParseFloat(number, 64); err == nil && n > 0 && n <= maxRate {
				return make(n), nil
			}
		}
	}
	return Rate{}, fmt.Errorf("%q is no rate: write 50%%, 20000/s or closed", text)
}

func (r *reader) keys(n *policy.Node) Keys {
	k := Keys{Count: 1, Draw: Uniform}
	if n == nil || !r.mapping(n, "keys", keyFields) {
		return k
	}
	k.Count = uint64(r.whole(n.Get("count"), 1, 1, MaxKeys))
	if d := n.Get("draw"); d != nil {
		k.Draw = Draw(r.oneOf(d, string(Uniform), string(Zipf), string(Sequence)))
	}
	if k.Draw == Zipf {
		k.Exponent = DefaultExponent
	}
	if e := n.Get("exponent"); e != nil {
		var err error
		k.Exponent, err = strconv.ParseFloat(e.String(), 64)
		if err != nil || !(k.Exponent > 1 && k.Exponent <= 10) || k.Draw != Zipf {
			r.fault(e, "", "exponent is a number above 1, at most 10, for draw: zipf")
		}
	}
	return k
}

func (r *reader) call(n *policy.Node) Call {
	c := Call{
		Weight:   int(r.whole(n.Get("weight"), 1, 1, maxWeight)),
		Cost:     uint32(r.whole(n.Get("cost"), 0, 1, 1<<31)),
		Policies: int(r.whole(n.Get("policies"), 0, 0, maxPolicies)),
	}
	list := r.list(n.Get("descriptors"), n, "descriptors", callExample)
	if len(list) > maxDescriptors {
		r.fault(n, "", "a call has at most %d descriptors", maxDescriptors)
	}
	for _, d := range list {
		if d.Kind != policy.Mapping || len(d.Fields) == 0 {
			r.fault(d, callExample, "a descriptor is written as {key: value}")
			continue
		}
		var entries Descriptor
		for _, f := range d.Fields {
			t, err := ParseTemplate(r.word(f.Value, ""))
			if err != nil {
				r.fault(f.Value, "", "%v", err)
			}
			entries = append(entries, Entry{f.Name, t})
		}
		c.Descriptors = append(c.Descriptors, entries)
	}
	return c
}

// many appends copies of one policy to the text of a policy file, each with its number in place of {i}.
func (r *reader) many(n *policy.Node, text string) string {
	if !r.mapping(n, "manyPolicies", manyFields) {
		return text
	}
	each := r.word(n.Get("each"), "")
	if each == "" || text == "" {
		r.fault(n, "", "manyPolicies needs each, the text of a policy with {i} in it, and policies to append them to")
	}
	var b strings.Builder
	b.WriteString(text)
	for i := range r.whole(n.Get("count"), 1, 1, maxPolicies) {
		b.WriteString("  - " + strings.ReplaceAll(strings.TrimSpace(each), "{i}", strconv.FormatInt(i, 10)) + "\n")
	}
	return b.String()
}

// list gives the items of a list that may not be empty; a fault is at its parent if there is none.
func (r *reader) list(n, parent *policy.Node, name, example string) []*policy.Node {
	if n == nil {
		n = parent
	}
	if n.Kind != policy.List || len(n.Items) == 0 {
		r.fault(n, example, "%s is a list of at least one", name)
		return nil
	}
	return n.Items
}

func (r *reader) word(n *policy.Node, otherwise string) string {
	if n == nil {
		return otherwise
	}
	if n.Kind != policy.Scalar {
		r.fault(n, "", "want a value, not %s", n.Kind)
	}
	return n.String()
}

func (r *reader) oneOf(n *policy.Node, words ...string) string {
	word := r.word(n, "")
	for _, w := range words {
		if w == word {
			return w
		}
	}
	r.fault(n, policy.DidYouMean(word, words), "want %s", strings.Join(words, " or "))
	return words[0]
}

func (r *reader) flag(n *policy.Node) bool { return n != nil && r.oneOf(n, "false", "true") == "true" }

func (r *reader) whole(n *policy.Node, otherwise, least, most int64) int64 {
	if n == nil {
		return otherwise
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(n.String(), "_", ""), 10, 64)
	if err != nil || v < least || v > most {
		r.fault(n, "", "want a whole number from %d to %d", least, most)
		return least
	}
	return v
}

func (r *reader) time(n *policy.Node, otherwise time.Duration) time.Duration {
	if n == nil {
		return otherwise
	}
	micros, message, hint := policy.ParseTime(n.String())
	d := time.Duration(micros) * time.Microsecond
	if message == "" && d > MaxTime {
		message = "is longer than a day"
	}
	if message != "" {
		r.fault(n, hint, "the time %s", message)
		return time.Second
	}
	return d
}
