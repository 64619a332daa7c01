package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		stat string
		want time.Duration
		fail bool
	}{
		"plain":                 {"1 (a) S 1 1 1 0 -1 4194560 1 0 0 0 12 3 0 0 20 0 1", 150 * time.Millisecond, false},
		"blanks in the command": {"1 (a b) c) S 1 1 1 0 -1 4194560 1 0 0 0 100 0 0 0 20 0 1", time.Second, false},
		"cut off":               {"1 (a) S 1 1 1 0 -1 4194560 1 0 0 0 12", 0, true},
		"no number":             {"1 (a) S 1 1 1 0 -1 4194560 1 0 0 0 x 3 0 0 20 0 1", 0, true},
		"empty":                 {"", 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(test.stat)
			require.Equal(t, test.fail, err != nil, "error %v", err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestMedianAndQuantile(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 2.5, median([]float64{9, 1, 2, 3}))

	require.Zero(t, quantile(nil, 0.5))
	values := make([]time.Duration, 101)
	for i := range values {
		values[i] = time.Duration(i)
	}
	require.Equal(t, time.Duration(50), quantile(values, 0.50))
	require.Equal(t, time.Duration(99), quantile(values, 0.99))
	require.Equal(t, time.Duration(100), quantile(values, 1))
}

func TestTable(t *testing.T) {
	one := func(cpu time.Duration, denied int) []sample {
		return []sample{{
			calls: 1000, denied: denied, elapsed: time.Second, cpu: cpu,
			p50: 100 * time.Microsecond, p99: 900 * time.Microsecond,
		}}
	}
	var out bytes.Buffer
	rows := []row{{scenario: scenario{name: "one policy"}, floor: one(20*time.Millisecond, 0), ours: one(15*time.Millisecond, 250)}}
	require.NoError(t, printTable(&out, rows))
	require.Equal(t, `| calls      | server    | CPU per call | of the floor | denied | calls/s | p50    | p99    |
|---         |---        |---           |---           |---     |---      |---     |---     |
| one policy | floor     | 20.0 us      | 1.00         | 0 %    | 1000    | 100 us | 900 us |
|            | envoy-rls | 15.0 us      | 0.75         | 25 %   | 1000    | 100 us | 900 us |
`, out.String())
}

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 5, o.rounds)
	for _, args := range []string{"-rounds 0", "-time 0s", "-workers 0", "-connections 0", "-keys 0", "extra", "-unknown"} {
		_, err := parse(strings.Fields(args), io.Discard)
		require.Error(t, err, args)
	}
}

func TestWithoutTuning(t *testing.T) {
	got := withoutTuning([]string{"PATH=/bin", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=x=1", "ENVOY_RLS_STORE=redis", "GOMAXPROCS=2"})
	require.Equal(t, []string{"PATH=/bin", "GOMAXPROCS=2"}, got)
}

// TestBenchmarkRuns runs the whole of it for a moment: both servers come up, every scenario is decided by its policies, and
// the table has its rows. It says nothing about speed.
func TestBenchmarkRuns(t *testing.T) {
	var out, log bytes.Buffer
	err := run(t.Context(), strings.Fields("-rounds 1 -time 200ms -warm-up 100ms -workers 8 -keys 100"), &out, &log)
	require.NoError(t, err, log.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2+2*len(scenarios()), out.String())
	for i, s := range scenarios() {
		require.Contains(t, lines[2+2*i], s.name)
		require.Contains(t, lines[3+2*i], "envoy-rls")
	}
}

func TestABinaryThatCannotStart(t *testing.T) {
	err := run(t.Context(), []string{"-server", t.TempDir() + "/missing"}, io.Discard, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}
