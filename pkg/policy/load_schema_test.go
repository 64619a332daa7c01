package policy_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const schemaPath = "../../config/policies.schema.json"

// object is a schema of a mapping, as far as this test looks into it.
type object struct {
	Properties map[string]struct {
		Ref         string   `json:"$ref"`
		Description string   `json:"description"`
		Enum        []string `json:"enum"`
	} `json:"properties"`
	AdditionalProperties bool `json:"additionalProperties"`
}

type schemaFile struct {
	object
	Defs map[string]json.RawMessage `json:"$defs"`
}

func readSchema(t *testing.T) schemaFile {
	t.Helper()
	data, err := os.ReadFile(schemaPath)
	require.NoError(t, err)
	var s schemaFile
	require.NoError(t, json.Unmarshal(data, &s))
	return s
}

func (s schemaFile) def(t *testing.T, name string) (o object) {
	t.Helper()
	require.NoError(t, json.Unmarshal(s.Defs[name], &o))
	return o
}

// The schema and the loader know the same fields, and every field is described.
func TestSchemaHasTheFieldsOfTheLoader(t *testing.T) {
	s := readSchema(t)
	tests := []struct {
		name   string
		schema object
		fields []string
	}{
		{"file", s.object, policy.FileFields()},
		{"policy", s.def(t, "policy"), policy.PolicyFields()},
		{"override", s.def(t, "override"), policy.OverrideFields()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.ElementsMatch(t, tt.fields, slices.Collect(maps.Keys(tt.schema.Properties)))
			require.False(t, tt.schema.AdditionalProperties)
			for name, p := range tt.schema.Properties {
				description := p.Description
				if description == "" {
					var shared struct{ Description string }
					require.NoError(t, json.Unmarshal(s.Defs[strings.TrimPrefix(p.Ref, "#/$defs/")], &shared), name)
					description = shared.Description
				}
				require.NotEmpty(t, description, name)
			}
		})
	}
}

func TestSchemaHasTheWordsOfTheLoader(t *testing.T) {
	got := map[string][]string{}
	for name, p := range readSchema(t).def(t, "policy").Properties {
		if len(p.Enum) > 0 {
			got[name] = p.Enum
		}
	}
	require.Equal(t, policy.Words(), got)
}

// A field that the loader claims to know but does not read would be accepted with any value.
func TestEveryFieldIsRead(t *testing.T) {
	valid := map[string]string{
		"file":     "policies: []\n",
		"policy":   "policies:\n  - id: a\n    key: [ip]\n",
		"override": "policies:\n  - id: a\n    key: [ip]\n    overrides:\n      - comment: b\n",
	}
	indent := map[string]string{"file": "", "policy": "    ", "override": "        "}
	for kind, fields := range map[string][]string{
		"file": policy.FileFields(), "policy": policy.PolicyFields(), "override": policy.OverrideFields(),
	} {
		for _, name := range fields {
			t.Run(kind+"/"+name, func(t *testing.T) {
				text := ""
				for _, line := range strings.SplitAfter(valid[kind], "\n") {
					if !strings.Contains(line, " "+name+":") && !strings.HasPrefix(line, name+":") || name == "overrides" {
						text += line
					}
				}
				if kind == "policy" && name == "id" {
					text = "policies:\n  - key: [ip]\n"
				}
				if kind == "override" && name == "comment" {
					text = strings.TrimSuffix(valid[kind], "comment: b\n") + "until: 2030-01-31\n"
				}
				text += indent[kind] + name + ": [[]]\n"
				_, err := policy.Parse("a.yaml", []byte(text))
				line := strings.Count(text, "\n")
				var faults policy.Faults
				require.ErrorAs(t, err, &faults, text)
				found := slices.ContainsFunc(faults, func(f policy.Fault) bool { return f.Pos.Line == line && f.Pos.Column > len(indent[kind])+1 })
				require.True(t, found, "no fault about the value of %s in\n%s\n%v", name, text, err)
			})
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaPath)
	require.NoError(t, err)
	return s
}

// validate judges a YAML text by the schema, as an editor does.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var value any
	require.NoError(t, yaml.Unmarshal(text, &value))
	data, err := json.Marshal(value)
	require.NoError(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	return s.Validate(instance)
}

func TestSchemaAcceptsValidFiles(t *testing.T) {
	s := compileSchema(t)
	paths := []string{"testdata/document.yaml", "../../config/policies.yaml"}
	more, err := filepath.Glob("testdata/valid/*.yaml")
	require.NoError(t, err)
	for _, path := range append(paths, more...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, validate(t, s, data))
			_, err = policy.Load(path)
			require.NoError(t, err)
		})
	}
}

// The default file shows every field.
func TestDefaultFileShowsEveryField(t *testing.T) {
	data, err := os.ReadFile("../../config/policies.yaml")
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(data, []byte("# yaml-language-server: $schema=./policies.schema.json\n")))
	for _, name := range slices.Concat(policy.FileFields(), policy.PolicyFields(), policy.OverrideFields()) {
		require.Regexp(t, `(?m)^[- ]*`+name+`:`, string(data))
	}
}
