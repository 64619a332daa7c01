package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// The exit codes.
const (
	exitOK     = 0
	exitFaults = 1 // what was given to read has faults
	exitUsage  = 2 // the command line or the environment is wrong
	exitFailed = 3 // could not start, serve or stop in order, or the database does not answer

	exitConflict = 4 // somebody else has published meanwhile
)

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error
}

// errLogged is in the chain of an error that the log has told of.
var errLogged = errors.New("logged")

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

func faulty(err error) error { return exitError{exitFaults, err} }
func misused(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}
func failed(err error) error { return exitError{exitFailed, err} }

// run is the program. It returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of the process
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	var known exitError
	if !errors.As(err, &known) { // all that cobra itself finds is about the command line
		known = exitError{exitUsage, err}
	}
	var faults policy.Faults
	hasFaults := errors.As(err, &faults)
	switch {
	case errors.Is(err, errLogged), errors.Is(err, errTold):
	case wantsJSON(cmd):
		_ = writeJSON(stderr, map[string]any{"faults": faultsOf(err)})
	case hasFaults, known.code == exitFaults, known.code == exitConflict:
		_, _ = fmt.Fprintln(stderr, known) // begins with the place
	case known.code == exitUsage:
		_, _ = fmt.Fprintf(stderr, "envoy-rls: %v\nSee %s --help\n", known, cmd.CommandPath())
	default:
		_, _ = fmt.Fprintln(stderr, "envoy-rls:", known)
	}
	return known.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "envoy-rls",
		Short: "A strict rate limit service for Envoy",
		Long: `envoy-rls is a rate limit service for Envoy: it answers ShouldRateLimit (RLS v3) by the policies of a file.

Exit codes:
  0  all is well
  1  what was given to read has faults: each is named with its place; a test of policies does not pass;
     a measurement is not valid; accuracy: something was found; buckets: the service refuses
  2  the command line or the environment is wrong; test: the tests or the policies are
  3  the service could not start or serve, or was stopped before all calls were answered; the policy database does not answer;
     health, buckets: the service is not ready, or does not answer
  4  policies push and rollback: another version has become active meanwhile`,
		Example: `  envoy-rls validate config/policies.yaml
  envoy-rls test config/policies_test.yaml
  envoy-rls explain --policies config/policies.yaml --domain edge --attr plan=free --attr apiKey=k1 --attr tenant=demo
  envoy-rls serve --policies config/policies.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServe(), newPolicies(), newValidate(), newTest(), newExplain(), newBuckets(), newSimulate(), newBench(), newAccuracy(), newHealth(), newVersion())
	return root
}
