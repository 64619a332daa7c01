package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func ExampleFormatWindow() {
	for _, micros := range []int64{60e6, 5400e6, 36 * 3600e6, 250e3, 1500} {
		fmt.Println(policy.FormatWindow(micros))
	}
	// Output:
	// 1m
	// 1h30m
	// 1d12h
	// 250ms
	// 1.5ms
}

// What is formatted can be written in a policy file, and means the same there.
func TestFormatWindowIsReadBack(t *testing.T) {
	require.Equal(t, "0s", policy.FormatWindow(0))
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(1, 3650*24*3600e6).Draw(t, "micros")
		file, err := policy.Parse("a.yaml", []byte(with(logFile, "window: "+policy.FormatWindow(micros))))
		require.NoError(t, err)
		require.Equal(t, micros, file.Policies[0].Numbers.Window)
	})
}
