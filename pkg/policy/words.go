package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// String is the word for it in policy files.
func (m FailureMode) String() string { return wordOf(failureModes, m) }

// String is the word for it in policy files.
func (m MissingKey) String() string { return wordOf(missingKeys, m) }

// String is the word for it in policy files.
func (e Expose) String() string { return wordOf(exposes, e) }

// String is the word for it in policy files.
func (a Advertise) String() string { return wordOf(advertises, a) }

// String is the word for it in policy files.
func (m Mode) String() string { return wordOf(modes, m) }

// String is the word for it in policy files.
func (c Charge) String() string { return wordOf(charges, c) }

// String is the word for it in policy files.
func (n Normalize) String() string { return wordOf(normalizes, n) }

// wordOf is empty for what no word stands for.
func wordOf[T comparable](choices []choice[T], means T) string {
	for _, c := range choices {
		if c.means == means {
			return c.word
		}
	}
	return ""
}

// String is the end of the field's name: refillPerMinute has Minute.
func (u Unit) String() string {
	switch u {
	case PerSecond:
		return "Second"
	case PerMinute:
		return "Minute"
	case PerHour:
		return "Hour"
	case PerDay:
		return "Day"
	}
	return ""
}

// String gives the numbers in the words of policy files, without the overdraft: "token-bucket: capacity 20, refillPerMinute 100".
func (n *Numbers) String() string {
	if n.Kind == algorithm.SlidingLog {
		return fmt.Sprintf("%s: limit %s, window %s", n.Kind, FormatNumber(n.Capacity), FormatWindow(n.Window))
	}
	return fmt.Sprintf("%s: capacity %s, refillPer%s %s", n.Kind, FormatNumber(n.Capacity), n.Unit, FormatNumber(n.Refill))
}

// FormatNumber writes a number in plain decimal digits, as policy files have it.
func FormatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// String gives the condition as a line of match.
func (c Condition) String() string { return c.Attribute + ": " + c.wanted() }

func (c Condition) wanted() string {
	switch c.Kind {
	case Present:
		return `"*"`
	case Absent:
		return "absent"
	case Prefix:
		return strconv.Quote(c.Values[0] + "*")
	}
	list := make([]string, len(c.Values))
	for i, v := range c.Values {
		list[i] = v
		if !plainScalar(v) || len(c.Values) == 1 && (v == "absent" || strings.HasSuffix(v, "*")) {
			list[i] = strconv.Quote(v)
		}
	}
	if len(list) == 1 && list[0] == c.Values[0] {
		return list[0]
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// plainScalar reports whether nobody takes a value that stands without quotes for anything else.
func plainScalar(v string) bool {
	for i, r := range v {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || i > 0 && strings.ContainsRune("-./ ", r)) {
			return false
		}
	}
	return v != "" && strings.TrimSpace(v) == v
}
