package doctest

import (
	"os"
	"path/filepath"
	"strings"
)

// checkGo reports whether a block of Go stands, line by line, in the file that it names: an example that is compiled and run. Indentation
// does not count, and a line with nothing but … (in a comment, as Go wants it) stands for any number of lines.
func (c *checker) checkGo(b block) error {
	if filepath.Ext(b.mark) != ".go" {
		return b.errorf("name the Go file that the code stands in, behind the word go")
	}
	text, err := os.ReadFile(filepath.Join(c.root, filepath.FromSlash(b.mark)))
	if err != nil {
		return b.errorf("%w", err)
	}
	rest := plain(string(text))
	for part := range strings.SplitSeq(plain(b.body), "\n// …\n") {
		part = "\n" + strings.Trim(part, "\n") + "\n"
		_, after, found := strings.Cut(rest, part)
		if !found {
			return b.errorf("%s has no such lines, or not in this order:%s", b.mark, part)
		}
		rest = "\n" + after
	}
	return nil
}

// plain is text without indentation.
func plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return "\n" + b.String()
}
