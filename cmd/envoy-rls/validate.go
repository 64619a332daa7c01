package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func newValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check policy files",
		Long: `Checks policy files, together, as the service would load them: a directory counts as its *.yaml and *.yml files.

Prints what they hold and exits with 0, or prints every fault with its place and exits with 1.`,
		Example: `  envoy-rls validate config/policies.yaml
  envoy-rls validate edge.yaml internal.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, err := policy.Load(paths...)
			if err != nil {
				return faulty(err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), summary(set))
			return err
		},
	}
}

// summary tells what a set holds.
func summary(set *policy.Set) string {
	overrides, shadow := 0, 0
	for _, p := range set.Policies() {
		overrides += len(p.Overrides)
		if p.Mode == policy.Shadow {
			shadow++
		}
	}
	domains := "every domain"
	if list := set.Domains(); len(list) > 0 {
		domains = "domain " + strings.Join(list, ", ")
	}
	return fmt.Sprintf("ok: %s (%d in shadow mode), %s, for %s; version %s\n",
		count(len(set.Policies()), "policy", "policies"), shadow, count(overrides, "override", "overrides"), domains, set.Version())
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
