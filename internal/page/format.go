package page

import (
	"math"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/topkeys"
)

const halfLife = topkeys.HalfLife

// formatRate writes something per second.
func formatRate(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.1:
		return "<0.1"
	case n < 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return formatCalls(n)
}

// formatCalls writes a number of calls, in groups of three digits.
func formatCalls(n float64) string {
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// formatMicros writes a time that is told in microseconds.
func formatMicros(us *float64) string {
	switch {
	case us == nil:
		return "–"
	case *us < 10:
		return strconv.FormatFloat(*us, 'f', 1, 64) + " µs"
	case *us < 1000:
		return strconv.FormatFloat(*us, 'f', 0, 64) + " µs"
	case *us < 1e4:
		return strconv.FormatFloat(*us/1e3, 'f', 1, 64) + " ms"
	case *us < 1e6:
		return strconv.FormatFloat(*us/1e3, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(*us/1e6, 'f', 1, 64) + " s"
}

// formatTime writes a time so that it can be told to somebody elsewhere.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// formatAgo writes how long ago, or how far ahead, something is, seen from now.
func formatAgo(now, t time.Time) string {
	d := now.Sub(t)
	text := "ago"
	if d < 0 {
		d, text = -d, "from now"
	}
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s " + text
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min " + text
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h " + text
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days " + text
}
