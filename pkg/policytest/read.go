package policytest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// What a file may ask for: more is a mistake, or somebody who wants the machine.
const (
	maxCalls = 1_000_000 // of one test
	maxAt    = 366 * 24 * time.Hour
)

const stepExample = "write {at: 0s, repeat: 20, expect: allow}"

var (
	fileFields = []string{"policies", "now", "tests"}
	testFields = append([]string{"name", "timeline"}, whoFields...)
	whoFields  = []string{"domain", "attributes", "descriptors"}
	stepFields = append([]string{"at", "every", "repeat", "cost", "refund", "expect", "by", "wouldDeny", "remaining", "retryAfter"}, whoFields...)
)

// Parse reads a file of tests. The error is of type [policy.Faults] and holds all faults of the file.
func Parse(text policy.Text) (*File, error) {
	root, err := policy.ParseDocument(text, false)
	if err != nil {
		return nil, err
	}
	r := &reader{file: &File{Path: text.Path, source: text.Data}}
	r.read(root)
	if err := policy.Quote(r.faults, text); err != nil {
		return nil, err
	}
	return r.file, nil
}

// reader turns a document into a File and collects its faults.
type reader struct {
	file   *File
	faults policy.Faults
}

func (r *reader) fault(pos policy.Position, hint, format string, args ...any) {
	r.faults = append(r.faults, policy.Fault{Pos: pos, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// fields checks that n is a mapping of known names, each at most once.
func (r *reader) fields(n *policy.Node, what string, known []string) bool {
	r.faults = append(r.faults, n.CheckFields(what, known)...)
	return n.Kind == policy.Mapping
}

func (r *reader) read(root *policy.Node) {
	if !r.fields(root, "a file of tests", fileFields) {
		return
	}
	if n := root.Get("policies"); n != nil {
		r.file.Policies = r.words(n)
	}
	if n := root.Get("now"); n != nil {
		now, err := time.Parse(time.RFC3339, n.String())
		if err != nil {
			r.fault(n.Pos, "write 2030-01-31T18:00:00Z", "now is no time")
		}
		r.file.Now = now
	}
	tests := root.Get("tests")
	if tests == nil || tests.Kind != policy.List || len(tests.Items) == 0 {
		r.fault(root.Pos, "write tests: [{name: …, attributes: {…}, timeline: [{at: 0s, expect: allow}]}]", "a file of tests needs a list of tests")
		return
	}
	for _, n := range tests.Items {
		r.test(n)
	}
}

func (r *reader) test(n *policy.Node) {
	if !r.fields(n, "a test", testFields) {
		return
	}
	t := Test{Name: n.Get("name").String(), Pos: n.Pos}
	if t.Name == "" {
		r.fault(n.Pos, "", "a test needs a name")
	}
	timeline := n.Get("timeline")
	if timeline == nil || timeline.Kind != policy.List || len(timeline.Items) == 0 {
		r.fault(n.Pos, stepExample, "a test needs a timeline: a list of calls")
		return
	}
	var end time.Duration
	calls := 0
	for _, step := range timeline.Items {
		if !r.fields(step, "a call", stepFields) {
			continue
		}
		s := r.step(step, n)
		if s.At < end {
			r.fault(s.Pos, "", "the call is before the previous one has come to its end, at %s", policy.FormatWindow(end.Microseconds()))
		}
		if s.Every > maxAt/time.Duration(s.Repeat) {
			r.fault(s.Pos, "", "a test makes at most %d calls within a year", maxCalls)
			return
		}
		end = s.At + time.Duration(s.Repeat-1)*s.Every
		if calls += s.Repeat; calls > maxCalls || end > maxAt {
			r.fault(s.Pos, "", "a test makes at most %d calls within a year", maxCalls)
			return
		}
		t.Steps = append(t.Steps, s)
	}
	r.file.Tests = append(r.file.Tests, t)
}

// step reads one call; what it does not say about the request stands in its test.
func (r *reader) step(n, test *policy.Node) Step {
	s := Step{Pos: n.Pos, Repeat: 1, At: r.duration(n.Get("at")), Every: r.duration(n.Get("every"))}
	if n.Get("at") == nil {
		r.fault(n.Pos, stepExample, "a call needs at: the time since the test began")
	}
	if m := n.Get("repeat"); m != nil {
		s.Repeat = int(r.whole(m, 1, maxCalls))
	}
	r.request(&s, n, test)
	cost := uint64(1)
	if m := n.Get("cost"); m != nil {
		var err error
		if cost, err = strconv.ParseUint(m.String(), 10, 64); err != nil {
			r.fault(m.Pos, "", "cost is a whole number, 0 or more")
		}
	}
	refund := n.Get("refund").String()
	if m := n.Get("refund"); m != nil && refund != "true" && refund != "false" {
		r.fault(m.Pos, "", "refund is true or false")
	}
	if n.Get("cost") != nil || refund == "true" {
		s.Request.SetCost(cost, refund == "true")
	}
	r.expectations(&s, n)
	return s
}

// request reads who calls. A call's own attributes are added to those of its test, or replace those of the same name.
func (r *reader) request(s *Step, n, test *policy.Node) {
	for _, from := range []*policy.Node{test, n} {
		if domain := from.Get("domain"); domain != nil {
			s.Request.Domain, s.domainGiven = []byte(domain.String()), true
		}
	}
	own, shared := n.Get("descriptors"), test.Get("descriptors")
	if own == nil && n.Get("attributes") == nil {
		own = shared
	}
	for _, from := range []*policy.Node{test, n} {
		if d := from.Get("descriptors"); d != nil && from.Get("attributes") != nil {
			r.fault(d.Pos, "", "a request has attributes or descriptors, not both")
			return
		}
	}
	if own != nil {
		r.descriptors(s, own)
		return
	}
	var attributes []descriptors.Attribute
	mine := n.Get("attributes")
	for _, from := range []*policy.Node{test.Get("attributes"), mine} {
		if from == nil || !r.fields(from, "attributes", fieldNames(from)) {
			continue
		}
		for _, f := range from.Fields {
			if from != mine && mine.Get(f.Name) != nil {
				continue
			}
			for _, value := range r.words(f.Value) {
				attributes = append(attributes, descriptors.Attribute{Name: f.Name, Value: value})
			}
		}
	}
	if len(attributes) == 0 {
		r.fault(n.Pos, "write attributes: {ip: 203.0.113.7}", "nothing is known of the request")
	}
	if err := s.Request.SetAttributes(attributes); err != nil {
		r.fault(n.Pos, "", "%v", err)
	}
}

func fieldNames(n *policy.Node) []string {
	var list []string
	for _, f := range n.Fields {
		list = append(list, f.Name)
	}
	return list
}

// descriptors reads a request as Envoy sends it: a list of descriptors, each the keys and values of its entries.
func (r *reader) descriptors(s *Step, n *policy.Node) {
	if n.Kind != policy.List || len(n.Items) == 0 || len(n.Items) > descriptors.MaxDescriptors {
		r.fault(n.Pos, "write descriptors: [{remote_address: 203.0.113.7}, {api_key: k1, plan: free}]", "descriptors are a list of 1 to %d", descriptors.MaxDescriptors)
		return
	}
	for _, item := range n.Items {
		var d descriptors.Descriptor
		if r.fields(item, "a descriptor", fieldNames(item)) {
			for _, f := range item.Fields {
				d.Entries = append(d.Entries, descriptors.Entry{Key: []byte(f.Name), Value: []byte(r.word(f.Value))})
			}
		}
		if len(d.Entries) > descriptors.MaxEntries {
			r.fault(item.Pos, "", "a descriptor has at most %d entries", descriptors.MaxEntries)
		}
		s.Request.Descriptors = append(s.Request.Descriptors, d)
	}
}
