package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// asked is what explain is asked about.
type asked struct {
	policies string
	domain   string
	attrs    []string
	cost     uint64
	json     string
	hashed   bool
	addr     string
	trust    trust
	format   *choice
}

func newExplain() *cobra.Command {
	a := asked{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say which policies apply to a request, and why",
		Long: `Says which policies apply to a request, which nearly do and what is missing or differs, by which keys the request is counted and
by which numbers, and what its client would be told if every bucket were full. Nothing is charged and no service is asked.

With --addr a running service is asked instead, at its admin address: by its policies, and by its buckets as they are, at which it only looks.

The request is given by its attributes, or as Envoy's own: a RateLimitRequest in JSON. An attribute that is given twice has two
values, each in a descriptor of its own. API keys are shown as their hashes, in the form that a policy file may have. Who knows only the
hash gives that, with --hashed.

Without --domain the only domain of the files is meant.`,
		Example: `  envoy-rls explain --policies config/policies.yaml --attr route="POST /auth/login" --attr ip=203.0.113.7 --attr username=alice --cost 1
  envoy-rls explain --attr plan=free --attr apiKey=k1 --attr tenant=demo
  envoy-rls explain --attr plan=pro --attr apiKey=ak_5b11618c2e440278 --attr tenant=demo --hashed
  envoy-rls explain --addr localhost:8080 --attr plan=free --attr apiKey=k1 --attr tenant=demo
  echo '{"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "203.0.113.7"}]}]}' | envoy-rls explain --json -`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(cmd); err != nil {
				return err
			}
			report, err := a.report(cmd)
			switch {
			case err != nil:
				return err
			case a.format.value == "json":
				return writeJSON(cmd.OutOrStdout(), report)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), report)
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&a.policies, "policies", "config/policies.yaml", "policy file, or directory of them")
	flags.StringVar(&a.domain, "domain", "", "the request's domain")
	flags.StringArrayVar(&a.attrs, "attr", nil, "an attribute: NAME=VALUE; may be repeated")
	flags.Uint64Var(&a.cost, "cost", 1, "what the request costs; 0 only looks")
	flags.StringVar(&a.json, "json", "", "file with a RateLimitRequest in JSON; - is standard input")
	flags.BoolVar(&a.hashed, "hashed", false, "API keys of the form ak_… are hashes, not keys")
	flags.StringVar(&a.addr, "addr", "", "ask the service with this admin address: host:port or a URL")
	a.trust.flags(cmd)
	flags.Var(a.format, "format", "form of the output, and of faults")
	complete(cmd, "format", a.format.words)
	return cmd
}

// report asks the files, or the service.
func (a *asked) report(cmd *cobra.Command) (*explain.Report, error) {
	var req descriptors.Request
	if a.addr != "" {
		if err := a.request(&req, nil, cmd); err != nil {
			return nil, err
		}
		client, err := a.trust.client()
		if err != nil {
			return nil, misused("%w", err)
		}
		report, err := explain.Ask(cmd.Context(), adminhttp.Client{Addr: a.addr, HTTP: client}, &req, a.hashed)
		if err != nil {
			return nil, failed(err)
		}
		return report, nil
	}
	set, err := policy.Load(a.policies)
	if err != nil {
		return nil, faulty(err)
	}
	if a.hashed {
		set = set.WithHashedKeys()
	}
	if err := a.request(&req, set, cmd); err != nil {
		return nil, err
	}
	return explain.Full(cmd.Context(), set, &req, a.hashed), nil
}

// noArguments says how to give what was given as an argument.
func noArguments(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case strings.Contains(args[0], "="):
		return misused("attributes are given as --attr %s", args[0])
	}
	return misused("%q is not a flag: the policy files are given as --policies, attributes as --attr NAME=VALUE", args[0])
}

// check sees to it that there is one request to explain.
func (a *asked) check(cmd *cobra.Command) error {
	if a.json == "" && len(a.attrs) == 0 {
		return misused("say which request to explain: --attr NAME=VALUE for each attribute, or --json FILE")
	}
	if a.addr != "" && cmd.Flags().Changed("policies") {
		return misused("--policies does not go with --addr: the service has its own")
	}
	for _, name := range []string{"attr", "domain", "cost"} {
		if a.json != "" && cmd.Flags().Changed(name) {
			return misused("--%s does not go with --json, which gives the whole request", name)
		}
	}
	return nil
}

