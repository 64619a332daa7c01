package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/bench"
)

func example() *Report {
	l := bench.NewLatencies()
	for i := range 1000 {
		l.Add(time.Duration(i+1) * time.Millisecond)
	}
	value := func(v float64) *float64 { return &v }
	floor := Row{Scenario: "one", Fault: "healthy", Rate: "50%", Wanted: 750, Server: "floor", Calls: 1000, Allowed: 1000, PerSecond: 750, CPU: value(20), OfFloor: value(1)}
	floor.SetLatency(l)
	ours := floor
	ours.Server, ours.CPU, ours.OfFloor, ours.Denied, ours.StoreShare = "envoy-rls", value(15), value(0.75), 250, value(1)
	ours.Invalid = []string{"3 of 1000 calls failed: Unavailable"}
	return &Report{Machine: Machine{CPU: "a CPU", Cores: 2, System: "Linux 6", Go: "go1", Version: "v1"}, Peak: 1500, PeakIs: "planned", Rows: []Row{floor, ours}}
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	r := example()
	require.NoError(t, r.WriteMarkdown(&out))
	require.Equal(t, `a CPU, 2 cores, Linux 6, go1, envoy-rls v1.

100 % is 1500 calls a second: planned.

| scenario | rate        | server    | calls/s | denied | p50       | p95       | p99       | CPU per call | of the floor | by the store |
|----------|-------------|-----------|---------|--------|-----------|-----------|-----------|--------------|--------------|--------------|
| one      | 50% (750/s) | floor     | 750     | 0 %    | 500.22 ms | 950.27 ms | 990.21 ms | 20.0 us      | 1.00         |              |
| one      | 50% (750/s) | envoy-rls | 750     | 25 %   | 500.22 ms | 950.27 ms | 990.21 ms | 15.0 us      | 0.75         | 100.00 %     |

NOT VALID: one, 50% (750/s), envoy-rls: 3 of 1000 calls failed: Unavailable
`, out.String())
	require.Equal(t, 1, r.Invalid())
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, example().WriteJSON(&out))
	var back Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, example().Rows, back.Rows)
	require.NotContains(t, out.String(), "redisCPU", "what is not known is left out")
}

// wellFormed fails unless a file is XML.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestPlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	r := example()
	r.Rows[0].Server = `<floor & "more">`
	files, err := r.WriteSVG(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"latency-one-50-750-s.svg", "cpu.svg"}, files)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f))
		require.NoError(t, err)
		wellFormed(t, text)
		require.NotContains(t, string(text), "NaN")
		again := t.TempDir()
		_, err = r.WriteSVG(again)
		require.NoError(t, err)
		same, err := os.ReadFile(filepath.Join(again, f))
		require.NoError(t, err)
		require.Equal(t, string(text), string(same))
	}
	text, err := os.ReadFile(filepath.Join(dir, files[0]))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), "<polyline"))
	// From 1 ms (3 of the bounds' 3 to 6 tens) at 0 % to 1 s at 99.9 %.
	require.Contains(t, string(text), `points="70.0,340.0 `)
	require.Contains(t, string(text), "437.5,44.0\"")

	_, err = r.WriteSVG(filepath.Join(dir, files[0]))
	require.Error(t, err, "a file is in the way")
}

func TestBars(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteBars(&out, "t", "%.2f", []Bar{{"a", 1, 0}, {"b", 2, 4}, {"c", -1, 0}}))
	wellFormed(t, out.Bytes())
	require.Contains(t, out.String(), `width="75.0"`, "1 of 4 of 300 pixels")
	require.Contains(t, out.String(), `width="150.0"`)
	require.Contains(t, out.String(), "2.00, at most 4.00")

	out.Reset()
	require.NoError(t, WriteBars(&out, "nothing", "%.2f", nil))
	require.NoError(t, WriteCurves(&out, "nothing", nil))
}

// Scenarios may be called anything: each has its plot, and the table stays one.
func TestHostileNames(t *testing.T) {
	r := Report{}
	for _, name := range []string{"a|b", "a<b", "a b", "a\nb", strings.Repeat("x", 500)} {
		r.Rows = append(r.Rows, Row{Scenario: name, Rate: "closed", Server: "service"})
	}
	dir := t.TempDir()
	files, err := r.WriteSVG(dir)
	require.NoError(t, err)
	require.Len(t, files, len(r.Rows))
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(files))), len(files))
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		var image struct{}
		require.NoError(t, xml.Unmarshal(text, &image), name)
	}
	var table bytes.Buffer
	require.NoError(t, r.WriteMarkdown(&table))
	require.Contains(t, table.String(), `| a\|b `)
	require.Contains(t, table.String(), "| a b ")
	require.NotContains(t, table.String(), "a\nb")
}
