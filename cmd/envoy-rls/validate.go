package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
		Args: func(_ *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return misused("name the policy files, or a directory of them")
			}
			return nil
		},
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
	overrides, expired, shadow := 0, 0, 0
	now := time.Now()
	for _, p := range set.Policies() {
		overrides += len(p.Overrides)
		for i := range p.Overrides {
			if p.Overrides[i].Expired(now) {
				expired++
			}
		}
		if p.Mode == policy.Shadow {
			shadow++
		}
	}
	over := ""
	if expired > 0 {
		over = fmt.Sprintf(" (%d expired)", expired)
	}
	return fmt.Sprintf("ok: %s (%d in shadow mode), %s%s, for %s; version %s\n",
		count(len(set.Policies()), "policy", "policies"), shadow, count(overrides, "override", "overrides"), over, domains(set), set.Version())
}

// domains tells which requests the policies are for.
func domains(set *policy.Set) string {
	list := set.Domains()
	if len(list) == 0 {
		return "every domain"
	}
	text := "domain " + strings.Join(list, ", ")
	if slices.ContainsFunc(set.Policies(), func(p *policy.Policy) bool { return p.Domain == "" }) {
		text += ", and for every domain"
	}
	return text
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
