package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
	"github.com/envoy-rls/envoy-rls/pkg/policydiff"
)

// publication is how a version comes to be.
type publication struct {
	*versions
	message, author string
	base            int64
	wait            time.Duration
}

func (p *publication) flags(cmd *cobra.Command, message string) {
	flags := cmd.Flags()
	flags.StringVarP(&p.message, "message", "m", "", message)
	flags.StringVar(&p.author, "author", "", "who publishes (default: who runs this)")
	flags.Int64Var(&p.base, "base", -1, "the version that the change was made to, 0 for none (default: the active one)")
	flags.DurationVar(&p.wait, "wait", 0, "how long to wait until every instance runs it")
}

func (v *versions) newPush() *cobra.Command {
	p := &publication{versions: v}
	cmd := &cobra.Command{
		Use:   "push FILE…",
		Short: "Publish policy files as a new version and make it the active one",
		Long: `Checks policy files as the service would load them, a directory as its *.yaml and *.yml files, and publishes them together as a new version,
which becomes the active one. Every instance takes it at once; buckets keep their state.

If another version has become active than the one given by --base, nothing is published, and what has changed since is told.`,
		Example: `  envoy-rls policies push config/policies.yaml -m "higher limits for plan pro"
  envoy-rls policies push edge.yaml internal.yaml -m "new tenant" --base 7 --wait 10s`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			switch {
			case len(paths) == 0:
				return misused("name the policy files, or a directory of them")
			case strings.TrimSpace(p.message) == "":
				return misused("say why: -m MESSAGE")
			}
			return databaseError(p.push(cmd.Context(), cmd.OutOrStdout(), paths))
		},
		Args: p.checked,
	}
	p.flags(cmd, "why; required")
	return cmd
}

func (v *versions) newRollback() *cobra.Command {
	p := &publication{versions: v}
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Publish the files of an earlier version as a new one",
		Long: `Publishes the files of an earlier version as a new version, which becomes the active one. The versions between stay in the list, and can be
gone back to in the same way.`,
		Example: `  envoy-rls policies rollback 7
  envoy-rls policies rollback 7 -m "the limits of version 8 were too low"`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), p.checked),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := versionNumber(args[0])
			if err != nil {
				return err
			}
			return databaseError(p.rollback(cmd.Context(), cmd.OutOrStdout(), number))
		},
	}
	p.flags(cmd, `why (default: "rollback to version N")`)
	return cmd
}

// checked refuses flags that make no sense, before anything is done.
func (p *publication) checked(cmd *cobra.Command, _ []string) error {
	if cmd.Flags().Changed("base") && p.base < 0 {
		return misused("--base %d: must be the number of a version, or 0 for none", p.base)
	}
	if p.wait < 0 {
		return misused("--wait %v: must not be negative", p.wait)
	}
	return nil
}

func (p *publication) push(ctx context.Context, out io.Writer, paths []string) error {
	texts, err := policy.Read(paths...)
	if err != nil {
		return faulty(err)
	}
	files, err := loaded(texts)
	if err != nil {
		return faulty(err)
	}
	draft := policydb.Draft{}
	for _, text := range texts {
		draft.Files = append(draft.Files, policy.Text{Path: filepath.Base(text.Path), Data: text.Data})
	}
	return p.publish(ctx, out, draft, files)
}

func (p *publication) rollback(ctx context.Context, out io.Writer, number int64) error {
	db, err := p.open()
	if err != nil {
		return err
	}
	old, err := db.Get(ctx, number)
	if err != nil {
		return err
	}
	files, err := loaded(named(old.Files, number))
	if err != nil {
		return faulty(err)
	}
	if p.message == "" {
		p.message = fmt.Sprintf("rollback to version %d", number)
	}
	return p.publish(ctx, out, policydb.Draft{Files: old.Files, Restores: number}, files)
}

// published is what publishing says in JSON.
type published struct {
	Version   policydb.Version `json:"version"`
	Unchanged bool             `json:"unchanged,omitempty"` // it had been active before
	Diff      *policydiff.Diff `json:"diff,omitempty"`      // from what was active before
	Instances int              `json:"instances,omitempty"` // that run it, with --wait
}

func (p *publication) publish(ctx context.Context, out io.Writer, draft policydb.Draft, files []*policy.File) error {
	db, err := p.open()
	if err != nil {
		return err
	}
	if draft.Author, err = p.name(); err != nil {
		return err
	}
	draft.Comment, draft.Base = p.message, p.base
	if p.base < 0 {
		active, err := db.Active(ctx)
		if err != nil && !errors.Is(err, policydb.ErrNoVersion) {
			return err
		}
		draft.Base = active.Number
	}
	report, err := p.commit(ctx, db, draft, files)
	if err != nil {
		return err
	}
	if p.format.value == "text" { // before the wait, which may be broken off
		report.write(out)
	}
	if p.wait > 0 {
		if report.Instances, err = awaitInstances(ctx, db, report.Version.Number, p.wait); err != nil {
			return err
		}
	}
	return p.print(out, report, func(out io.Writer) {
		if p.wait > 0 {
			fmt.Fprintf(out, "\n%s run it\n", count(report.Instances, "instance", "instances"))
		}
	})
}

