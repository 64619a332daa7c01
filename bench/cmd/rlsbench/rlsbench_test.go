package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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
	one := func(cpu time.Duration, denied int, store usage) []sample {
		return []sample{{
			calls: 1000, denied: denied, elapsed: time.Second, cpu: cpu, store: store,
			p50: 100 * time.Microsecond, p99: 900 * time.Microsecond,
		}}
	}
	rows := []row{{scenario: scenario{name: "one policy"}, sides: []side{
		{"floor", one(20*time.Millisecond, 0, usage{})},
		{"envoy-rls", one(15*time.Millisecond, 250, usage{8 * time.Millisecond, 750, 100})},
		{oneByOne, one(30*time.Millisecond, 0, usage{16 * time.Millisecond, 1000, 1000})},
	}}}
	var out bytes.Buffer
	require.NoError(t, printRedisTable(&out, rows))
	require.Equal(t, `| calls      | server     | CPU per call | of the floor | Redis CPU per call | envoy-rls to it | scripts per call | batch | denied | calls/s | p50    | p99    |
|---         |---         |---           |---           |---                 |---              |---               |---    |---     |---      |---     |---     |
| one policy | floor      | 20.0 us      | 1.00         |                    |                 |                  |       | 0 %    | 1000    | 100 us | 900 us |
|            | envoy-rls  | 15.0 us      | 0.75         | 8.00 us            |                 | 0.7500           | 7.5   | 25 %   | 1000    | 100 us | 900 us |
|            | one by one | 30.0 us      | 1.50         | 16.00 us           | 0.50            | 1.0000           | 1.0   | 0 %    | 1000    | 100 us | 900 us |
`, out.String())

	out.Reset()
	rows[0].sides = rows[0].sides[:2]
	require.NoError(t, printTable(&out, rows))
	require.Equal(t, `| calls      | server    | CPU per call | of the floor | denied | calls/s | p50    | p99    |
|---         |---        |---           |---           |---     |---      |---     |---     |
| one policy | floor     | 20.0 us      | 1.00         | 0 %    | 1000    | 100 us | 900 us |
|            | envoy-rls | 15.0 us      | 0.75         | 25 %   | 1000    | 100 us | 900 us |
`, out.String())
}

func TestBars(t *testing.T) {
	one := func(server string, cpu, store time.Duration, scripts int) side {
		return side{server, []sample{{calls: 1000, cpu: cpu, store: usage{cpu: store, scripts: scripts}}}}
	}
	r := row{
		scenario: scenario{name: "one", bars: bars{floor: 1.3, empty: 5.2, oneByOne: 0.65, scripts: 0.01}},
		sides: []side{
			one("floor", 20*time.Millisecond, 0, 0),
			one("envoy-rls", 24*time.Millisecond, 8*time.Millisecond, 11),
			one(emptyScript, 0, 2*time.Millisecond, 0),
			one(oneByOne, 0, 10*time.Millisecond, 0),
		},
	}
	var out bytes.Buffer
	require.Equal(t, 2, printBars(&out, []row{r, {sides: r.sides}}))
	require.Equal(t, `one: CPU, of the floor's: 1.2, at most 1.3: met
one: Redis CPU, of an empty script's: 4, at most 5.2: met
one: Redis CPU, of single calls': 0.8, at most 0.65: MISSED
one: scripts per call: 0.011, at most 0.01: MISSED
`, out.String())
}

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 5, o.rounds)
	for _, args := range []string{"-rounds 0", "-time 0s", "-workers 0", "-connections 0", "-keys 0", "-store disk", "-rate -1", "extra", "-unknown"} {
		_, err := parse(strings.Fields(args), io.Discard)
		require.Error(t, err, args)
	}
}

