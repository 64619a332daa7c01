package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// simulation is what simulate is asked for.
type simulation struct {
	policies   string
	log        string
	domain     string
	fields     []string
	hashed     bool
	skipDenied bool
	denyShare  shareFlag
	reorder    time.Duration
	plot       string
	format     choice
}

func newSimulate() *cobra.Command {
	s := simulation{denyShare: simulate.DefaultDenyShare, format: choice{words: []string{"text", "json"}, value: "text"}}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay an access log, and say what would have been denied",
		Long: `Replays an access log by the log's own time, and says what the policies would have denied, whom, and with which numbers they would deny
no more than a wished share. No service is asked.

Each line is a request: Envoy's JSON log, or common or combined log format; gzipped or not. Fields that have the name of an attribute or
of an entry are that, and the usual names of time, status, address, method and path are known. Where a log has others, --field says so:
--field plan=req.x-plan takes the attribute plan from the field req.x-plan of a JSON line, or from x-plan within req. The names time,
status and cost are the request's time, its status, and what it costs.

Without --domain the only domain of the files is meant.`,
		Example: `  envoy-rls simulate --policies new.yaml --log access.log
  envoy-rls simulate --policies new.yaml --log access.log.gz --field plan=x-plan --field tenant=jwt.tenant --deny-share 0.5% --plot plot.svg
  kubectl logs envoy | envoy-rls simulate --policies new.yaml --log - --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&s.policies, "policies", "config/policies.yaml", "policy file, or directory of them")
	flags.StringVar(&s.log, "log", "", "the access log; - is standard input")
	flags.StringVar(&s.domain, "domain", "", "the requests' domain")
	flags.StringArrayVar(&s.fields, "field", nil, "where the log has an attribute: NAME=FIELD; may be repeated")
	flags.BoolVar(&s.hashed, "hashed", false, "API keys of the form ak_… are hashes, not keys")
	flags.BoolVar(&s.skipDenied, "skip-denied", false, "leave out requests that were answered with 429")
	flags.Var(&s.denyShare, "deny-share", "the share of requests that the suggested numbers may deny")
	flags.DurationVar(&s.reorder, "reorder", simulate.DefaultReorder, "how far a line may stand behind later ones")
	flags.StringVar(&s.plot, "plot", "", "file to write a plot to, in SVG: decisions over time, and the share denied over the capacity")
	flags.Var(&s.format, "format", "form of the output")
	return cmd
}

func (s *simulation) run(cmd *cobra.Command) error {
	o, err := s.options()
	if err != nil {
		return err
	}
	log, size, err := s.open(cmd.InOrStdin())
	if err != nil {
		return faulty(err)
	}
	defer func() { _ = log.Close() }() // only read
	p := newProgress(cmd.ErrOrStderr(), size)
	o.Progress = p.show
	report, err := simulate.Run(cmd.Context(), p.reader(log), o)
	p.clear()
	switch {
	case errors.Is(err, simulate.ErrNothingRead):
		for _, b := range report.BadLines {
			err = fmt.Errorf("%w\n  line %d %s", err, b.Line, b.Why)
		}
		return faulty(fmt.Errorf("%s: %w", s.log, err))
	case err != nil:
		return faulty(fmt.Errorf("%s: %w", s.log, err))
	}
	if s.plot != "" {
		if err := writePlot(s.plot, report); err != nil {
			return faulty(err)
		}
	}
	return s.write(cmd.OutOrStdout(), report)
}

// options checks the flags.
func (s *simulation) options() (simulate.Options, error) {
	o := simulate.Options{HashedKeys: s.hashed, SkipDenied: s.skipDenied, DenyShare: float64(s.denyShare), Reorder: s.reorder}
	if s.log == "" {
		return o, misused("say which access log to replay: --log FILE")
	}
	if s.reorder < 0 {
		return o, misused("--reorder %s: is negative", s.reorder)
	}
	for _, text := range s.fields {
		f, err := simulate.ParseField(text)
		if err != nil {
			return o, misused("--field %s: %w", text, err)
		}
		o.Fields = append(o.Fields, f)
	}
	set, err := policy.Load(s.policies)
	if err != nil {
		return o, faulty(err)
	}
	o.Policies, o.Domain = set, s.domain
	if domains := set.Domains(); s.domain == "" && len(domains) == 1 {
		o.Domain = domains[0]
	}
	if !set.View([]byte(o.Domain)).Known() {
		return o, misused("no policy serves domain %q: give one with --domain", o.Domain)
	}
	return o, nil
}

// open gives the log and its size in bytes, 0 if that is not known.
func (s *simulation) open(stdin io.Reader) (io.ReadCloser, int64, error) {
	if s.log == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	file, err := os.Open(s.log)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (s *simulation) write(out io.Writer, r *simulate.Report) error {
	if s.format.value == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.WriteText(out)
}

func writePlot(path string, r *simulate.Report) error {
	var plot bytes.Buffer
	if err := r.WriteSVG(&plot); err != nil {
		return err
	}
	return os.WriteFile(path, plot.Bytes(), 0o644) // for a browser to read, which may be somebody else's
}

// shareFlag is a share of requests: 0.1% or 0.001.
type shareFlag float64

// String implements cobra's flag value.
func (s *shareFlag) String() string { return simulate.Percent(float64(*s)) }

// Type implements cobra's flag value.
func (s *shareFlag) Type() string { return "share" }

// Set implements cobra's flag value.
func (s *shareFlag) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if percent {
		n /= 100
	}
	if err != nil || !(n >= 0 && n < 1) {
		return errors.New("must be a share from 0 to less than 1, such as 0.1% or 0.001")
	}
	*s = shareFlag(n)
	return nil
}