func (p *publication) commit(ctx context.Context, db *policydb.DB, draft policydb.Draft, files []*policy.File) (report published, err error) {
	report.Version, err = db.Publish(ctx, draft)
	var conflict *policydb.ConflictError
	switch {
	case errors.As(err, &conflict):
		return report, exitError{exitConflict, errors.New(p.changesSince(ctx, db, conflict))}
	case errors.Is(err, policydb.ErrUnchanged):
		report.Unchanged = true
	case err != nil:
		return report, err
	default:
		report.Diff = p.difference(ctx, db, draft.Base, files)
	}
	return report, nil
}

func (r *published) write(out io.Writer) {
	if r.Unchanged {
		fmt.Fprintf(out, "nothing published: %s has the same files\n", described(r.Version))
	} else {
		fmt.Fprintf(out, "version %d is active\n", r.Version.Number)
	}
	if r.Diff != nil {
		fmt.Fprintf(out, "\n%s", r.Diff)
	}
}

// name is who publishes.
func (p *publication) name() (string, error) {
	if p.author != "" {
		return p.author, nil
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	if name := os.Getenv("USER"); name != "" {
		return name, nil
	}
	return "", misused("nobody knows who runs this: --author NAME")
}

// difference is what a new version changes of an older one; nil if that cannot be read any more.
func (p *publication) difference(ctx context.Context, db *policydb.DB, base int64, files []*policy.File) *policydiff.Diff {
	if base == 0 {
		return nil
	}
	old, err := filesOf(ctx, db, base)
	if err != nil {
		return nil
	}
	return policydiff.Compare(old, files, time.Now())
}

func filesOf(ctx context.Context, db *policydb.DB, number int64) ([]*policy.File, error) {
	v, err := db.Get(ctx, number)
	if err != nil {
		return nil, err
	}
	return loaded(named(v.Files, number))
}

// changesSince tells who has published what since the version that a change was based on.
func (p *publication) changesSince(ctx context.Context, db *policydb.DB, c *policydb.ConflictError) string {
	const most = 100
	var b strings.Builder
	fmt.Fprintf(&b, "nothing published: the change is based on version %d, but ", c.Base)
	if c.Active.Number == 0 {
		return b.String() + "none is active. If that is meant to be so, push it with --base 0."
	}
	if _, err := db.Get(ctx, c.Base); c.Base > 0 && errors.Is(err, policydb.ErrNoVersion) {
		fmt.Fprintf(&b, "there is no such version. Active is %s\n", described(c.Active))
		return b.String() + fmt.Sprintf("If your files were made from that one, push them with --base %d.", c.Active.Number)
	}
	fmt.Fprintf(&b, "version %d is active. Published since:\n", c.Active.Number)
	newer, err := db.List(ctx, most)
	if err != nil {
		newer = []policydb.Version{c.Active}
	}
	for _, v := range newer {
		if v.Number > c.Base && v.Number <= c.Active.Number {
			fmt.Fprintf(&b, "  %s\n", described(v))
		}
	}
	if active, err := filesOf(ctx, db, c.Active.Number); err == nil {
		if diff := p.difference(ctx, db, c.Base, active); diff != nil {
			fmt.Fprintf(&b, "\nWhat version %d changed of version %d: %s\n", c.Active.Number, c.Base, diff)
		}
	}
	fmt.Fprintf(&b, "Bring these changes into your files, then push them with --base %d.", c.Active.Number)
	return b.String()
}

// awaitInstances waits until all instances that run have a version, and tells how many they are.
func awaitInstances(ctx context.Context, db *policydb.DB, number int64, patience time.Duration) (int, error) {
	enough := time.After(patience)
	for {
		list, err := db.Instances(ctx)
		var behind []string
		for _, i := range list {
			if i.Version < number {
				behind = append(behind, strings.TrimSuffix(cell(i.ID)+": "+firstLine(i.Error), ": "))
			}
		}
		if err == nil && len(behind) == 0 {
			return len(list), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-enough:
			if err != nil {
				return 0, failed(fmt.Errorf("version %d is active, but which instances run it cannot be told: %w", number, err))
			}
			return 0, failed(fmt.Errorf("version %d is active, but after %v %d of %d instances do not run it: %s",
				number, patience, len(behind), len(list), strings.Join(behind, "; ")))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