// request fills req with the request that is asked about, of the policies in set, or of a service's if that is nil.
func (a *asked) request(req *descriptors.Request, set *policy.Set, cmd *cobra.Command) error {
	if a.json != "" {
		return fromJSON(req, a.json, cmd.InOrStdin())
	}
	if err := a.fromAttrs(req); err != nil {
		return err
	}
	if cmd.Flags().Changed("cost") {
		req.SetCost(a.cost, false)
	}
	req.Domain = []byte(a.domain)
	if set == nil {
		return nil // the service knows its domains
	}
	if domains := set.Domains(); a.domain == "" && len(domains) == 1 {
		req.Domain = []byte(domains[0])
	}
	return nil
}

// fromAttrs makes descriptors of NAME=VALUE.
func (a *asked) fromAttrs(req *descriptors.Request) error {
	var attributes []descriptors.Attribute
	for _, attr := range a.attrs {
		name, value, ok := strings.Cut(attr, "=")
		if !ok || name == "" {
			return misused("--attr %s: must be NAME=VALUE", attr)
		}
		attributes = append(attributes, descriptors.Attribute{Name: name, Value: value})
	}
	if err := req.SetAttributes(attributes); err != nil {
		return misused("--attr %v", err)
	}
	return nil
}

// fromJSON reads a RateLimitRequest as Envoy would send it.
func fromJSON(req *descriptors.Request, path string, stdin io.Reader) error {
	var text []byte
	var err error
	if path == "-" {
		path = "standard input"
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return faulty(err)
	}
	var message rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(text, &message); err != nil {
		return faulty(jsonFault(policy.Text{Path: path, Data: text}, err))
	}
	wire, err := proto.Marshal(&message)
	if err != nil {
		return faulty(fmt.Errorf("%s: %w", path, err))
	}
	if err := req.Unmarshal(wire); err != nil {
		return faulty(fmt.Errorf("%s: %w", path, err))
	}
	if len(req.Domain) == 0 || len(req.Descriptors) == 0 {
		return faulty(errors.New(path + ": a request needs a domain and descriptors: the service refuses one without"))
	}
	return nil
}

// jsonPlace finds where the JSON library says that a fault is.
var jsonPlace = regexp.MustCompile(`(?s)^(?:proto:\W*)?(.*?)\s*\(line (\d+):(\d+)\):?\s*(.*)$`)

// requestFields are the names in a RateLimitRequest.
var requestFields = []string{
	"domain", "descriptors", "hitsAddend", "entries", "key", "value", "isNegativeHits", "limit", "requestsPerUnit", "unit",
}

// jsonValue finds what may be an API key.
var jsonValue = regexp.MustCompile(`"value"\s*:\s*"((?:[^"\\\n]|\\.)*)"`)

// jsonFault gives the JSON library's error the form of a policy file's fault. The line is shown without values.
func jsonFault(text policy.Text, err error) error {
	at := jsonPlace.FindStringSubmatch(err.Error())
	if at == nil {
		return fmt.Errorf("%s: not a RateLimitRequest: %w", text.Path, err)
	}
	message := strings.TrimSpace(at[1] + " " + at[4])
	fault := policy.Fault{Pos: policy.Position{File: text.Path}, Message: "not a RateLimitRequest: " + message}
	fault.Pos.Line, _ = strconv.Atoi(at[2]) // digits
	fault.Pos.Column, _ = strconv.Atoi(at[3])
	if _, name, ok := strings.Cut(message, `unknown field "`); ok {
		fault.Hint = policy.DidYouMean(strings.TrimSuffix(name, `"`), requestFields)
	}
	text.Data = jsonValue.ReplaceAllFunc(text.Data, func(found []byte) []byte {
		at := jsonValue.FindSubmatchIndex(found)
		return append(found[:at[2]:at[2]], strings.Repeat("*", utf8.RuneCount(found[at[2]:at[3]]))+`"`...)
	})
	return policy.Quote(policy.Faults{fault}, text)
}
