package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	got := envoyRLS("", "validate", "testdata/policies.yaml")
	require.Equal(t, exitOK, got.code, got)
	require.Regexp(t, `^ok: 4 policies \(1 in shadow mode\), 1 override, for domain edge; version [0-9a-f]{12}\n$`, got.out)

	got = envoyRLS("", "validate", "testdata/policies.yaml", "testdata/expired.yaml")
	require.Equal(t, exitOK, got.code, got)
	require.Regexp(t, `^ok: 5 policies \(1 in shadow mode\), 3 overrides \(1 expired\), for domain edge, and for every domain; version`, got.out)

	got = envoyRLS("", "validate", "testdata/expired.yaml")
	require.Regexp(t, `, 2 overrides \(1 expired\), for every domain; version`, got.out)

	got = envoyRLS("", "validate", "testdata/faulty.yaml", "testdata/policies.yaml")
	require.Equal(t, exitFaults, got.code)
	require.Empty(t, got.out)
	golden(t, "validate-faulty", got.errout)
}

func TestValidateWarns(t *testing.T) {
	lint := func(flags ...string) result {
		return envoyRLS("", append([]string{"validate", "testdata/policies.yaml", "--envoy", "testdata/envoy.yaml", "--instances", "30"}, flags...)...)
	}
	got := lint()
	require.Equal(t, exitOK, got.code, got)
	require.Regexp(t, "^ok: ", got.out)
	golden(t, "validate-warnings", got.errout)

	strict := lint("--strict")
	require.Equal(t, exitFaults, strict.code)
	require.Empty(t, strict.out)
	require.Equal(t, got.errout, strict.errout)

	programs := lint("--strict", "--format", "json")
	require.Equal(t, exitFaults, programs.code)
	require.Empty(t, programs.errout)
	var told struct {
		Warnings int
		Findings []struct {
			Rule, Severity string
			Fault          struct {
				File, Message, Source string
				Line, Column          int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(programs.out), &told))
	require.Equal(t, strings.Count(got.errout, ": warning["), told.Warnings)
	require.Equal(t, strings.Count(got.errout, ": warning[")+strings.Count(got.errout, ": note["), len(told.Findings))
	require.NotEmpty(t, told.Findings[0].Fault.Source)

	same := envoyRLS("", "validate", "testdata/policies.yaml", "--against", "testdata/policies.yaml", "--strict")
	require.Equal(t, exitOK, same.code, "a note is no warning: %s", same.errout)
	require.Contains(t, same.errout, "note[hash-tags]")
}

// TestFaultsJSON: whoever asks for JSON gets the faults in it, too.
func TestFaultsJSON(t *testing.T) {
	for _, args := range [][]string{
		{"validate", "testdata/faulty.yaml"},
		{"validate", "testdata/policies.yaml", "--against", "testdata/faulty.yaml"},
		{"test", "--policies", "testdata/faulty.yaml", "../../config/policies_test.yaml"},
		{"policies", "diff", "testdata/faulty.yaml", "testdata/policies.yaml"},
	} {
		text, programs := envoyRLS("", args...), envoyRLS("", append(args, "--format", "json")...)
		require.Equal(t, text.code, programs.code, args)
		require.NotZero(t, programs.code)
		require.Empty(t, programs.out)
		var told struct {
			Faults []struct {
				File, Message, Hint, Source string
				Line, Column, Caret         int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(programs.errout), &told), programs.errout)
		require.NotEmpty(t, told.Faults)
		for _, f := range told.Faults {
			place := fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
			require.Contains(t, text.errout, place)
			require.Contains(t, text.errout, "\n"+f.Source+"\n"+strings.Repeat(" ", f.Caret)+"^")
		}
	}
	got := envoyRLS("", "validate", "--format", "json", "testdata/nothing.yaml")
	require.JSONEq(t, `{"faults": [{"file": "testdata/nothing.yaml", "line": 0, "column": 0, "message": "cannot be read: no such file or directory"}]}`, got.errout)
}
