// Package simulate replays an access log under a policy set and tells what would have been denied.
//
// The log is read once, as a stream: lines are put in the order of their times within a bound, and each is decided by the
// limiter and the store in memory that also serve, with the log's own time as the clock. What is remembered is bounded: counts for each
// key, and each policy's demand (who asked when, for how much), from which [Suggestion] is searched.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// The defaults of Options.
const (
	DefaultReorder   = 10 * time.Second
	DefaultDenyShare = 0.001
	defaultMaxKeys   = 1_000_000
	defaultMaxEvents = 4_000_000
)

// Options say how a log is read and under what it is replayed.
type Options struct {
	// Policies are those to try. Required. Overrides with an `until` end by the log's time.
	Policies *policy.Set
	// Domain is that of the requests: which policy files serve them.
	Domain string
	// Fields say where a log has what, before the names that are known anyway.
	Fields []Field
	// HashedKeys takes API keys of the form ak_… for hashes, not keys.
	HashedKeys bool
	// SkipDenied leaves out lines whose status is 429: they were denied when the log was written.
	SkipDenied bool
	// DenyShare is the share of requests, at least 0 and less than 1, that a suggestion may deny.
	DenyShare float64
	// Reorder is how much later than its successors in time a line may stand in the log. Negative: DefaultReorder.
	Reorder time.Duration
	// MaxKeys bounds for how many keys denials are counted. Default 1,000,000, of about 100 bytes each.
	MaxKeys int
	// MaxEvents bounds how much demand is kept for suggestions, over all policies. Default 4,000,000, of 16 bytes each. With
	// more, that of half the keys of the largest policy is dropped, or, where a few keys ask for nearly all, what comes later.
	MaxEvents int
	// Progress, if set, is told every few thousand lines how many have been read.
	Progress func(lines int64)
	// OnDecision, if set, is told every decision and its time. It must not keep the decision.
	OnDecision func(at time.Time, d *ratelimit.Decision)
}

// ErrNothingRead is the error of a log without a line that could be read.
var ErrNothingRead = errors.New("no line of the log could be read")

// Run replays a log, gzipped or not. Errors are those of reading and of ctx, wrong Options, and ErrNothingRead, with which
// there is a report all the same.
func Run(ctx context.Context, log io.Reader, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	set := o.Policies
	if o.HashedKeys {
		set = set.WithHashedKeys()
	}
	r := newReplay(&o, set)
	lines, err := newLines(log)
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx, lines); err != nil {
		return nil, fmt.Errorf("line %d: %w", lines.n, err)
	}
	report := r.report()
	if report.Lines.Replayed+report.Lines.Skipped == 0 {
		return report, ErrNothingRead
	}
	return report, nil
}

func (o *Options) check() error {
	switch {
	case o.Policies == nil:
		return errors.New("no policies")
	case !(o.DenyShare >= 0 && o.DenyShare < 1):
		return fmt.Errorf("denial share %v: must be at least 0 and less than 1", o.DenyShare)
	case !o.Policies.View([]byte(o.Domain)).Known():
		return fmt.Errorf("no policy file serves domain %q", o.Domain)
	}
	if o.Reorder < 0 {
		o.Reorder = DefaultReorder
	}
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxEvents <= 0 {
		o.MaxEvents = defaultMaxEvents
	}
	return nil
}
