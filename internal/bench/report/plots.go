package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WriteSVG writes plots into a folder, which is made if it is not there: for each scenario the latencies of its servers at its rates, and for all
// the CPU per call. It returns the names of the files.
func (r *Report) WriteSVG(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var files []string
	save := func(title string, draw func(*bytes.Buffer) error) error {
		name := fileName(title) + ".svg"
		for n := 2; slices.Contains(files, name); n++ { // titles that differ in what file names cannot have
			name = fmt.Sprintf("%s-%d.svg", fileName(title), n)
		}
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			return err
		}
		files = append(files, name)
		return os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644) // for a browser, which may be somebody else's
	}
	for _, group := range r.groups() {
		title := group[0].name() + ", " + group[0].rate()
		var curves []Curve
		for _, row := range group {
			curves = append(curves, Curve{row.Server, row.Curve})
		}
		err := save("latency "+title, func(b *bytes.Buffer) error { return WriteCurves(b, "Latency: "+title, curves) })
		if err != nil {
			return files, err
		}
	}
	var bars []Bar
	for i := range r.Rows {
		if row := &r.Rows[i]; row.CPU != nil {
			bars = append(bars, Bar{Name: row.name() + ", " + row.Rate + ", " + row.Server, Value: *row.CPU})
		}
	}
	if len(bars) == 0 {
		return files, nil
	}
	return files, save("cpu", func(b *bytes.Buffer) error { return WriteBars(b, "CPU per decision", "%.1f us", bars) })
}

// groups are the rows of a scenario at a rate, in order.
func (r *Report) groups() [][]*Row {
	var out [][]*Row
	at := map[string]int{}
	for i := range r.Rows {
		row := &r.Rows[i]
		key := row.name() + "|" + row.rate()
		if _, known := at[key]; !known {
			at[key] = len(out)
			out = append(out, nil)
		}
		out[at[key]] = append(out[at[key]], row)
	}
	return out
}

const longestName = 200

// fileName is a name that every file system takes, without its end.
func fileName(title string) string {
	clean := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '.':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return ' '
	}, title)
	name := strings.Join(strings.Fields(clean), "-")
	return name[:min(len(name), longestName)]
}
