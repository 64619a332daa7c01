package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestFaultsAreBounded: a file of something else altogether has a fault in every line, and gives an error that can be read.
func TestFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	for range 1500 {
		b.WriteString("- {id: 7, what: is, this: file}\n")
	}
	lines := b.String()
	for name, text := range map[string]string{
		"policies": "policies:\n" + lines,
		"one line": "policies: [" + strings.Repeat("{id: 7, what: is}, ", 1500) + "]\n",
		"ids":      "policies:\n" + strings.Repeat("  - {id: a, key: [ip]"+tail, 300),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Load(directory(t, map[string]string{"a.yaml": text, "b.yaml": text}))
			var faults policy.Faults
			require.True(t, errors.As(err, &faults))
			require.Len(t, faults, 101)
			require.Less(t, len(err.Error()), 100_000)
			require.ErrorContains(t, err, "too many faults: these are the first 100")
		})
	}
}

// TestFaultsHideAPIKeys: the line that a fault quotes may hold a key.
func TestFaultsHideAPIKeys(t *testing.T) {
	for _, match := range []string{
		"apiKey: s3cret", `apiKey: "s3cret"`, "apiKey: 's3cret'", "apiKey: [s3cret, s3cret2]", `"apiKey": s3cret`, "apiKey: s3cret*", "api_key: s3cret", "x-api-key: s3cret", "apikey: s3cret",
	} {
		_, err := policy.Parse("p.yaml", []byte("policies:\n  - {id: p, key: [apiKey], wrong: field, match: {"+match+"}}\n"))
		require.ErrorContains(t, err, "wrong")
		require.NotContains(t, err.Error(), "s3cret", match)
		require.Contains(t, err.Error(), "key: [apiKey], wrong: field", "the rest is shown")
	}
	_, err := policy.Parse("p.yaml", []byte("policies:\n  - {id: p, match: {apiKey: ak_5b11618c2e440278}, wrong: field}\n"))
	require.ErrorContains(t, err, "ak_5b11618c2e440278", "a hash is no secret")
}
