package buckets

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
)

// mostKept is how many entries an instance keeps in memory.
const mostKept = 1000

// Entry is a change that somebody made or tried to make. There is nothing in it that a client sends.
type Entry struct {
	ID       string     `json:"id"`
	At       time.Time  `json:"at"`
	Instance string     `json:"instance,omitempty"`
	Actor    string     `json:"actor"`
	From     string     `json:"from"` // address of the request
	Action   Action     `json:"action"`
	Outcome  string     `json:"outcome"` // done, failed or unknown
	Policy   string     `json:"policy"`
	Key      string     `json:"key"` // in hidden form
	Cost     *uint64    `json:"cost,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Before   *float64   `json:"before,omitempty"` // remaining
	After    *float64   `json:"after,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// SharedLog keeps entries where all instances find them.
type SharedLog interface {
	Log(ctx context.Context, line []byte) error
	Lines(context.Context) ([]string, error)
}

// Audit keeps what was changed: in the log, the last 1,000 in memory, and as many where all instances find them as fit there. Make one with
// NewAudit. It is safe for concurrent use.
type Audit struct {
	instance string
	log      *slog.Logger
	shared   SharedLog

	mu      sync.Mutex
	entries []Entry // the oldest first
}

// NewAudit makes an empty Audit. shared may be nil: then it is one of this instance only.
func NewAudit(instance string, log *slog.Logger, shared SharedLog) *Audit {
	return &Audit{instance: instance, log: log, shared: shared}
}

const (
	mostPolicy = 256
	mostError  = 300
	mostLine   = 2 << 10
)

// add bounds an entry and keeps it.
func (a *Audit) add(ctx context.Context, e Entry) {
	e.Instance, e.Actor, e.From = a.instance, blocklist.Clean(e.Actor, blocklist.MaxActor), blocklist.Clean(e.From, blocklist.MaxActor)
	e.Policy, e.Error = blocklist.Clean(e.Policy, mostPolicy), blocklist.Clean(e.Error, mostError)
	a.mu.Lock()
	a.entries = append(a.entries[max(0, len(a.entries)-mostKept+1):], e)
	a.mu.Unlock()
	level, args := slog.LevelInfo, []any{
		"action", string(e.Action), "outcome", e.Outcome, "policy", e.Policy, "key", e.Key, "actor", e.Actor, "from", e.From, "reason", e.Reason, "id", e.ID,
	}
	for name, value := range map[string]*float64{"before": e.Before, "after": e.After} {
		if value != nil {
			args = append(args, name, *value)
		}
	}
	if e.Cost != nil {
		args = append(args, "cost", *e.Cost)
	}
	if e.Until != nil {
		args = append(args, "until", *e.Until)
	}
	if e.Error != "" {
		level, args = slog.LevelWarn, append(args, "error", e.Error)
	}
	a.log.Log(ctx, level, "a bucket was changed by hand", args...)
	if a.shared == nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = a.shared.Log(ctx, line)
	}
	if err != nil {
		a.log.Warn("other instances do not have the last entry of the audit", "id", e.ID, "error", err)
	}
}

// Recent is the last n entries of this instance, the newest first.
func (a *Audit) Recent(n int) []Entry {
	a.mu.Lock()
	entries := slices.Clone(a.entries[max(0, len(a.entries)-n):])
	a.mu.Unlock()
	slices.Reverse(entries)
	return entries
}

// list is the last n entries, the newest first, and whether they are of all instances.
func (a *Audit) list(ctx context.Context, n int) (entries []Entry, all bool) {
	entries = a.Recent(mostKept)
	if a.shared != nil {
		lines, err := a.shared.Lines(ctx)
		all = err == nil
		entries = merge(entries, lines)
	}
	slices.SortStableFunc(entries, func(x, y Entry) int { return y.At.Compare(x.At) })
	return entries[:min(n, len(entries))], all
}

// merge adds to entries what others have written. What is none of theirs is left out.
func merge(entries []Entry, lines []string) []Entry {
	have := map[string]bool{}
	for _, e := range entries {
		have[e.ID] = true
	}
	for _, line := range lines {
		var e Entry
		if len(line) > mostLine || json.Unmarshal([]byte(line), &e) != nil || e.ID == "" || have[e.ID] || !sound(&e) {
			continue
		}
		have[e.ID] = true
		entries = append(entries, e)
	}
	return entries
}

// sound cleans an entry that was read, and reports whether it can be one.
func sound(e *Entry) bool {
	if !slices.Contains(Actions(), e.Action) || !slices.Contains(Outcomes(), e.Outcome) {
		return false
	}
	for _, s := range []*string{&e.ID, &e.Instance, &e.Actor, &e.From, &e.Policy, &e.Key, &e.Reason, &e.Error} {
		*s = blocklist.Clean(*s, mostError)
	}
	return true
}
