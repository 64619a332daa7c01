package policy

import (
	"fmt"
	"regexp"
	"slices"
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

// ParseTime reads a time as a policy file has it, such as 60s, 1h30m or 0s, and gives it in microseconds. message says what is wrong with
// it and hint what to write instead; both are empty if nothing is.
func ParseTime(text string) (micros int64, message, hint string) {
	if text == "0" || text == "0s" {
		return 0, "", ""
	}
	if micros, message, hint = parseWindow(text); message != "" && plainWindow(text) != "" {
		hint = "write " + plainWindow(text)
	}
	return micros, message, hint
}

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

// unitWords are what people write for a unit. m alone stays minutes, as in a window; M is a month to many.
var unitWords = map[string]string{
	"ms": "ms", "msec": "ms", "millisecond": "ms",
	"s": "s", "S": "s", "sec": "s", "second": "s",
	"m": "m", "min": "m", "minute": "m",
	"h": "h", "H": "h", "hr": "h", "hour": "h",
	"d": "d", "D": "d", "day": "d",
}

var wordyWindow = regexp.MustCompile(`^(?:\s*([0-9.]+)\s*([A-Za-z]+)\s*(?:,|and\s)?)+$`)

var wordyPart = regexp.MustCompile(`([0-9.]+)\s*([A-Za-z]+)`)

// plainWindow gives a time in words, such as "5 minutes", as parseWindow reads it; empty if it isn't one.
func plainWindow(text string) string {
	if !wordyWindow.MatchString(text) {
		return ""
	}
	var b strings.Builder
	for _, part := range wordyPart.FindAllStringSubmatch(text, -1) {
		word := part[2]
		if len(word) > 1 {
			word = strings.ToLower(word)
		}
		if unitWords[word] == "" {
			word = strings.TrimSuffix(word, "s")
		}
		b.WriteString(part[1] + unitWords[word])
	}
	if _, message, _ := parseWindow(b.String()); message != "" {
		return ""
	}
	return b.String()
}

// FormatWindow gives a time in microseconds as a policy file has it: 60s as 1m, 36h as 1d12h, 1500 µs as 1.5ms.
func FormatWindow(micros int64) string {
	if micros == 0 {
		return "0s"
	}
	text := ""
	for _, u := range slices.Backward(timeUnits) {
		if n := micros / u.means; n > 0 && u.word != "ms" {
			text += strconv.FormatInt(n, 10) + u.word
			micros %= u.means
		}
	}
	if micros > 0 {
		text += strconv.FormatFloat(float64(micros)/1e3, 'f', -1, 64) + "ms"
	}
	return text
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
