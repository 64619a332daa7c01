package blocklist

import (
	"strings"
	"time"
	"unicode"
)

// Bounds of a block, for whoever takes one from somebody else.
const (
	Longest   = 366 * 24 * time.Hour
	MaxReason = 200 // bytes
	MaxActor  = 100 // bytes
)

// Clean is a text on one line of so many bytes at most, without control characters, marks that change the direction of writing, and bytes
// that are not UTF-8.
func Clean(s string, most int) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if !unicode.IsPrint(r) {
			r = ' '
		}
		if out.Len()+len(string(r)) > most {
			break
		}
		out.WriteRune(r)
	}
	return strings.TrimSpace(out.String())
}
