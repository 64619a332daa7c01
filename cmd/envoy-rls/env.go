package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// envName is the environment variable for a flag.
func envName(flag string) string {
	return "ENVOY_RLS_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv makes a PreRunE that sets those of the flags that the command line doesn't from the environment.
func fromEnv(flags ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		var faults []error
		for _, name := range flags {
			f := cmd.Flags().Lookup(name)
			text, given := os.LookupEnv(envName(name))
			if f.Changed || !given {
				continue
			}
			if err := f.Value.Set(text); err != nil {
				faults = append(faults, fmt.Errorf("%s=%q: %w", envName(name), text, err))
			}
		}
		if len(faults) > 0 {
			return exitError{exitUsage, errors.Join(faults...)}
		}
		return nil
	}
}

// injected are variables that Kubernetes sets in every container for a Service named envoy-rls.
var injected = regexp.MustCompile(`^ENVOY_RLS_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)$`)

// unknownVariables names the variables of environ (NAME=VALUE) that look as if they set a flag and set none: most likely misspelt.
func unknownVariables(environ, flags []string) []string {
	var names []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		isFlag := slices.ContainsFunc(flags, func(flag string) bool { return envName(flag) == name })
		if strings.HasPrefix(name, envName("")) && !isFlag && !injected.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// choice is a flag whose value is one of a few words.
type choice struct {
	words []string
	value string
}

// String implements cobra's flag value.
func (c *choice) String() string { return c.value }

// Type implements cobra's flag value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// Set implements cobra's flag value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		if hint := policy.DidYouMean(text, c.words); hint != "" {
			return fmt.Errorf("is none of %s (%s)", strings.Join(c.words, ", "), hint)
		}
		return fmt.Errorf("is none of %s", strings.Join(c.words, ", "))
	}
	c.value = text
	return nil
}

// flagError adds to an unknown flag the nearest one that there is.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	if hint := policy.DidYouMean("--"+unknown.GetSpecifiedName(), names); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}
