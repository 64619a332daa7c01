package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, commit := build()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "envoy-rls %s, commit %s, %s %s/%s\n",
				name, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// build names the version and commit that the program was built from, as far as it knows.
func build() (name, commit string) {
	name, commit = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name, commit
	}
	if name == "" {
		name = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return name, commit
}
