package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

// accessLog is a log of two clients: one within the limits, one that asks 40 times within 4 seconds.
func accessLog() string {
	var b strings.Builder
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i := range 40 {
		at := at.Add(time.Duration(i) * 100 * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		fmt.Fprintf(&b, `{"start_time":%q,"method":"GET","path":"/v1","req":{"plan":"free","key":"k1","tenant":"acme"}}`+"\n", at)
		if i%10 == 0 {
			fmt.Fprintf(&b, `{"start_time":%q,"method":"GET","path":"/v1","req":{"plan":"free","key":"k2","tenant":"demo"}}`+"\n", at)
		}
	}
	return b.String() + "not a line\n"
}

var simulateArgs = []string{
	"simulate", "--policies", "../../config/policies.yaml", "--log", "-",
	"--field", "plan=req.plan", "--field", "apiKey=req.key", "--field", "tenant=req.tenant", "--deny-share", "5%",
}

func TestSimulate(t *testing.T) {
	got := envoyRLS(accessLog(), simulateArgs...)
	require.Equal(t, exitOK, got.code, got)
	require.Empty(t, got.errout, "no progress bar where nobody looks")
	golden(t, "simulate", got.out)

	plot := filepath.Join(t.TempDir(), "plot.svg")
	got = envoyRLS(accessLog(), append(simulateArgs, "--format", "json", "--plot", plot)...)
	require.Equal(t, exitOK, got.code, got)
	var r simulate.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &r))
	require.EqualValues(t, 44, r.Lines.Replayed)
	require.NotContains(t, got.out, "acme", "no key is ever shown")
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(drawn), ">api-free<")

	got = envoyRLS(accessLog(), append(simulateArgs, "--plot", filepath.Join(plot, "x"))...)
	require.Equal(t, exitFaults, got.code)
	require.Contains(t, got.errout, "not a directory")
}

func TestSimulateFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(file, []byte("nothing\n"), 0o600))
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no log", nil, exitUsage, "say which access log to replay: --log FILE"},
		{"no such log", []string{"--log", "nowhere.log"}, exitFaults, "nowhere.log: no such file"},
		{"nothing in it", []string{"--log", file}, exitFaults, file + ": no line of the log could be read\n  line 1 is neither JSON nor common log format"},
		{"a directory", []string{"--log", t.TempDir()}, exitFaults, "is a directory"},
		{"faulty policies", []string{"--log", file, "--policies", "testdata/faulty.yaml"}, exitFaults, "testdata/faulty.yaml:"},
		{"a field without a name", []string{"--log", file, "--field", "x"}, exitUsage, "--field x: must be NAME=SOURCE"},
		{"a share of all", []string{"--log", file, "--deny-share", "100%"}, exitUsage, "such as 0.1% or 0.001"},
		{"no share", []string{"--log", file, "--deny-share", "few"}, exitUsage, "such as 0.1% or 0.001"},
		{"no domain", []string{"--log", file, "--domain", "nowhere"}, exitUsage, `no policy serves domain "nowhere"`},
		{"negative", []string{"--log", file, "--reorder", "-1s"}, exitUsage, "--reorder -1s: is negative"},
		{"format", []string{"--log", file, "--format", "xml"}, exitUsage, "is none of text, json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"simulate", "--policies", "../../config/policies.yaml"}, tt.args...)
			got := envoyRLS("", args...)
			require.Equal(t, tt.code, got.code, got)
			require.Contains(t, got.errout, tt.want)
		})
	}
}

func TestProgress(t *testing.T) {
	p := newProgress(&bytes.Buffer{}, 100)
	require.Nil(t, p.out, "not a terminal")
	p.show(1)
	p.clear()

	var out bytes.Buffer
	p = &progress{out: &out, size: 100}
	p.read = 50
	p.show(7)
	require.Equal(t, "\r[###############...............]  50% 7 lines", strings.ReplaceAll(out.String(), "  7", " 7"))
	p.show(8)
	require.NotContains(t, out.String(), "8 lines", "not so soon again")
	p.clear()
	require.True(t, strings.HasSuffix(out.String(), " \r"))
	p.read = 1000
	require.Contains(t, p.bar(9), "] 100%  9 lines")
	p.size = 0
	require.Equal(t, "9 lines", p.bar(9))
}
