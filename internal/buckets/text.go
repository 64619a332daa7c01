package buckets

import (
	"fmt"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// String is the report for people.
func (r *Report) String() string {
	var out strings.Builder
	mode := ""
	if r.Shadow {
		mode = ", shadow"
	}
	fmt.Fprintf(&out, "%s of %s (limit %s%s)\n", r.Policy, r.Key, policy.FormatNumber(r.Limit), mode)
	if r.Before != nil {
		fmt.Fprintf(&out, "before  %s\n", r.Before)
	}
	name := "after"
	if r.Action == Show {
		name = "now"
	}
	fmt.Fprintf(&out, "%-7s %s\n", name, &r.After)
	if r.Scope != "" {
		fmt.Fprintf(&out, "known   to %s\n", r.Scope)
	}
	if r.Warning != "" {
		fmt.Fprintf(&out, "warning %s\n", r.Warning)
	}
	return out.String()
}

// String is one line.
func (s *State) String() string {
	text := policy.FormatNumber(s.Remaining) + " left"
	if s.Unknown {
		text = "not known what is left"
	}
	if b := s.Block; b != nil {
		text += fmt.Sprintf(", blocked until %s by %s: %s", b.Until.Format(time.RFC3339), b.Actor, b.Reason)
	}
	return text
}
