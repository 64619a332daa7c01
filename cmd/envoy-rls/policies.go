package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

// policyFlags say where the service's policies come from.
func policyFlags(cmd *cobra.Command, opts *app.Options, source *choice) {
	flags := cmd.Flags()
	flags.Var(source, "policy-source", "where policies come from")
	flags.StringVar(&opts.Policies, "policies", "config/policies.yaml", "policy file, or directory of them")
	flags.StringVar(&opts.PolicyDSNFile, "policy-dsn-file", "", "where PostgreSQL's connection string is, read for each connection")
	flags.StringVar(&opts.PolicyKeptFile, "policy-kept-file", "/var/lib/envoy-rls/policies.kept",
		"where policies from PostgreSQL are kept for a start without it; empty for none")
}

// versions is what the commands about versions of the policies have in common.
type versions struct {
	dsnFile string
	format  choice
}

func newPolicies() *cobra.Command {
	v := &versions{format: *newFormat()}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Publish versions of the policies, look at them, and see who runs which",
		Long: `Keeps versions of the policies in PostgreSQL, for services that run with --policy-source postgres. A version is never changed; one is active,
and every instance takes it within a second.

Where the database is stands in a file: --policy-dsn-file, or the variable ENVOY_RLS_POLICY_DSN_FILE.`,
		Example: `  envoy-rls policies push config/policies.yaml -m "higher limits for plan pro"
  envoy-rls policies diff active config/policies.yaml
  envoy-rls policies rollback 7
  envoy-rls policies status`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&v.dsnFile, "policy-dsn-file", "", "where PostgreSQL's connection string is")
	flags.Var(&v.format, "format", "form of the output")
	cmd.AddCommand(v.newPush(), v.newRollback(), v.newList(), v.newShow(), v.newDiff(), v.newStatus())
	for _, sub := range cmd.Commands() {
		sub.PreRunE = fromEnv("policy-dsn-file")
		sub.Flags().SortFlags = false
	}
	return cmd
}

func (v *versions) open() (*policydb.DB, error) {
	if v.dsnFile == "" {
		return nil, misused("say where the database is: --policy-dsn-file FILE, or %s", envName("policy-dsn-file"))
	}
	return policydb.New(policydb.Options{DSNFile: v.dsnFile, Timeout: 10 * time.Second}), nil
}

// databaseError gives an error of the database its exit code.
func databaseError(err error) error {
	var faults policy.Faults
	var known exitError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &faults), errors.Is(err, policydb.ErrNoVersion), errors.Is(err, policydb.ErrDamaged):
		return faulty(err)
	case errors.Is(err, policydb.ErrDSN):
		return exitError{exitUsage, err}
	}
	return failed(err)
}

// print writes what a command found out: text for people, or value as JSON.
func (v *versions) print(out io.Writer, value any, text func(io.Writer)) error {
	if v.format.value == "text" {
		text(out)
		return nil
	}
	return writeJSON(out, value)
}

// versionNumber reads the number of a version.
func versionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, misused("%q is not the number of a version", text)
	}
	return n, nil
}

// named are the files of a version with names that say so.
func named(texts []policy.Text, version int64) []policy.Text {
	list := make([]policy.Text, len(texts))
	for i, text := range texts {
		list[i] = policy.Text{Path: fmt.Sprintf("version %d: %s", version, printable(text.Path)), Data: text.Data}
	}
	return list
}

// loaded checks files and gives them parsed.
func loaded(texts []policy.Text) ([]*policy.File, error) {
	var files []*policy.File
	for _, text := range texts {
		file, err := policy.Parse(text.Path, text.Data)
		if err != nil {
			if _, all := policy.LoadTexts(texts...); all != nil {
				err = all // with those of the other files
			}
			return nil, err
		}
		files = append(files, file)
	}
	_, err := policy.NewSet(files) // makes values canonical
	return files, err
}

// printable is text without what a terminal would take for an order: others may have written it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// cell is text in a line or a table, where a tab would shift what follows.
func cell(text string) string { return strings.ReplaceAll(printable(text), "\t", " ") }

// when is a time for people.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// described tells of a version in one line.
func described(v policydb.Version) string {
	return fmt.Sprintf("version %d by %s at %s: %s", v.Number, cell(v.Author), when(v.Created), cell(v.Comment))
}
