package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydiff"
)

func (v *versions) newDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Say how two versions differ: which policies, which numbers, stricter or looser",
		Long: `Says how the policies differ between two versions, or between a version and policy files: which were added, removed or changed, which of their
fields, and whether clients get less (stricter) or more (looser).

FROM and TO are numbers of versions, the word active, or policy files or directories.`,
		Example: `  envoy-rls policies diff 7 8
  envoy-rls policies diff active config/policies.yaml
  envoy-rls policies diff old.yaml new.yaml`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2][]*policy.File
			for i, arg := range args {
				var err error
				if sides[i], err = v.side(cmd.Context(), arg); err != nil {
					return databaseError(err)
				}
			}
			diff := policydiff.Compare(sides[0], sides[1], time.Now())
			return v.print(cmd.OutOrStdout(), diff, func(out io.Writer) { fmt.Fprint(out, diff) })
		},
	}
}

// side gives the files of one side of a comparison.
func (v *versions) side(ctx context.Context, arg string) ([]*policy.File, error) {
	texts, err := v.texts(ctx, arg)
	if err != nil {
		return nil, err
	}
	return loaded(texts)
}

// texts reads the files of a version, which have names that say so, or those at a path.
func (v *versions) texts(ctx context.Context, arg string) ([]policy.Text, error) {
	if _, err := strconv.ParseInt(arg, 10, 64); err != nil && arg != "active" {
		return policy.Read(arg)
	}
	version, err := v.get(ctx, arg)
	return named(version.Files, version.Number), err
}
