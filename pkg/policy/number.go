package policy

import (
	"math"
	"strconv"
	"strings"
)

// maxNumber is the largest number that a header field can carry: a structured-field integer has at most 15 digits.
const maxNumber = 999_999_999_999_999

// parseNumber reads a number that is written in plain decimal digits. The YAML notations that mean different things to different
// readers (0x10, 010, 1_000, 1e3) are refused. message says what is wrong, hint what to write instead.
func parseNumber(text string, whole bool) (value float64, message, hint string) {
	integer, fraction, point := strings.Cut(text, ".")
	switch {
	case strings.HasPrefix(text, "-") && text != "-":
		return 0, "must not be negative", ""
	case isNotFinite(text):
		return 0, "must be a finite number", ""
	case !digits(integer) || point && !digits(fraction) || len(integer) > 1 && integer[0] == '0':
		return 0, "must be a number in plain decimal digits", plainDigits(text)
	case whole && point:
		return 0, "must be a whole number", ""
	case len(integer) > 15 || len(fraction) > 15:
		return 0, "has more than 15 digits", "the largest is 999999999999999"
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, "must be a number in plain decimal digits", ""
	}
	return value, "", ""
}

func isNotFinite(text string) bool {
	switch strings.ToLower(strings.TrimLeft(text, "+.")) {
	case "inf", "infinity", "nan":
		return true
	default:
		return false
	}
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// plainDigits is the hint for a number in another notation, where only one value can be meant.
func plainDigits(text string) string {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && n >= 0 && n <= maxNumber && !strings.HasPrefix(text, "0") {
		return "write " + strconv.FormatInt(n, 10)
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && strings.HasPrefix(strings.ToLower(text), "0x") {
		return "write " + strconv.FormatInt(n, 10)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f <= maxNumber && !strings.HasPrefix(text, "0") {
		return "write " + strconv.FormatFloat(f, 'f', -1, 64)
	}
	return ""
}

// isWhole reports whether f has no fraction.
func isWhole(f float64) bool { return f == math.Trunc(f) }