func TestWithoutTuning(t *testing.T) {
	got := withoutTuning([]string{"PATH=/bin", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=x=1", "ENVOY_RLS_STORE=redis", "GOMAXPROCS=2"})
	require.Equal(t, []string{"PATH=/bin", "GOMAXPROCS=2"}, got)
}

const briefly = "-rounds 1 -time 200ms -warm-up 100ms -workers 8 -keys 100"

// TestBenchmarkRuns runs the whole of it for a moment: both servers come up, every scenario is decided by its policies, and
// the table has its rows. It says nothing about speed.
func TestBenchmarkRuns(t *testing.T) {
	var out, log bytes.Buffer
	err := run(t.Context(), strings.Fields(briefly), &out, &log)
	require.NoError(t, err, log.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2+2*len(scenarios(storeMemory)), out.String())
	for i, s := range scenarios(storeMemory) {
		require.Contains(t, lines[2+2*i], s.name)
		require.Contains(t, lines[3+2*i], "envoy-rls")
	}
}

// TestBenchmarkRunsOnRedis is the same with a Redis and the variants. What they ask of Redis is what they are said to.
func TestBenchmarkRunsOnRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("ENVOY_RLS_NEED_REDIS") == "" {
		t.Skip("needs redis-server")
	}
	var out, log bytes.Buffer
	err := run(t.Context(), strings.Fields("-store redis "+briefly), &out, &log)
	require.NoError(t, err, log.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")[2:]
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "at most") })
	for _, s := range scenarios(storeRedis) {
		servers := append([]string{"floor", "envoy-rls"}, s.against...)
		require.Contains(t, lines[0], s.name)
		for i, server := range servers {
			cells := strings.Split(lines[i], "|")
			require.Equal(t, server, strings.TrimSpace(cells[2]))
			if server == unmerged || server == oneByOne {
				scripts, err := strconv.ParseFloat(strings.TrimSpace(cells[7]), 64)
				require.NoError(t, err)
				require.InDelta(t, 1, scripts, 0.02, "scripts per call, with a heartbeat now and then: %s", lines[i])
			}
			if server == oneByOne {
				require.Equal(t, "1.0", strings.TrimSpace(cells[8]), "batch: %s", lines[i])
			}
		}
		lines = lines[len(servers):]
	}
	require.Empty(t, lines)
}

func TestParseInfo(t *testing.T) {
	got, err := parseInfo("# Stats\r\ntotal_reads_processed:12\r\n# Commandstats\r\ncmdstat_evalsha:calls=34,usec=5,usec_per_call=1.00\r\n")
	require.NoError(t, err)
	require.Equal(t, usage{scripts: 34, reads: 12}, got)
	got, err = parseInfo("total_reads_processed:12\r\n")
	require.NoError(t, err)
	require.Equal(t, usage{reads: 12}, got)
	_, err = parseInfo("total_reads_processed:many\r\n")
	require.Error(t, err)
}

func TestAVariantNeedsTheTextThatItChanges(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "pkg", "redisbackend")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two"), 0o600))
	_, err := variant{name: "v", edits: []edit{{"a.go", "one", "1"}}}.overlay(root, t.TempDir())
	require.NoError(t, err)
	for _, from := range []string{"two", "three"} {
		_, err = variant{name: "v", edits: []edit{{"a.go", from, "1"}}}.overlay(root, t.TempDir())
		require.ErrorContains(t, err, "want 1")
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.Equal(t, start, load{workers: 4}.pace(start).wait(start), "no rate: at once")
		p := load{workers: 4, rate: 8}.pace(start) // a call each 500 ms
		first := p.wait(start)
		require.Equal(t, first, time.Now())
		require.Less(t, first.Sub(start), 500*time.Millisecond)
		time.Sleep(800 * time.Millisecond)
		late := time.Now()
		require.Equal(t, late, p.wait(late), "a late one goes at once")
		require.Equal(t, first.Add(time.Second), p.wait(late), "and the next when it was due anyway")
	})
}

func TestABinaryThatCannotStart(t *testing.T) {
	err := run(t.Context(), []string{"-server", t.TempDir() + "/missing"}, io.Discard, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}
