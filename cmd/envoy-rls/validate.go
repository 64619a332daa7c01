package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policylint"
)

// validation is what validate is asked to do.
type validation struct {
	envoy, against []string
	versions       versions // where those of against may be
	instances      int
	strict         bool
	format         *choice
}

func newValidate() *cobra.Command {
	v := validation{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check policy files",
		Long: `Checks policy files, together, as the service would load them: a directory counts as its *.yaml and *.yml files, without *_test.yaml.

Prints what they hold and exits with 0, or prints every fault with its place and exits with 1. What is allowed but most likely not meant is a warning,
on standard error; a note is what is good to know. With --strict warnings are faults.

Given Envoy's configuration, it also finds policies that need what Envoy doesn't send, and identities that clients can write themselves.`,
		Example: `  envoy-rls validate config/policies.yaml
  envoy-rls validate edge.yaml internal.yaml
  envoy-rls validate config/policies.yaml --envoy envoy/envoy.yaml --instances 3 --strict
  envoy-rls validate config/policies.yaml --against active --policy-dsn-file /run/secrets/policy-dsn`,
		Args: func(_ *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return misused("name the policy files, or a directory of them")
			}
			if v.instances < 0 {
				return misused("--instances %d: must not be negative", v.instances)
			}
			return nil
		},
		PreRunE: fromEnv("policy-dsn-file"),
		RunE:    func(cmd *cobra.Command, paths []string) error { return v.run(cmd, paths) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&v.envoy, "envoy", nil, "Envoy's configuration in YAML or JSON; may be repeated")
	flags.StringArrayVar(&v.against, "against", nil, "the policies in force, to compare with: files, a version's number or active; may be repeated")
	flags.StringVar(&v.versions.dsnFile, "policy-dsn-file", "", "where the connection string of the database with that version is")
	flags.IntVar(&v.instances, "instances", 0, "how many instances share the limits while the store fails")
	flags.BoolVar(&v.strict, "strict", false, "exit with 1 if there is a warning")
	flags.Var(v.format, "format", "form of the output, and of faults")
	complete(cmd, "format", v.format.words)
	return cmd
}

func (v *validation) run(cmd *cobra.Command, paths []string) error {
	options := policylint.Options{Instances: v.instances}
	for _, arg := range v.against {
		texts, err := v.versions.texts(cmd.Context(), arg)
		if err != nil {
			return databaseError(err)
		}
		options.Against = append(options.Against, texts...)
	}
	for _, read := range []struct {
		to    *[]policy.Text
		paths []string
	}{{&options.Policies, paths}, {&options.Envoy, v.envoy}} {
		if len(read.paths) == 0 {
			continue
		}
		texts, err := policy.Read(read.paths...)
		if err != nil {
			return faulty(err)
		}
		*read.to = texts
	}
	set, err := policy.LoadTexts(options.Policies...)
	if err != nil {
		return faulty(err)
	}
	findings, err := policylint.Lint(options)
	if err != nil {
		return faulty(err)
	}
	return v.report(cmd, set, findings)
}

// validated is what validate prints as JSON.
type validated struct {
	Version  string               `json:"version"`
	Policies int                  `json:"policies"`
	Domains  []string             `json:"domains"`
	Warnings int                  `json:"warnings"`
	Findings []policylint.Finding `json:"findings"`
}

func (v *validation) report(cmd *cobra.Command, set *policy.Set, findings []policylint.Finding) error {
	t := validated{set.Version(), len(set.Policies()), append([]string{}, set.Domains()...), 0, append([]policylint.Finding{}, findings...)}
	for _, f := range findings {
		if f.Severity == policylint.Warning {
			t.Warnings++
		}
	}
	err := error(nil)
	if v.format.value == "json" {
		err = writeJSON(cmd.OutOrStdout(), t)
	} else {
		for _, f := range findings {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), f.Error())
		}
	}
	switch {
	case err != nil:
		return failed(err)
	case v.strict && t.Warnings > 0:
		return exitError{exitFaults, errTold}
	case v.format.value == "json":
		return nil
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), summary(set))
	return err
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
