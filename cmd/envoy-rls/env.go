package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envName is the environment variable for a flag.
func envName(flag string) string {
	return "ENVOY_RLS_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv sets those of cmd's own flags that the command line doesn't from the environment.
func fromEnv(cmd *cobra.Command, _ []string) error {
	var faults []error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		text, given := os.LookupEnv(envName(f.Name))
		if f.Changed || !given {
			return
		}
		if err := f.Value.Set(text); err != nil {
			faults = append(faults, fmt.Errorf("%s=%q: %w", envName(f.Name), text, err))
		}
	})
	if len(faults) > 0 {
		return exitError{exitUsage, errors.Join(faults...)}
	}
	return nil
}

// choice is a flag whose value is one of a few words.
type choice struct {
	words []string
	value string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("is none of %s", strings.Join(c.words, ", "))
	}
	c.value = text
	return nil
}
