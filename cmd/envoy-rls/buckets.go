package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/buckets"
)

func newBuckets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "buckets",
		Short: "Look at one bucket of a running service, change it or block it",
		Long: `Asks a running service, at its admin address, about the one bucket that a key has under a policy. Every change is told to all instances, and
audited. Changes need a token (or, without this command, a client certificate); looking does not.

The bucket is given by its policy and what that counts by (its key and hashTag), or by an id of the page or of a block. API keys are given as they
are, or as their hashes with --hashed.`,
		Example: `  envoy-rls buckets show --policy login --attr ip=203.0.113.7 --attr username=alice
  envoy-rls buckets reset --token-file token --policy login --attr ip=203.0.113.7 --attr username=alice --reason "ticket 4711"
  envoy-rls buckets set --token-file token --policy tenant-ceiling --attr tenant=acme --remaining 50
  envoy-rls buckets block --token-file token --policy edge-ip --attr ip=203.0.113.7 --for 1h --reason scraping
  envoy-rls buckets unblock --token-file token --id block-0123456789ab`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newBucketAction(buckets.Show, "Say what a bucket has left, and whether it is blocked"),
		newBucketAction(buckets.Reset, "Make a bucket full"),
		newBucketAction(buckets.Refund, "Give units back", "cost"),
		newBucketAction(buckets.Set, "Leave just so many units, whatever there was", "remaining"),
		newBucketAction(buckets.Block, "Deny a bucket for a while", "for", "until"),
		newBucketAction(buckets.Unblock, "End a block"),
	)
	return cmd
}

// bucketFlags are the flags of one action.
type bucketFlags struct {
	addr, tokenFile string
	trust           trust
	question        buckets.Question
	attrs           []string
	cost, remaining uint64
	until           string
	format          *choice
}

func newBucketAction(action buckets.Action, short string, needs ...string) *cobra.Command {
	f := bucketFlags{format: newFormat()}
	cmd := &cobra.Command{
		Use: string(action), Short: short, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd); err != nil {
				return err
			}
			client, err := f.client()
			if err != nil {
				return misused("%w", err)
			}
			report, err := buckets.Ask(cmd.Context(), client, action, &f.question)
			switch {
			case errors.Is(err, adminhttp.ErrRefused):
				return faulty(err)
			case err != nil:
				return failed(err)
			case f.format.value == "json":
				return writeJSON(cmd.OutOrStdout(), report)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), report)
			return err
		},
	}
	f.register(cmd, action, needs)
	return cmd
}

func (f *bucketFlags) register(cmd *cobra.Command, action buckets.Action, needs []string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.addr, "addr", "localhost:8080", "the service's admin address: host:port or a URL")
	f.trust.flags(cmd)
	flags.StringVar(&f.question.Policy, "policy", "", "id of the policy")
	flags.StringArrayVar(&f.attrs, "attr", nil, "what it counts by: NAME=VALUE; may be repeated")
	flags.BoolVar(&f.question.Hashed, "hashed", false, "API keys of the form ak_… are hashes, not keys")
	flags.StringVar(&f.question.ID, "id", "", "the bucket's id, in place of all three")
	for _, name := range needs {
		switch name {
		case "cost":
			flags.Uint64Var(&f.cost, name, 0, "how many units to give back")
		case "remaining":
			flags.Uint64Var(&f.remaining, name, 0, "how many units to leave")
		case "for":
			flags.StringVar(&f.question.For, name, "", "how long: a time such as 30m, 1h or 7d")
		case "until":
			flags.StringVar(&f.until, name, "", "in place of --for, until when: such as 2030-01-31T12:00:00Z")
		}
	}
	if action != buckets.Show {
		flags.StringVar(&f.tokenFile, "token-file", "", "file with a token of who may change things")
		flags.StringVar(&f.question.Reason, "reason", "", "why, for the audit")
	}
	flags.Var(f.format, "format", "form of the output, and of faults")
	complete(cmd, "format", f.format.words)
}

// client asks the service.
func (f *bucketFlags) client() (c adminhttp.Client, err error) {
	c.Addr = f.addr
	if f.tokenFile != "" {
		if c.Token, err = buckets.ReadToken(f.tokenFile); err != nil {
			return c, err
		}
	}
	c.HTTP, err = f.trust.client()
	return c, err
}

// complete turns flags into a question.
func (f *bucketFlags) complete(cmd *cobra.Command) error {
	for _, attr := range f.attrs {
		name, value, ok := strings.Cut(attr, "=")
		if !ok || name == "" {
			return misused("--attr %s: must be NAME=VALUE", attr)
		}
		if f.question.Attributes == nil {
			f.question.Attributes = map[string]string{}
		}
		if _, twice := f.question.Attributes[name]; twice {
			return misused("--attr %s: given twice, and a bucket has one", name)
		}
		f.question.Attributes[name] = value
	}
	if f.question.ID == "" && f.question.Policy == "" {
		return misused("say which bucket: --policy ID and --attr NAME=VALUE, or --id ID")
	}
	flags := cmd.Flags()
	if flags.Changed("cost") {
		f.question.Cost = &f.cost
	}
	if flags.Changed("remaining") {
		f.question.Remaining = &f.remaining
	}
	if f.until != "" {
		until, err := time.Parse(time.RFC3339, f.until)
		if err != nil {
			return misused("--until %s: want a time such as 2030-01-31T12:00:00Z", f.until)
		}
		f.question.Until = &until
	}
	return nil
}
