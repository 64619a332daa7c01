package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

// write prints the table, and writes the files that were asked for.
func (b *benchmark) write(cmd *cobra.Command, r *report.Report) error {
	var table, figures bytes.Buffer
	if err := r.WriteMarkdown(&table); err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(table.Bytes()); err != nil {
		return err
	}
	if err := r.WriteJSON(&figures); err != nil {
		return err
	}
	for path, text := range map[string][]byte{b.markdown: table.Bytes(), b.json: figures.Bytes()} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, text, 0o644); err != nil { // for others to read, too
			return err
		}
	}
	if b.svg == "" {
		return nil
	}
	_, err := r.WriteSVG(b.svg)
	return err
}

// bar shows on a terminal what is being done and how far that is. Elsewhere it writes a line when something else begins.
type bar struct {
	out      io.Writer
	terminal bool

	mu   sync.Mutex
	what string
	wide int
	next time.Time
}

func newBar(out io.Writer) *bar { return &bar{out: out, terminal: isTerminal(out)} }

// show may be called at any time, from any goroutine.
func (b *bar) show(what string, done float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	begins := what != b.what
	b.what = what
	if !b.terminal {
		if begins {
			fmt.Fprintln(b.out, what)
		}
		return
	}
	if now := time.Now(); begins || now.After(b.next) || done == 1 {
		b.next = now.Add(progressEvery)
		full := int(min(max(done, 0), 1) * progressWidth)
		line := fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), done*100, what)
		fmt.Fprintf(b.out, "\r%-*s", b.wide, line)
		b.wide = len(line)
	}
}

// clear takes the bar away.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.wide > 0 {
		fmt.Fprintf(b.out, "\r%s\r", strings.Repeat(" ", b.wide))
	}
}
