package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Whatever the bytes: no panic, faults that can be shown, and an accepted file means the same when it is read again.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/*/*.yaml", "../../config/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, paths, pattern)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policy.Parse("fuzz.yaml", data)
		if err != nil {
			requireShowable(t, err)
			return
		}
		again, err := policy.Parse("fuzz.yaml", data)
		require.NoError(t, err)
		require.Equal(t, file, again)
		if _, err := policy.NewSet([]*policy.File{file}); err != nil {
			requireShowable(t, err)
		}
	})
}

func requireShowable(t *testing.T, err error) {
	t.Helper()
	var faults policy.Faults
	require.True(t, errors.As(err, &faults), "%T is not Faults", err)
	require.NotEmpty(t, faults)
	for _, fault := range faults {
		require.Equal(t, "fuzz.yaml", fault.Pos.File)
		require.NotEmpty(t, fault.Message)
	}
	text := err.Error()
	at := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
	require.Negative(t, at, "a terminal would act on a control character in %q", text)
}
