package simulate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Field says that what a policy file knows as Name stands in the log as Source: a key of a JSON line, with dots between those of
// nested objects, or a name of clfNames. Name is an attribute or an entry key, or one of time, status and cost.
type Field struct {
	Name, Source string
}

// ParseField reads NAME=SOURCE.
func ParseField(text string) (Field, error) {
	name, source, ok := strings.Cut(text, "=")
	if !ok || name == "" || source == "" {
		return Field{}, errors.New("must be NAME=SOURCE")
	}
	return Field{Name: name, Source: source}, nil
}

// The names of Fields that are no entries.
const (
	fieldTime   = "time"
	fieldStatus = "status"
	fieldCost   = "cost"
)

// clfNames are the parts of a line in common log format: also the names by which Fields know them. What follows the status and the size
// is combined log format, and what comes behind that has names of its own.
var clfNames = []string{
	"host", "ident", "user", "time", "request", "response_code", "bytes_sent", "referer", "user_agent",
	"extra1", "extra2", "extra3", "extra4", "extra5", "extra6", "extra7", "extra8", "extra9",
}

// usual are the Fields that need not be given. Beside these, whatever has the name of an entry is that entry.
var usual = []Field{
	{fieldTime, "start_time"},
	{fieldStatus, "response_code"},
	{"remote_address", "downstream_remote_address"},
	{"remote_address", "downstream_remote_address_without_port"},
	{"method", ":method"},
	{"path", ":path"},
	{"authority", ":authority"},
}

// usualCLF are the same for common log format, as far as they have other names there.
var usualCLF = []Field{
	{fieldTime, "time"},
	{fieldStatus, "response_code"},
	{"remote_address", "host"},
	{"username", "user"},
}

// target is what a field of the log is for. Its place among the targets is its rank: where several give one attribute, the first does.
type target struct {
	name  string
	entry []byte // nil for those that are none
}

// fields finds the targets of a log's fields.
type fields struct {
	targets   []target
	json, clf map[string][]int32
	unused    []string // names that no policy has a use for
}

func newFields(view *policy.View, given []Field) *fields {
	f := &fields{json: map[string][]int32{}, clf: map[string][]int32{}}
	for _, field := range given {
		if f.add(view, field, f.json, f.clf) < 0 {
			f.unused = append(f.unused, field.Name)
		}
	}
	for _, entry := range view.Entries() {
		f.add(view, Field{entry, entry}, f.json, f.clf)
	}
	for _, field := range usual {
		f.add(view, field, f.json)
	}
	for _, field := range usualCLF {
		f.add(view, field, f.clf)
	}
	return f
}

// add gives the place of the field's target; -1 if no policy has a use for it.
func (f *fields) add(view *policy.View, field Field, to ...map[string][]int32) int {
	t := target{name: field.Name}
	switch field.Name {
	case fieldTime, fieldStatus, fieldCost:
	default:
		if view.Attribute([]byte(field.Name)) == "" {
			return -1
		}
		t.entry = []byte(field.Name)
	}
	place := len(f.targets)
	f.targets = append(f.targets, t)
	for _, names := range to {
		names[field.Source] = append(names[field.Source], int32(place))
	}
	return place
}

// String is the field as ParseField reads it.
func (f Field) String() string { return fmt.Sprintf("%s=%s", f.Name, f.Source) }
