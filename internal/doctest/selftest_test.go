package doctest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The check itself is checked: each of these documents has one fault, and it must be found.
func TestFindsFaults(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"policy with an unknown field", "```yaml\npolicies:\n  - id: a\n    capcity: 20\n```\n", "capcity"},
		{"policy without a failure mode", "```yaml\npolicies:\n  - {id: a, key: [ip], algorithm: token-bucket, capacity: 1, refillPerMinute: 1}\n```\n", "onStoreFailure"},
		{"broken YAML", "```yaml\npolicies: [\n```\n", "yaml block"},
		{"unknown part of an Envoy configuration", "```yaml\nhttp_filter: []\n```\n", "http_filter"},
		{"command that fails", "```sh\ntrue\nfalse\ntrue\n```\n", "exit status 1"},
		{"command that does not exist", "```sh\nenvoy-rsl version\n```\n", "not found"},
		{"make target that does not exist", "```sh\nmake nothing-of-the-kind\n```\n", "No rule"},
		{"package that does not exist", "```sh\ngo test ./pkg/nothing\n```\n", "nothing"},
		{"other output", "```console\n$ echo one two\none three\n```\n", "the document says"},
		{"output cut short", "```console\n$ printf 'a\\nb\\n'\na\n```\n", "the document says"},
		{"failure not shown", "```console\n$ false\n$ true\n```\n", "exit code 1"},
		{"other exit code", "```console\n$ (exit 3)\n$ echo $?\n1\n```\n", "the document says"},
		{"output before a command", "```console\nout\n$ true\n```\n", "starts with output"},
		{"command hidden in text", "```text\n$ curl localhost\n```\n", "holds a command"},
		{"statement that fails", "```sql\nSELECT 1;\nSELECT * FROM nowhere;\n```\n", "nowhere"},
		{"command that the database refuses", "```sh postgres\nenvoy-rls policies show active\n```\n", "no policies have been published"},
		{"unknown kind", "```bash\ntrue\n```\n", "unknown kind"},
		{"unknown mark", "```sh skip\ntrue\n```\n", "unknown mark"},
		{"invalid JSON", "```json\n{\"a\":}\n```\n", "not valid JSON"},
		{"Go without a file", "```go\nx := 1\n```\n", "name the Go file"},
		{"Go that no file has", "```go internal/doctest/doc.go\nx := 1\n```\n", "has no such lines"},
		{"Go in another order", "```go internal/doctest/golang_test.go\nrest := plain(string(text))\n// …\npackage doctest\n```\n", "has no such lines"},
		{"half a line of Go", "```go internal/doctest/golang_test.go\nrest := plain\n```\n", "has no such lines"},
		{"Go file that does not exist", "```go nowhere.go\nx := 1\n```\n", "no such file"},
		{"fence never closed", "```sh\ntrue\n", "never closed"},
		{"dead link", "see [there](nowhere.md)\n", "no such file"},
		{"dead anchor", "# Title\n\nsee [there](#other)\n", "no such heading"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newChecker(t)
			faults := c.check(t.Context(), "test.md", test.text)
			if len(c.notChecked) > 0 {
				missing(t)
			}
			require.Len(t, faults, 1)
			require.ErrorContains(t, faults[0], test.want)
		})
	}
}

// And what is right is not refused.
func TestAcceptsSound(t *testing.T) {
	text, err := os.ReadFile("testdata/sound.md")
	require.NoError(t, err)
	c := newChecker(t)
	require.Empty(t, c.check(t.Context(), "internal/doctest/testdata/sound.md", string(text)))
	require.Equal(t, map[string]int{"sh": 3, "console": 3, "sql": 1, "yaml": 2, "json": 1, "text": 1, "go": 1}, c.counts)
}

func TestRefusesWrongEnvoyConfig(t *testing.T) {
	c := newChecker(t)
	if c.envoy == "" {
		missing(t)
	}
	faults := c.check(t.Context(), "test.md", "```yaml\nuse_remote_adress: true\n```\n")
	require.Len(t, faults, 1, "a key that no part has")
	faults = c.check(t.Context(), "test.md", "```yaml\nrate_limits: [{actions: [{remote_adress: {}}]}]\n```\n")
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], "remote_adress")
}
