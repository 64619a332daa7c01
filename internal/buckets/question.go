package buckets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// maxBytes bounds a question, and an answer.
const maxBytes = 1 << 20

// which says which bucket is meant.
type which struct {
	Policy     string            `json:"policy,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Hashed: API keys may be given as their hashes.
	Hashed bool `json:"hashed,omitempty"`
	// ID stands for a bucket in place of all that.
	ID string `json:"id,omitempty"`
}

// question is the body of any request.
type question struct {
	which
	Cost      *uint64    `json:"cost,omitempty"`      // refund
	Remaining *uint64    `json:"remaining,omitempty"` // set
	For       string     `json:"for,omitempty"`       // block …
	Until     *time.Time `json:"until,omitempty"`     // … or
	Reason    string     `json:"reason,omitempty"`

	lasts time.Duration // For, once checked
}

// fields are what the body may have, beside what says which bucket.
var fields = map[Action][]string{
	Show:    {},
	Reset:   {"reason"},
	Refund:  {"cost", "reason"},
	Set:     {"remaining", "reason"},
	Block:   {"for", "until", "reason"},
	Unblock: {"reason"},
}

var whichFields = []string{"policy", "attributes", "hashed", "id"}

var unknownField = regexp.MustCompile(`^json: unknown field "(.*)"$`)

// read reads a body that has nothing but what the action knows.
func read(action Action, body io.Reader) (*question, error) {
	raw := json.NewDecoder(body)
	raw.DisallowUnknownFields()
	q := new(question)
	if err := raw.Decode(q); err != nil {
		return nil, bodyFault(action, err)
	}
	if _, err := raw.Token(); !errors.Is(err, io.EOF) { // More is content with a bracket that closes nothing
		return nil, faultf(http.StatusBadRequest, "the body: want one object and nothing after it")
	}
	for name, given := range map[string]bool{
		"cost": q.Cost != nil, "remaining": q.Remaining != nil, "for": q.For != "", "until": q.Until != nil, "reason": q.Reason != "",
	} {
		if given && !allowed(action, name) {
			return nil, faultf(http.StatusBadRequest, "the body: %s has no field %q", action, name)
		}
	}
	q.Reason = blocklist.Clean(q.Reason, blocklist.MaxReason)
	return q, nil
}

func allowed(action Action, name string) bool {
	for _, f := range fields[action] {
		if f == name {
			return true
		}
	}
	return false
}

func bodyFault(action Action, err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return faultf(http.StatusRequestEntityTooLarge, "the body: more than %d bytes", tooLarge.Limit)
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return faultf(http.StatusBadRequest, "the body: %s has no field %q%s", action, shorten(m[1]), hint(m[1], append(fields[action], whichFields...)))
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) { // its text quotes numbers only
		return faultf(http.StatusBadRequest, "the body: %s: got %s, want %s", wrongType.Field, wrongType.Value, kindOf(wrongType))
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return faultf(http.StatusBadRequest, "the body: not JSON from byte %d on", syntax.Offset)
	}
	return faultf(http.StatusBadRequest, "the body: want a JSON object, with a time as 2030-01-31T12:00:00Z")
}

func kindOf(e *json.UnmarshalTypeError) string {
	switch {
	case strings.HasPrefix(e.Type.String(), "uint"):
		return "a whole number, 0 or more"
	case e.Type.String() == "bool":
		return "true or false"
	case strings.HasPrefix(e.Type.String(), "map"):
		return "an object with strings"
	}
	return "a " + e.Type.String()
}

// check finds what the action cannot be done with.
func (q *question) check(action Action, t *target) error {
	switch {
	case action == Unblock:
		return nil
	case t.policy == nil:
		return faultf(http.StatusConflict, "policy %q is not in force any more", t.policyID)
	case action == Block:
		return q.checkBlock(time.Now())
	case action == Refund && (q.Cost == nil || *q.Cost == 0):
		return faultf(http.StatusBadRequest, "cost: say how many units to give back, 1 or more")
	case action == Set && q.Remaining == nil:
		return faultf(http.StatusBadRequest, "remaining: say how many units the bucket is to have left")
	case action == Set && float64(*q.Remaining) > t.limits.Capacity:
		return faultf(http.StatusBadRequest, "remaining: %d is more than the %s that the bucket holds", *q.Remaining, policy.FormatNumber(t.limits.Capacity))
	}
	return nil
}

func (q *question) checkBlock(now time.Time) error {
	switch {
	case q.Reason == "":
		return faultf(http.StatusBadRequest, "reason: say why, for those who find the block")
	case (q.For == "") == (q.Until == nil):
		return faultf(http.StatusBadRequest, "say when the block ends: for, such as 1h, or until, such as %s", now.Add(time.Hour).UTC().Format(time.RFC3339))
	}
	if q.For != "" {
		us, message, hint := policy.ParseTime(q.For)
		if message == "" && us == 0 {
			message = "must be longer than nothing"
		}
		if message != "" {
			return faultf(http.StatusBadRequest, "for: %q %s", shorten(q.For), joined(message, hint))
		}
		q.lasts = time.Duration(us) * time.Microsecond
	} else {
		q.lasts = q.Until.Sub(now)
	}
	switch {
	case q.lasts <= 0:
		return faultf(http.StatusBadRequest, "until: %s is over", q.Until.UTC().Format(time.RFC3339))
	case q.lasts > blocklist.Longest:
		return faultf(http.StatusBadRequest, "a block lasts for %d days at most", blocklist.Longest/(24*time.Hour))
	}
	return nil
}

func joined(message, hint string) string {
	if hint == "" {
		return message
	}
	return fmt.Sprintf("%s (%s)", message, hint)
}

// until is when a block that begins now ends, to the millisecond.
func (q *question) until(now time.Time) time.Time {
	if q.Until != nil {
		return q.Until.Truncate(time.Millisecond)
	}
	return now.Add(q.lasts).Truncate(time.Millisecond)
}

func (t *target) shadow() bool { return t.policy != nil && t.policy.Mode == policy.Shadow }
