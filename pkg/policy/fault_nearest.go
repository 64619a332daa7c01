package policy

import (
	"fmt"
	"slices"
	"strings"
)

// DidYouMean is the [Fault.Hint] for a wrong name: the nearest right one; empty if none is near.
func DidYouMean(wrong string, right []string) string {
	if best := nearest(wrong, right); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// synonyms are words that other limiters and gateways have for one of ours.
var synonyms = map[string]string{
	"sliding-window": "sliding-log",
	"fixed-window":   "sliding-log",
	"leaky-bucket":   "token-bucket",
	"gcra":           "token-bucket",
	"allow":          "open",
	"fail-open":      "open",
	"deny":           "closed",
	"fail-closed":    "closed",
	"dry-run":        "shadow",
}

// meant gives the one of the right words that has a synonym like wrong, else wrong itself.
func meant(wrong string, right []string) string {
	for synonym, word := range synonyms {
		if fold(synonym) == fold(wrong) && slices.Contains(right, word) {
			return word
		}
	}
	return wrong
}

// nearest gives the name that wrong is most likely a misspelling of, or "" if there is none.
func nearest(wrong string, right []string) string {
	const longest = 64 // nobody misspells a name as something longer
	if len(wrong) > longest {
		return ""
	}
	folded := fold(wrong)
	best, bestDistance := "", 1+max(1, len(folded)/3)
	for _, name := range right {
		if d := distance(folded, fold(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// fold removes what people most often get wrong in a name: case, hyphens, underscores.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// distance counts the insertions, deletions, substitutions and swaps of neighbours that lead from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			substitute := last[j]
			if a[i] != b[j] {
				substitute++
			}
			row[j+1] = min(substitute, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// oneOf lists names as prose: a, b or c.
func oneOf(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
