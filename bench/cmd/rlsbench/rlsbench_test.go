package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 5, o.rounds)
	for _, args := range []string{"-rounds 0", "-time 0s", "-warm-up 0s", "-workers 0", "-connections 0", "-keys 0", "-many-keys 0", "-rate -1", "extra", "-unknown"} {
		_, err := parse(strings.Fields(args), io.Discard)
		require.Error(t, err, args)
	}
}

func TestRowsCanBeChosen(t *testing.T) {
	names := func(text string) (list []string) {
		chosen, err := options{rows: text}.chosen()
		require.NoError(t, err)
		for _, r := range chosen {
			list = append(list, r.name)
		}
		return list
	}
	require.Len(t, names(""), len(rows()))
	require.Equal(t, []string{"embedded, 1 policy", "memory, embedded", "memory, Redis"}, names("embedded, 1; memory,"))
	_, err := options{rows: "nothing of the kind"}.chosen()
	require.ErrorContains(t, err, "no row's name")
}

// Every row is held to something, and nothing is held that no row shows.
func TestBarsAndRowsGoTogether(t *testing.T) {
	all, err := readBars(barsFile)
	require.NoError(t, err)
	for _, r := range rows() {
		require.NotEmpty(t, all[r.name], r.name)
		for what, l := range all[r.name] {
			require.NotEmpty(t, explained(what))
			require.True(t, l.band == 0 || l.band >= l.most, "%s: %s", r.name, what)
		}
		delete(all, r.name)
		s, err := r.open(1000)
		require.NoError(t, err, r.name)
		require.LessOrEqual(t, s.Keys.Count, uint64(1000))
		require.NotEmpty(t, s.Policies)
	}
	require.Empty(t, all, "of no row")
}

