package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxSpan is the longest time that a bucket may need: as a window, or to be full again. Redis keeps keys that long.
const maxSpan = 3650 * 24 * time.Hour

// timeUnits are those of a window, in microseconds. A month or a year has no fixed length.
var timeUnits = []choice[int64]{
	{"ms", 1_000},
	{"s", 1_000_000},
	{"m", 60_000_000},
	{"h", 3_600_000_000},
	{"d", 86_400_000_000},
}

const unitsHint = "units are ms, s, m, h and d, as in 500ms, 60s, 1h30m, 720h or 30d"

// parseWindow reads a time such as 60s or 1h30m and gives it in microseconds. message says what is wrong with it.
func parseWindow(text string) (micros int64, message, hint string) {
	rest := text
	for rest != "" {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		number := rest[:n]
		rest = rest[n:]
		n = len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµμ"))
		unit := rest[:n]
		rest = rest[n:]
		part, message, hint := parsePart(number, unit)
		if message != "" {
			return 0, message, hint
		}
		if micros += part; micros > maxSpan.Microseconds() {
			return 0, "is longer than ten years", "the longest is 3650d"
		}
	}
	switch {
	case text == "":
		return 0, "is empty", unitsHint
	case micros == 0:
		return 0, "must be longer than nothing", ""
	}
	return micros, "", ""
}

// parsePart reads one number with its unit.
func parsePart(number, unit string) (micros int64, message, hint string) {
	integer, fraction, point := strings.Cut(number, ".")
	switch {
	case !digits(integer) || point && !digits(fraction):
		return 0, "is not a time", unitsHint
	case unit == "":
		return 0, "has no unit", unitsHint
	}
	size := int64(0)
	for _, u := range timeUnits {
		if u.word == unit {
			size = u.means
		}
	}
	if size == 0 {
		return 0, fmt.Sprintf("has the unknown unit %q", unit), unitsHint
	}
	n, err := strconv.ParseInt(integer, 10, 64)
	if err != nil || n > maxSpan.Microseconds()/size {
		return 0, "is longer than ten years", "the longest is 3650d"
	}
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > 6 {
		return 0, "is not a whole number of microseconds", ""
	}
	f, scale := int64(0), int64(1)
	for _, c := range fraction {
		f, scale = f*10+int64(c-'0'), scale*10
	}
	if f*size%scale != 0 {
		return 0, "is not a whole number of microseconds", ""
	}
	return n*size + f*size/scale, "", ""
}

// parseUntil reads a time of RFC 3339, or a date: its beginning in UTC.
func parseUntil(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && !t.IsZero() {
			return t, true
		}
	}
	return time.Time{}, false
}
