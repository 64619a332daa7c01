package doctest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// checker checks documents. Its fields are what blocks need to run.
type checker struct {
	root    string
	scratch string   // for files of its own
	envoy   string   // the real Envoy; empty: not installed
	box     *sandbox // for the commands of one document
	// startDemo gives a sandbox with the demo running, for commands that need it. It is called once, if at all.
	startDemo func() *sandbox
	demo      *sandbox
	// startPostgres gives an empty database, for commands and statements that need one. It is called once, if at all.
	startPostgres func() *postgres
	postgres      *postgres
	// counts has how many blocks of each language were checked, so that a search that finds nothing is noticed.
	counts map[string]int
	// notChecked are blocks that need what is not there.
	notChecked []string
}

// check reports every fault of a document.
func (c *checker) check(ctx context.Context, path, text string) []error {
	doc, err := parse(path, text)
	if err != nil {
		return []error{err}
	}
	faults := checkLinks(c.root, doc)
	for _, b := range doc.blocks {
		if err := c.checkBlock(ctx, b); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// commandLike finds what would be a command in a block that is not run.
var commandLike = regexp.MustCompile(`(?m)^\s*(\$ |make |curl |envoy-rls )`)

func (c *checker) checkBlock(ctx context.Context, b block) error {
	c.counts[b.lang]++
	switch b.lang {
	case "sh", "console":
		return c.checkCommands(ctx, b)
	case "sql":
		if !c.hasPostgres() {
			c.skip(b)
			return nil
		}
		return c.postgres.checkSQL(ctx, b)
	case "yaml":
		return c.checkYAML(ctx, b)
	case "go":
		return c.checkGo(b)
	case "json":
		if !json.Valid([]byte(b.body)) {
			return b.errorf("not valid JSON")
		}
		return nil
	case "text", "http", "promql":
		if found := commandLike.FindString(b.body); found != "" {
			return b.errorf("holds a command (%s): make it sh or console, so that it is run", strings.TrimSpace(found))
		}
		return nil
	default:
		return b.errorf("unknown kind; use sh, console, sql, yaml, go, json, http or text")
	}
}

func (c *checker) checkCommands(ctx context.Context, b block) error {
	box := c.box
	switch b.mark {
	case "":
	case "demo":
		if c.envoy == "" {
			c.skip(b)
			return nil
		}
		if c.demo == nil {
			c.demo = c.startDemo()
		}
		box = c.demo
	case "postgres":
		if !c.hasPostgres() {
			c.skip(b)
			return nil
		}
		box = c.postgres.box
	default:
		return b.errorf("unknown mark %q; there are demo and postgres", b.mark)
	}
	if b.lang == "sh" {
		return box.checkShell(ctx, b)
	}
	err := box.checkConsole(ctx, b)
	for attempt := 1; err != nil && b.mark == "demo" && attempt < demoAttempts; attempt++ {
		err = box.checkConsole(ctx, b)
	}
	return err
}

// demoAttempts is how often a block may be tried against the demo: what a limiter says depends on how fast the machine is.
const demoAttempts = 5

// skip notes that a block needs the real Envoy or PostgreSQL, which is not there.
func (c *checker) skip(b block) {
	c.notChecked = append(c.notChecked, fmt.Sprintf("%s:%d", b.file, b.line))
}

// documents lists the project's Markdown files, relative to root.
func documents(root string) ([]string, error) {
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			paths = append(paths, relative)
		}
	}
	return paths, nil
}
