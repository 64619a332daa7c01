package policy

import (
	"math"
	"regexp"
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
		return 0, "must be a number in plain decimal digits", plainDigits(text, whole)
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
func plainDigits(text string, whole bool) string {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && strings.HasPrefix(strings.ToLower(text), "0x") {
		return "write " + strconv.FormatInt(n, 10)
	}
	if strings.HasPrefix(text, "0") && !strings.HasPrefix(text, "0.") {
		return "" // octal to some readers, decimal to others
	}
	text, factor := strings.ReplaceAll(text, "_", ""), 1.0
	if groups.MatchString(text) {
		text = strings.ReplaceAll(text, ",", "")
	}
	if n := len(text) - 1; n > 0 {
		if f, ok := multiples[text[n]]; ok {
			text, factor = text[:n], f
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if f *= factor; err != nil || f < 0 || f > maxNumber || whole && !isWhole(f) {
		return ""
	}
	return "write " + strconv.FormatFloat(f, 'f', -1, 64)
}

// groups is a number with commas between its thousands.
var groups = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+$`)

// multiples are the suffixes that mean one thing only; m could be thousandths or a million.
var multiples = map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9}

// isWhole reports whether f has no fraction.
func isWhole(f float64) bool { return f == math.Trunc(f) }