func TestBarsFaults(t *testing.T) {
	for text, want := range map[string]string{
		`a: { sever: { most: 1, band: 2 } }`:  `no field "sever" (did you mean "server"?)`,
		`a: { server: { most: 1, bend: 2 } }`: `no field "bend"`,
		`a: { server: { most: 1 } }`:          "write {most: 1.2, band: 1.8}",
		`a: { server: { most: 0, band: 2 } }`: "write {most: 1.2, band: 1.8}",
		`a: { server: 3 }`:                    "is written as name: value",
	} {
		_, err := readBars([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestBar(t *testing.T) {
	b := newBar("r", ofServer, 1.2, limit{1.2, 1.8})
	require.True(t, b.Met && b.inBand())
	require.Equal(t, "r: CPU per call, of the floor's: 1.2, at most 1.2: met", b.String())
	b = newBar("r", ofServer, 1.21, limit{1.2, 1.8})
	require.True(t, !b.Met && b.inBand())
	require.Contains(t, b.String(), "MISSED")
	require.False(t, newBar("r", ofServer, 1.81, limit{1.2, 1.8}).inBand())
	require.True(t, newBar("r", ofP99, 90, limit{1, 0}).inBand(), "not looked at")

	l := &lineup{limits: map[string]limits{"r": {ofServer: {1, 2}}}}
	r := &result{row: row{name: "r"}}
	l.add(r, ofServer, math.NaN())
	l.add(r, ofServer, math.Inf(1))
	require.Empty(t, r.bars)
	l.add(r, ofServer, 0)
	l.add(r, ofServer, -3)
	l.add(r, ofServer, (&result{sides: nil}).ofVariant("none"))
	require.Empty(t, r.bars)
	require.Len(t, r.invalid, 5, "0 by 0 is no figure, nor is nothing")
	l.add(r, ofEmpty, 3)
	l.add(r, ofScripts, math.NaN())
	require.Empty(t, r.bars, "the row has no such bar")
	require.Len(t, r.invalid, 5, "nor does it need the figure")
}

// What must not be used meets no bar, and a bar without a figure is not met.
func TestNothingIsMetByWhatIsNotValid(t *testing.T) {
	l := &lineup{limits: map[string]limits{"r": {ofServer: {1, 2}}}}
	r := &result{row: row{name: "r"}}
	l.complete(r)
	require.Equal(t, []string{"CPU per call, of the floor's: not measured"}, r.invalid)

	r = &result{row: row{name: "r"}}
	l.add(r, ofServer, 0.5)
	l.complete(r)
	require.Empty(t, r.invalid)
	o := &outcome{}
	o.add(r)
	require.True(t, o.Bars[0].Met)
	require.NoError(t, o.verdict(true))

	r.invalid = []string{"floor: calls failed"}
	o = &outcome{}
	o.add(r)
	require.False(t, o.Bars[0].Met)
	require.NotContains(t, o.table(), "yes")
	require.Error(t, o.verdict(false))
}

// sampleOf is a second of calls.
func sampleOf(cpu, redis time.Duration, denied, scripts int64) *lab.Sample {
	l := bench.NewLatencies()
	for range 1000 {
		l.Add(100 * time.Microsecond)
	}
	s := &lab.Sample{Result: &bench.Result{Allowed: 1000 - denied, Denied: denied, Elapsed: time.Second, Latency: l}, CPU: cpu}
	s.Nodes = []lab.NodeUse{{Primary: true, CPU: redis, Scripts: scripts, Reads: 100}, {CPU: time.Hour}}
	return s
}

// outcomeOf is a row of a floor, envoy-rls and a variant, each measured three times, once far off.
func outcomeOf() *outcome {
	enter := func(name string, redis *lab.Redis, s *lab.Sample) *side {
		return &side{Side: &lab.Side{Name: name, Redis: redis}, samples: []*lab.Sample{s, sampleOf(time.Second, time.Second, 0, 5), s}}
	}
	redis := &lab.Redis{}
	r := &result{row: row{name: "one policy"}, sides: []*side{
		enter(floorProgram, nil, sampleOf(20*time.Millisecond, 0, 0, 0)),
		enter(envoyRLS, redis, sampleOf(15*time.Millisecond, 8*time.Millisecond, 250, 750)),
		enter(oneByOne, redis, sampleOf(30*time.Millisecond, 16*time.Millisecond, 0, 1000)),
	}}
	r.bars = []bar{newBar("one policy", ofServer, r.ofFloor(r.sides[1]), limit{0.8, 1}), newBar("one policy", ofOneByOne, r.ofVariant(oneByOne), limit{0.4, 1})}
	o := &outcome{Machine: report.Machine{CPU: "a CPU", Cores: 2, System: "Linux 6", Go: "go1", Version: "v1"}}
	o.add(r)
	return o
}

// TestRatiosOfTheSameRound: a machine that becomes slower between two servers of a round changes the ratio of that one, not that of their medians.
func TestRatiosOfTheSameRound(t *testing.T) {
	of := func(cpus ...int) *side {
		s := &side{}
		for _, cpu := range cpus {
			s.samples = append(s.samples, sampleOf(time.Duration(cpu)*time.Millisecond, time.Duration(cpu)*time.Millisecond, 0, 1))
		}
		return s
	}
	floor, ours := of(20, 20, 20, 30, 30), of(10, 10, 15, 15, 15)
	floor.Side = &lab.Side{Name: floorProgram}
	r := &result{sides: []*side{floor, ours}}
	require.InDelta(t, 0.5, r.ofFloor(ours), 1e-9)
	require.InDelta(t, 0.5, r.ofVariant(floorProgram), 1e-9)
}

func TestOutcome(t *testing.T) {
	dir := t.TempDir()
	to := options{json: filepath.Join(dir, "o.json"), markdown: filepath.Join(dir, "o.md"), svg: filepath.Join(dir, "plots")}
	var out bytes.Buffer
	o := outcomeOf()
	require.NoError(t, o.write(to, &out))
	require.Equal(t, `a CPU, 2 cores, Linux 6, go1, envoy-rls v1.

| calls      | server     | CPU per call | of the floor | Redis CPU per call | envoy-rls to it | scripts per call | batch | denied | calls/s | p50     | p99     |
|------------|------------|--------------|--------------|--------------------|-----------------|------------------|-------|--------|---------|---------|---------|
| one policy | floor      | 20.0 us      | 1.00         |                    |                 |                  |       | 0 %    | 1000    | 0.10 ms | 0.10 ms |
|            | envoy-rls  | 15.0 us      | 0.75         | 8.00 us            |                 | 0.7500           | 7.5   | 25 %   | 1000    | 0.10 ms | 0.10 ms |
|            | one by one | 30.0 us      | 1.50         | 16.00 us           | 0.50            | 1.0000           | 10.0  | 0 %    | 1000    | 0.10 ms | 0.10 ms |

| row        | measured                             | is   | at most | met |
|------------|--------------------------------------|------|---------|-----|
| one policy | CPU per call, of the floor's         | 0.75 | 0.8     | yes |
| one policy | Redis CPU per call, of single calls' | 0.5  | 0.4     | no  |
`, out.String())
	table, err := os.ReadFile(to.markdown)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(table))
	text, err := os.ReadFile(to.json)
	require.NoError(t, err)
	var back outcome
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, o.Lines, back.Lines)
	plots, err := filepath.Glob(filepath.Join(to.svg, "*.svg"))
	require.NoError(t, err)
	require.Len(t, plots, 2)

	require.NoError(t, o.verdict(false))
	require.EqualError(t, o.verdict(true), "1 of 2 bars missed")
	o.add(&result{row: row{name: "other"}, invalid: []string{"floor: calls failed"}})
	require.ErrorContains(t, o.verdict(false), "must not be used")
	require.Contains(t, o.table(), "NOT VALID: other: floor: calls failed")
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

func TestABinaryThatCannotStart(t *testing.T) {
	err := run(t.Context(), []string{"-rows", "memory, embedded", "-server", t.TempDir() + "/missing"}, io.Discard, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-list", "-rows", "embedded, 1"}, &out, io.Discard))
	require.Equal(t, "embedded, 1 policy: CPU per call, of the floor's: at most 0.75\n", out.String())
}

// tries is how often a row is measured before it is a failure that a ratio was in its band in none of them, or that the checks failed in all of them. Each
// takes twice as long as the one before: a machine that does other things as well has moments that say nothing.
const tries = 6

// TestShortForm measures every row, briefly: what must be so of each call is checked, and each ratio must be within its band of bars.yaml. Whether the bars
// themselves are met is for a machine that does nothing else (make bench).
func TestShortForm(t *testing.T) {
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		t.Skip(err)
	}
	o := options{rounds: 3, duration: 200 * time.Millisecond, warmUp: 50 * time.Millisecond, workers: 64, connections: 4, keys: 100_000, manyKeys: 200_000, sameRate: true}
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		o.rounds, o.duration, o.manyKeys = 5, time.Second, 2_000_000
	}
	var log bytes.Buffer
	l, err := newLineup(o, &log)
	require.NoError(t, err)
	defer l.close()
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			l.options = o
			kept := map[string]bool{} // the figures that were in their bands
			for try := 1; ; try++ {
				got, err := r.measure(t.Context(), l, r)
				require.NoError(t, err, log.String())
				require.Len(t, got.bars, len(l.limits[r.name]), "every bar has its figure")
				for _, b := range got.bars {
					t.Logf("%v; band %g", b, b.band)
					if len(got.invalid) == 0 && b.inBand() {
						kept[b.What] = true
					}
				}
				if len(kept) == len(got.bars) {
					return
				}
				require.Less(t, try, tries, "out of the bands or not valid, the last of %d times:\n%s", tries, tableOf(got))
				l.duration *= 2
			}
		})
	}
}

func tableOf(r *result) string {
	o := &outcome{}
	o.add(r)
	return o.table()
}
