package main

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// errTold is in the chain of an error that the output has told of: only its exit code is left to give.
var errTold = errors.New("told")

// newFormat is the value of a flag --format.
func newFormat() *choice { return &choice{[]string{"text", "json"}, "text"} }

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// faultsOf are the faults of an error, for a program: one without a place if it has none.
func faultsOf(err error) policy.Faults {
	var faults policy.Faults
	if errors.As(err, &faults) {
		return faults
	}
	return policy.Faults{{Message: err.Error()}}
}

// wantsJSON reports whether cmd was asked to write JSON.
func wantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("format")
	return f != nil && f.Value.String() == "json"
}
