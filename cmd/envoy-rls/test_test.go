package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTest(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
	}{
		{"passes", []string{"../../config/policies_test.yaml"}, exitOK},
		{"fails", []string{"testdata/failing_test.yaml"}, exitFaults},
		{"several", []string{"testdata/failing_test.yaml", "../../config/policies_test.yaml", "--format", "json"}, exitFaults},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS("", append([]string{"test"}, tt.args...)...)
			require.Equal(t, tt.code, got.code, got)
			require.Empty(t, got.errout)
			golden(t, "test-"+tt.name, got.out)
		})
	}
}

func TestTestJSON(t *testing.T) {
	got := envoyRLS("", "test", "--format", "json", "testdata/failing_test.yaml")
	var told struct {
		Passed, Failed int
		Tests          []struct {
			Name, File string
			Line       int
			Passed     bool
			Faults     []struct {
				File, Message, Source string
				Line, Column, Caret   int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &told))
	require.Equal(t, 1, told.Passed)
	require.Equal(t, 2, told.Failed)
	fault := told.Tests[1].Faults[0]
	require.Equal(t, "testdata/failing_test.yaml", fault.File)
	require.Contains(t, fault.Message, "call 3 of 3, at 0s: expected allow, got deny by free")
	require.Equal(t, "allow", fault.Source[fault.Caret:fault.Caret+len("allow")])
}

func TestTestBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const body = "tests: [{name: a, attributes: {ip: 192.0.2.1}, timeline: [{at: 0s, expect: deny, by: edg-ip}]}]\n"
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no file", nil, "name the files of tests"},
		{"not there", []string{filepath.Join(dir, "x.yaml")}, "x.yaml: cannot be read: no such file"},
		{"a directory", []string{dir}, dir},
		{"no policies", []string{file("a_test.yaml", body)}, "names no policies"},
		{"faulty policies", []string{file("b_test.yaml", "policies: bad.yaml\n"+body), "--policies", file("bad.yaml", "policies: [{id: a}]\n")}, "bad.yaml:1:12"},
		{"an unknown policy", []string{file("c_test.yaml", body), "--policies", "../../config/policies.yaml"}, `c_test.yaml:1:86: there is no policy "edg-ip" (did you mean "edge-ip"?)`},
		{"faults of several files", []string{file("d_test.yaml", "tests: 1\n"), file("e_test.yaml", "test: 1\n")}, `e_test.yaml:1:1: a file of tests has no field "test"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS("", append([]string{"test"}, tt.args...)...)
			require.Equal(t, exitUsage, got.code, got)
			require.Contains(t, got.errout, tt.want)
			require.Empty(t, got.out)
		})
	}
	got := envoyRLS("", "test", "--format", "json", filepath.Join(dir, "d_test.yaml"))
	require.Equal(t, exitUsage, got.code)
	require.JSONEq(t, `{"faults": [{"file": "`+dir+`/d_test.yaml", "line": 1, "column": 1, "source": "tests: 1",
		"message": "a file of tests needs a list of tests", "hint": "write tests: [{name: …, attributes: {…}, timeline: [{at: 0s, expect: allow}]}]"}]}`, got.errout)
}
