package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

func (v *versions) newList() *cobra.Command {
	limit := 20
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest versions, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return misused("--limit %d: must be at least 1", limit)
			}
			db, err := v.open()
			if err != nil {
				return err
			}
			list, err := db.List(cmd.Context(), limit)
			if err != nil {
				return databaseError(err)
			}
			return v.print(cmd.OutOrStdout(), append([]policydb.Version{}, list...), func(out io.Writer) { writeVersions(out, list) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many at most")
	return cmd
}

func writeVersions(out io.Writer, list []policydb.Version) {
	if len(list) == 0 {
		fmt.Fprintln(out, "no policies have been published")
		return
	}
	table := newTable(out)
	fmt.Fprintln(table, "VERSION\tSTATE\tPUBLISHED\tAUTHOR\tCOMMENT")
	for _, v := range list {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", v.Number, cell(string(v.State)), when(v.Created), cell(v.Author), cell(v.Comment))
	}
	_ = table.Flush() // as with fmt.Fprintln: who closes the output wants no more
}

func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// shown is a version in JSON.
type shown struct {
	policydb.Version
	Files []shownFile `json:"files"`
}

type shownFile struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

func (v *versions) newShow() *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "show VERSION|active",
		Short: "Show a version with its files",
		Example: `  envoy-rls policies show 7
  envoy-rls policies show active --file policies.yaml > policies.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := v.get(cmd.Context(), args[0])
			if err != nil {
				return databaseError(err)
			}
			if name != "" {
				return writeFile(cmd.OutOrStdout(), version, name)
			}
			s := shown{Version: version}
			for _, f := range version.Files {
				s.Files = append(s.Files, shownFile{f.Path, string(f.Data)})
			}
			return v.print(cmd.OutOrStdout(), s, func(out io.Writer) { s.write(out) })
		},
	}
	cmd.Flags().StringVar(&name, "file", "", "show only this file, as it is")
	return cmd
}

// get gives a version by its number, or the active one.
func (v *versions) get(ctx context.Context, which string) (policydb.Version, error) {
	db, err := v.open()
	if err != nil {
		return policydb.Version{}, err
	}
	number := int64(0)
	if which == "active" {
		active, err := db.Active(ctx)
		if err != nil {
			return active, err
		}
		number = active.Number
	} else if number, err = versionNumber(which); err != nil {
		return policydb.Version{}, err
	}
	return db.Get(ctx, number)
}

func writeFile(out io.Writer, version policydb.Version, name string) error {
	var names []string
	for _, f := range version.Files {
		if f.Path == name {
			_, err := out.Write(f.Data)
			return err
		}
		names = append(names, printable(f.Path))
	}
	return faulty(fmt.Errorf("version %d has no file %s; it has %s", version.Number, name, strings.Join(names, ", ")))
}

func (s *shown) write(out io.Writer) {
	fmt.Fprintf(out, "version    %d, %s\nauthor     %s\npublished  %s\ncomment    %s\n", s.Number, cell(string(s.State)), cell(s.Author), when(s.Created), cell(s.Comment))
	if s.BasedOn > 0 {
		fmt.Fprintf(out, "based on   %d\n", s.BasedOn)
	}
	if s.Restores > 0 {
		fmt.Fprintf(out, "restores   %d\n", s.Restores)
	}
	fmt.Fprintf(out, "sha256     %s\n", s.SHA256)
	for _, f := range s.Files {
		fmt.Fprintf(out, "\n--- %s\n", printable(f.Name))
		for line := range strings.Lines(f.Content) {
			fmt.Fprintln(out, printable(strings.TrimRight(line, "\r\n")))
		}
	}
}

// fleet is what status says in JSON.
type fleet struct {
	Active    *policydb.Version `json:"active"`
	Instances []member          `json:"instances"`

	none string // why there is no active version
}

type member struct {
	ID       string `json:"id"`
	Version  int64  `json:"version"`
	Policies string `json:"policies"` // the version of the set, as metrics show it
	State    string `json:"state"`    // up-to-date, behind, refuses, kept
	Error    string `json:"error,omitempty"`
	Build    string `json:"build"`
	// SinceSeconds is how long the version has been in force, UpSeconds how long the instance has been running, SeenSeconds how long ago it said so.
	SinceSeconds float64 `json:"sinceSeconds"`
	UpSeconds    float64 `json:"upSeconds"`
	SeenSeconds  float64 `json:"seenSeconds"`
}

func (v *versions) newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say which instance runs which version",
		Long: `Says which version is active, and which version each instance runs, by its own account of a few seconds ago. An instance that has not been
heard of for half a minute is left out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := v.open()
			if err != nil {
				return err
			}
			f := fleet{Instances: []member{}}
			active, err := db.Active(cmd.Context())
			if err == nil {
				f.Active = &active
			} else if f.none = strings.TrimPrefix(err.Error(), policydb.ErrNoVersion.Error()+": "); !errors.Is(err, policydb.ErrNoVersion) {
				return databaseError(err)
			}
			list, err := db.Instances(cmd.Context())
			if err != nil {
				return databaseError(err)
			}
			for _, i := range list {
				f.Instances = append(f.Instances, member{
					ID: i.ID, Version: i.Version, Policies: i.Policies, State: f.state(i), Error: i.Error, Build: i.Build,
					SinceSeconds: i.Since.Seconds(), UpSeconds: i.Up.Seconds(), SeenSeconds: i.Seen.Seconds(),
				})
			}
			return v.print(cmd.OutOrStdout(), f, f.write)
		},
	}
}

func (f *fleet) write(out io.Writer) {
	if f.Active == nil {
		fmt.Fprintln(out, f.none)
	} else {
		fmt.Fprintf(out, "active: %s\n", described(*f.Active))
	}
	if len(f.Instances) == 0 {
		fmt.Fprintln(out, "no instance has been heard of")
		return
	}
	fmt.Fprintln(out)
	table := newTable(out)
	fmt.Fprintln(table, "INSTANCE\tVERSION\tFOR\tSEEN\tBUILD\tSTATE")
	for _, i := range f.Instances {
		fmt.Fprintf(table, "%s\t%d\t%s\t%.1fs ago\t%s\t%s\n", cell(i.ID), i.Version, time.Duration(i.SinceSeconds)*time.Second, i.SeenSeconds,
			cell(i.Build), i.words())
	}
	_ = table.Flush()
}

// The states of an instance.
const (
	upToDate = "up-to-date"
	behind   = "behind"
	refuses  = "refuses"
	kept     = "kept"
)

// state says how an instance stands to the active version.
func (f *fleet) state(i policydb.Instance) string {
	switch {
	case i.Error != "":
		return refuses
	case f.Active != nil && i.Version != f.Active.Number:
		return behind
	case i.Kept:
		return kept
	}
	return upToDate
}

// words is the state for people.
func (m *member) words() string {
	switch m.State {
	case refuses:
		return "refuses: " + firstLine(m.Error)
	case kept:
		return "kept: has not reached the database since it started"
	case upToDate:
		return "up to date"
	}
	return m.State
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return cell(line)
}
