package doctest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/policy-reference.md anew")

const referencePath = "docs/policy-reference.md"

// TestPolicyReferenceIsOfTheSchema: docs/policy-reference.md is what the schema says. After a change of the schema:
//
//	go test ./internal/doctest -run PolicyReference -update
func TestPolicyReferenceIsOfTheSchema(t *testing.T) {
	var s schemaNode
	require.NoError(t, json.Unmarshal([]byte(readFile(t, "config/policies.schema.json")), &s))
	text := policyReference(t, &s)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(projectRoot, referencePath), []byte(text), 0o644)) //nolint:gosec // a file of the repository
	}
	require.Equal(t, text, readFile(t, referencePath), "the reference is not what the schema says; see the comment of this test")
}

// schemaNode is a part of a JSON Schema, as far as the reference shows it.
type schemaNode struct {
	Ref         string                `json:"$ref"`
	Comment     string                `json:"$comment"`
	Description string                `json:"description"`
	Type        any                   `json:"type"` // a word or several
	Enum        []string              `json:"enum"`
	Default     any                   `json:"default"`
	Minimum     *json.Number          `json:"minimum"`
	Above       *json.Number          `json:"exclusiveMinimum"`
	Maximum     *json.Number          `json:"maximum"`
	MaxLength   *json.Number          `json:"maxLength"`
	Pattern     string                `json:"pattern"`
	Items       *schemaNode           `json:"items"`
	Required    []string              `json:"required"`
	Properties  fields                `json:"properties"`
	Defs        map[string]schemaNode `json:"$defs"`
	Others      json.RawMessage       `json:"additionalProperties"` // false, or what they are
}

// fields are properties in the order in which the schema has them.
type fields []field

type field struct {
	name string
	schemaNode
}

// UnmarshalJSON implements json.Unmarshaler. A property may be false.
func (f *fields) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		one := field{name: name.(string)}
		if string(raw) != "false" {
			if err := json.Unmarshal(raw, &one.schemaNode); err != nil {
				return err
			}
		}
		*f = append(*f, one)
	}
	return nil
}

// resolve gives a node with what its $ref points to; what it says itself wins.
func (s *schemaNode) resolve(n schemaNode) schemaNode {
	name, ok := strings.CutPrefix(n.Ref, "#/$defs/")
	if !ok {
		return n
	}
	of := s.resolve(s.Defs[name])
	if n.Description != "" {
		of.Description = n.Description
	}
	if n.Comment != "" {
		of.Comment = n.Comment
	}
	if n.Default != nil {
		of.Default = n.Default
	}
	return of
}

func policyReference(t *testing.T, s *schemaNode) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Policy reference\n\nEvery field of a policy file, from [its schema](../config/policies.schema.json), which editors that know YAML schemas can use. " +
		"What they mean together is said in\n[policies.md](policies.md); a file that uses them all is [config/policies.yaml](../config/policies.yaml). " +
		"Unknown and repeated fields are refused, each with file, line, column and the\nnearest valid name.\n")
	for _, part := range []struct {
		heading, says string
		node          schemaNode
	}{
		{"A file", "", *s},
		{"A policy", "A token bucket needs `capacity` and one of the four refills, a sliding log `limit` and `window`.\n\n", s.Defs["policy"]},
		{"An override", "It needs at least one of the numbers.\n\n", s.Defs["override"]},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s| field | value | default | meaning | refused |\n|---|---|---|---|---|\n", part.heading, part.says)
		require.NotEmpty(t, part.node.Properties, part.heading)
		for _, f := range part.node.Properties {
			n := s.resolve(f.schemaNode)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
				f.name, s.values(n), defaultOf(n, slices.Contains(part.node.Required, f.name)), cell(n.Description), cell(strings.TrimPrefix(n.Comment, "refused: ")))
		}
	}
	var value schemaNode
	require.NoError(t, json.Unmarshal(s.Defs["match"].Others, &value))
	fmt.Fprintf(&b, "\n## The values of a match\n\n%s\n", cell(value.Description))
	return b.String()
}

// cell makes a text fit into a cell of a table.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text) }

// values says what a field may hold.
func (s *schemaNode) values(n schemaNode) string {
	switch {
	case len(n.Enum) > 0:
		return "`" + strings.Join(n.Enum, "`, `") + "`"
	case n.Items != nil:
		return "list of " + plural(s.values(s.resolve(*n.Items)))
	case n.Type == "boolean":
		return "`true`, `false`"
	case n.Type == "integer":
		return "whole number" + bounds(n)
	case n.Type == "number":
		return "number, decimals allowed" + bounds(n)
	case n.Type == "object" && n.Properties != nil:
		return "mapping, see below"
	case n.Type == "object":
		return "mapping of names to values"
	case n.MaxLength != nil:
		return "text of at most " + n.MaxLength.String() + " characters of printable ASCII"
	case strings.Contains(n.Pattern, "A-Za-z"):
		return "name of an attribute"
	case strings.HasPrefix(n.Pattern, "^([0-9]+"):
		return "time: `500ms`, `60s`, `1h30m`, `30d`"
	case strings.HasPrefix(n.Pattern, "^[0-9]{4}"):
		return "date, or time of RFC 3339"
	}
	return "text"
}

func plural(values string) string {
	if rest, ok := strings.CutPrefix(values, "name of an attribute"); ok {
		return "names of attributes" + rest
	}
	if rest, ok := strings.CutPrefix(values, "mapping"); ok {
		return "mappings" + rest
	}
	return values
}

func bounds(n schemaNode) string {
	var all []string
	if n.Minimum != nil {
		all = append(all, "at least "+n.Minimum.String())
	}
	if n.Above != nil {
		all = append(all, "above "+n.Above.String())
	}
	if n.Maximum != nil {
		all = append(all, "at most "+n.Maximum.String())
	}
	if len(all) == 0 {
		return ""
	}
	return ", " + strings.Join(all, ", ")
}

func defaultOf(n schemaNode, required bool) string {
	switch d := n.Default.(type) {
	case string:
		return "`" + d + "`"
	case bool:
		return "`" + strconv.FormatBool(d) + "`"
	case float64:
		return "`" + strconv.FormatFloat(d, 'f', -1, 64) + "`"
	}
	if required {
		return "required"
	}
	return ""
}
