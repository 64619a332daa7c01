package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
)

func newAccuracy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accuracy",
		Short: "Prove from recorded decisions that limits are kept",
		Long: `Judges decisions that were recorded with their start and end: whether more was admitted than a limit allows, or a request denied
for which enough was there, in a way that no choice of the moments between start and end explains. docs/accuracy.md says what is proven.

Exit code 1: something was found.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccuracyCheck(), newAccuracyRun())
	return cmd
}

// judge is how a record is judged, and the verdict written.
type judge struct {
	options accuracy.Options
	format  *choice
}

func (j *judge) flags(f *pflag.FlagSet) {
	j.format = newFormat()
	f.Float64Var(&j.options.Drift, "drift", 0.0005, "by which part the store's clock may be faster or slower than that of the record")
	f.DurationVar(&j.options.Settle, "settle", time.Second, "how long after an answer something may still be charged or given back for it")
	f.Var(j.format, "format", "form of the output")
}

func (j *judge) check() error {
	if !(j.options.Drift >= 0 && j.options.Drift < 0.5) || j.options.Settle < 0 {
		return misused("--drift must be from 0 to 0.5, and --settle not negative")
	}
	return nil
}

// run judges a record and writes the verdict.
func (j *judge) run(cmd *cobra.Command, r *accuracy.Record) error {
	o := j.options
	if o.Drift == 0 {
		o.Drift = -1 // 0 stands for the default
	}
	if o.Settle == 0 {
		o.Settle = 1
	}
	v, err := accuracy.Check(r, o)
	if err != nil {
		return faulty(err)
	}
	if j.format.value == "json" {
		err = writeJSON(cmd.OutOrStdout(), v)
	} else {
		err = v.WriteText(cmd.OutOrStdout())
	}
	if err != nil {
		return faulty(err)
	}
	if v.Err() != nil {
		return faulty(errTold)
	}
	return nil
}

func newAccuracyCheck() *cobra.Command {
	var j judge
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Judge records of decisions",
		Long: `Judges what stands in the files, together: records of several programs that have called the same service, on one machine.
The form of a file is described in docs/accuracy.md; accuracy run writes it with --record.`,
		Example: `  envoy-rls accuracy check record.jsonl
  envoy-rls accuracy check --format json one.jsonl two.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := j.check(); err != nil {
				return err
			}
			r, err := readRecords(paths)
			if err != nil {
				return faulty(err)
			}
			return j.run(cmd, r)
		},
	}
	cmd.Flags().SortFlags = false
	j.flags(cmd.Flags())
	return cmd
}

func readRecords(paths []string) (*accuracy.Record, error) {
	var all []*accuracy.Record
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		r, err := accuracy.Read(file)
		_ = file.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	return accuracy.Merge(all...)
}

func writeRecord(path string, r *accuracy.Record) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}
