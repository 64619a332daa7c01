package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows on a terminal how far a long input has been read.
type progress struct {
	out   io.Writer // nil: nobody looks
	size  int64     // bytes; 0: not known
	read  int64
	next  time.Time
	shown bool
}

const (
	progressAfter = 500 * time.Millisecond // shorter input needs no bar
	progressEvery = 200 * time.Millisecond
	progressWidth = 30
)

func newProgress(out io.Writer, size int64) *progress {
	if !isTerminal(out) {
		out = nil
	}
	return &progress{out: out, size: size, next: time.Now().Add(progressAfter)}
}

// isTerminal reports whether a person may be looking at out.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// reader counts what is read of r.
func (p *progress) reader(r io.Reader) io.Reader { return &progressReader{r, p} }

type progressReader struct {
	io.Reader
	p *progress
}

// Read implements io.Reader.
func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.p.read += int64(n)
	return n, err
}

func (p *progress) show(lines int64) {
	if p.out == nil || time.Now().Before(p.next) {
		return
	}
	p.next, p.shown = time.Now().Add(progressEvery), true
	fmt.Fprintf(p.out, "\r%s", p.bar(lines))
}

// bar is one line, without its end.
func (p *progress) bar(lines int64) string {
	if p.size <= 0 {
		return fmt.Sprintf("%d lines", lines)
	}
	done := min(float64(p.read)/float64(p.size), 1)
	full := int(done * progressWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%  %d lines", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), done*100, lines)
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", progressWidth+30))
	}
}
