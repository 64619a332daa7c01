package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policytest"
)

func newTest() *cobra.Command {
	var policies []string
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "Run tests of policies",
		Long: `Runs files of tests: each test is a timeline of calls with the answers that are expected. They are decided as the service decides
them, on empty buckets and by a clock that only the timeline moves.

A file names the policies that it tests, unless --policies does. Exits with 0 if every test passes, with 1 if one does not, and with 2 if there
is anything wrong with the tests or the policies themselves.`,
		Example: `  envoy-rls test config/policies_test.yaml
  envoy-rls test --policies config/policies.yaml --format json config/policies_test.yaml`,
		Args: func(_ *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return misused("name the files of tests")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			runs, err := readTests(paths, policies)
			if err != nil {
				return exitError{exitUsage, err}
			}
			return runTests(cmd.Context(), cmd.OutOrStdout(), runs, format.value)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&policies, "policies", nil, "policy file, or directory of them, to test; may be repeated (default: those that the tests name)")
	flags.Var(format, "format", "form of the output, and of faults")
	complete(cmd, "format", format.words)
	return cmd
}

// testRun is a file of tests and the policies that it is about.
type testRun struct {
	file *policytest.File
	set  *policy.Set
}

// readTests reads all before any is run, so that every fault is told at once.
func readTests(paths, policies []string) ([]testRun, error) {
	var runs []testRun
	var all policy.Faults
	for _, path := range paths {
		run, err := readTest(path, policies)
		var faults policy.Faults
		if errors.As(err, &faults) {
			all = append(all, faults...)
		} else if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	if len(all) > 0 {
		return nil, all
	}
	return runs, nil
}

func readTest(path string, policies []string) (run testRun, err error) {
	texts, err := policy.Read(path)
	if err != nil {
		return run, err
	}
	if len(texts) > 1 || texts[0].Path != path {
		return run, fmt.Errorf("%s: is a directory: name the files of tests", path)
	}
	if run.file, err = policytest.Parse(texts[0]); err != nil {
		return run, err
	}
	if len(policies) == 0 {
		for _, named := range run.file.Policies {
			if !filepath.IsAbs(named) {
				named = filepath.Join(filepath.Dir(path), named)
			}
			policies = append(policies, named)
		}
	}
	if len(policies) == 0 {
		return run, fmt.Errorf("%s: names no policies: write policies: FILE into it, or give --policies FILE", path)
	}
	if run.set, err = policy.Load(policies...); err != nil {
		return run, err
	}
	return run, run.file.Check(run.set)
}

// tally is what runTests prints as JSON.
type tally struct {
	Passed int                 `json:"passed"`
	Failed int                 `json:"failed"`
	Tests  []policytest.Result `json:"tests"`
}

func runTests(ctx context.Context, out io.Writer, runs []testRun, format string) error {
	t := tally{Tests: []policytest.Result{}}
	for _, run := range runs {
		t.Tests = append(t.Tests, run.file.Run(ctx, run.set)...)
	}
	for _, r := range t.Tests {
		if r.Passed {
			t.Passed++
		} else {
			t.Failed++
		}
	}
	if err := t.write(out, format); err != nil {
		return failed(err)
	}
	if t.Failed > 0 {
		return exitError{exitFaults, errTold}
	}
	return nil
}

func (t *tally) write(out io.Writer, format string) error {
	if format == "json" {
		return writeJSON(out, t)
	}
	for _, r := range t.Tests {
		if r.Passed {
			continue
		}
		if _, err := fmt.Fprintf(out, "FAIL  %s\n%v\n\n", r.Name, r.Faults); err != nil {
			return err
		}
	}
	verdict := "ok"
	if t.Failed > 0 {
		verdict = "FAIL"
	}
	_, err := fmt.Fprintf(out, "%s: %s, %d failed\n", verdict, count(len(t.Tests), "test", "tests"), t.Failed)
	return err
}
