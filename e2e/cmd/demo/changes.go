package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// changes is a writer for what the processes log. It passes on what the service says about the policy files, with the faults of a file
// that was refused as `envoy-rls validate` prints them, and drops the rest. Safe for concurrent use.
type changes struct {
	out io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a line
}

// Write implements [io.Writer]. It fails only if out does.
func (c *changes) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for {
		line, rest, whole := bytes.Cut(c.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		text := change(string(line))
		c.rest = append(c.rest[:0], rest...)
		if _, err := io.WriteString(c.out, text); err != nil {
			return 0, err
		}
	}
}

// change gives what is shown of one line of the service's log (text form): nothing, unless it is about the policy files.
func change(line string) string {
	_, message, _ := strings.Cut(line, " msg=")
	quoted, err := strconv.QuotedPrefix(message)
	if err != nil || !strings.HasPrefix(quoted, `"polic`) {
		return ""
	}
	details := message[len(quoted):]
	message, _ = strconv.Unquote(quoted)
	before, fault, _ := strings.Cut(details, " error=")
	if fault == "" {
		return fmt.Sprintf("%s%s\n", message, details)
	}
	if text, err := strconv.Unquote(fault); err == nil {
		fault = text
	}
	return fmt.Sprintf("%s%s\n  %s\n", message, before, strings.ReplaceAll(fault, "\n", "\n  "))
}
