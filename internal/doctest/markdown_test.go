package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// block is one fenced code block of a Markdown file.
type block struct {
	file string
	line int    // of its opening fence, from 1
	lang string // the first word after the fence
	mark string // the second: "demo" for commands that need the running demo
	body string
}

func (b block) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: ```%s block: %w", b.file, b.line, b.lang, fmt.Errorf(format, args...))
}

// document is one Markdown file, taken apart.
type document struct {
	path   string
	blocks []block
	prose  []string // the lines outside of code blocks; empty inside, so that indexes are line numbers
}

// parse takes a Markdown file apart. An unclosed fence is an error: everything after it would go unchecked.
func parse(path, text string) (document, error) {
	doc := document{path: path}
	var open *block
	var body []string
	var indent string // of the opening fence: a block in a list stands further in
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			words := append(strings.Fields(strings.Trim(strings.TrimSpace(line), "`")), "", "")
			open, body = &block{file: path, line: i + 1, lang: words[0], mark: words[1]}, nil
			indent = line[:strings.Index(line, "`")]
		case fence:
			open.body = strings.Join(body, "\n") + "\n"
			doc.blocks = append(doc.blocks, *open)
			open = nil
		case open != nil:
			body = append(body, strings.TrimPrefix(line, indent))
		default:
			doc.prose = append(doc.prose, make([]string, i-len(doc.prose))...)
			doc.prose = append(doc.prose, line)
		}
	}
	if open != nil {
		return doc, open.errorf("never closed")
	}
	return doc, nil
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`^#+\s+(.*)$`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkLinks reports links into the project that lead nowhere. Links to other hosts are not followed.
func checkLinks(root string, doc document) []error {
	var faults []error
	for i, line := range doc.prose {
		for _, match := range linkPattern.FindAllStringSubmatch(line, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			if err := checkLink(root, doc, match[1]); err != nil {
				faults = append(faults, fmt.Errorf("%s:%d: link %s: %w", doc.path, i+1, match[1], err))
			}
		}
	}
	return faults
}

func checkLink(root string, doc document, link string) error {
	target, anchor, _ := strings.Cut(link, "#")
	if target != "" {
		path := filepath.Join(filepath.Dir(doc.path), target)
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			return fmt.Errorf("no such file")
		}
		if anchor == "" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		if doc, err = parse(path, string(text)); err != nil {
			return err
		}
	}
	for _, line := range doc.prose {
		if match := headingPattern.FindStringSubmatch(line); match != nil && anchorOf(match[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("no such heading")
}

// anchorOf gives the anchor that GitHub makes of a heading.
func anchorOf(heading string) string {
	plain := notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(strings.TrimSpace(plain), " ", "-")
}
