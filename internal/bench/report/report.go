// Package report writes what the benchmark has measured: as JSON, as a Markdown table, and as plots in SVG. The same figures give the same bytes.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
)

// Report is a run of the benchmark.
type Report struct {
	Machine Machine   `json:"machine"`
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	// Peak is what 100 % means, in calls a second, and PeakIs where that number comes from.
	Peak   float64 `json:"peak"`
	PeakIs string  `json:"peakIs"`
	Rows   []Row   `json:"rows"`
}

// Machine is where it ran.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	System  string `json:"system"`
	Go      string `json:"go"`
	Version string `json:"version"` // of envoy-rls
	Redis   string `json:"redis,omitempty"`
}

// Row is what one server did in one scenario at one rate. What is not known is nil.
type Row struct {
	Scenario string  `json:"scenario"`
	Fault    string  `json:"fault"`
	Rate     string  `json:"rate"`                // as the scenario has it
	Wanted   float64 `json:"wantedRate,omitzero"` // calls a second; 0: closed loop
	Server   string  `json:"server"`

	Calls     int64            `json:"calls"`
	Allowed   int64            `json:"allowed"`
	Denied    int64            `json:"denied"`
	Errors    map[string]int64 `json:"errors,omitempty"`
	PerSecond float64          `json:"callsPerSecond"`

	P50 float64 `json:"p50Micros"`
	P95 float64 `json:"p95Micros"`
	P99 float64 `json:"p99Micros"`
	Max float64 `json:"maxMicros"`
	// Late is how late 99 of 100 calls were sent at most: with workers to spare, it is the generator that lacks cores.
	Late float64 `json:"sentLateP99Micros"`
	// Curve is the latency in microseconds by the share of calls that it covers.
	Curve []Point `json:"curve"`

	CPU              *float64  `json:"cpuMicrosPerCall,omitempty"`
	OfFloor          *float64  `json:"cpuOfFloor,omitempty"`
	RedisCPU         *float64  `json:"redisCPUMicrosPerCall,omitempty"`
	EmptyCPU         *float64  `json:"emptyScriptCPUMicros,omitempty"` // Redis CPU of an empty script, for each run of it
	ScriptsPerCall   *float64  `json:"scriptsPerCall,omitempty"`
	ScriptsPerSecond []float64 `json:"scriptsPerSecondByShard,omitempty"`
	StoreShare       *float64  `json:"storeShare,omitempty"`
	BytesPerKey      *float64  `json:"bytesPerKey,omitempty"`
	Accuracy         *float64  `json:"accuracy,omitempty"`
	Deviation        float64   `json:"keyDeviation"`

	// Invalid is why the row must not be used; empty if nothing speaks against it.
	Invalid []string `json:"invalid,omitempty"`
}

// Point is a place on a curve.
type Point struct {
	Share  float64 `json:"share"`
	Micros float64 `json:"micros"`
}

// shares are where curves have points: evenly on a scale of nines.
var shares = []float64{
	0, 0.1, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99,
	0.9925, 0.995, 0.996, 0.997, 0.998, 0.999, 0.9995, 0.9999,
}

// SetLatency fills in what the row says about latency.
func (r *Row) SetLatency(l *bench.Latencies) {
	r.P50, r.P95, r.P99, r.Max = micros(l.At(0.50)), micros(l.At(0.95)), micros(l.At(0.99)), micros(l.Max())
	r.Curve = nil
	for _, q := range shares {
		if (1-q)*float64(l.Count()) >= 1 || q == 0 { // beyond, one call would be a line
			r.Curve = append(r.Curve, Point{q, micros(l.At(q))})
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Invalid is how many rows must not be used.
func (r *Report) Invalid() (n int) {
	for i := range r.Rows {
		if len(r.Rows[i].Invalid) > 0 {
			n++
		}
	}
	return n
}

// WriteJSON writes all of it.
func (r *Report) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// column is one of the Markdown table; text gives "" where nothing is known.
type column struct {
	head string
	text func(*Row) string
}

var columns = []column{
	{"scenario", func(r *Row) string { return r.name() }},
	{"rate", func(r *Row) string { return r.rate() }},
	{"server", func(r *Row) string { return r.Server }},
	{"calls/s", func(r *Row) string { return fmt.Sprintf("%.0f", r.PerSecond) }},
	{"denied", func(r *Row) string { return percent(float64(r.Denied) / float64(max(1, r.Calls))) }},
	{"p50", func(r *Row) string { return Millis(r.P50) }},
	{"p95", func(r *Row) string { return Millis(r.P95) }},
	{"p99", func(r *Row) string { return Millis(r.P99) }},
	{"CPU per call", func(r *Row) string { return optional(r.CPU, "%.1f us") }},
	{"of the floor", func(r *Row) string { return optional(r.OfFloor, "%.2f") }},
	{"Redis CPU per call", func(r *Row) string { return optional(r.RedisCPU, "%.2f us") }},
	{"empty script", func(r *Row) string { return optional(r.EmptyCPU, "%.2f us") }},
	{"scripts per call", func(r *Row) string { return optional(r.ScriptsPerCall, "%.4f") }},
	{"scripts/s by shard", func(r *Row) string { return list(r.ScriptsPerSecond) }},
	{"by the store", func(r *Row) string { return share(r.StoreShare) }},
	{"bytes per key", func(r *Row) string { return optional(r.BytesPerKey, "%.0f") }},
	{"allowed / limit", func(r *Row) string { return optional(r.Accuracy, "%.4f") }},
}

// WriteMarkdown writes a table of those columns in which something is known, the machine above it, and below it what is wrong with a row.
func (r *Report) WriteMarkdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n", r.Machine)
	if r.Peak > 0 {
		fmt.Fprintf(&b, "100 %% is %.0f calls a second: %s.\n\n", r.Peak, r.PeakIs)
	}
	var heads []string
	var used []column
	for _, c := range columns {
		for i := range r.Rows {
			if c.text(&r.Rows[i]) != "" {
				heads, used = append(heads, c.head), append(used, c)
				break
			}
		}
	}
	cells := [][]string{}
	for i := range r.Rows {
		var line []string
		for _, c := range used {
			line = append(line, c.text(&r.Rows[i]))
		}
		cells = append(cells, line)
	}
	b.WriteString(Table(heads, cells))
	for i := range r.Rows {
		for _, why := range r.Rows[i].Invalid {
			fmt.Fprintf(&b, "\nNOT VALID: %s, %s, %s: %s\n", r.Rows[i].name(), r.Rows[i].rate(), r.Rows[i].Server, why)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// String is the machine in one sentence, without its end.
func (m Machine) String() string {
	text := fmt.Sprintf("%s, %d cores, %s, %s, envoy-rls %s", m.CPU, m.Cores, m.System, m.Go, m.Version)
	if m.Redis != "" {
		text += ", Redis " + m.Redis
	}
	return text
}

// inCell keeps what would end a cell from doing so.
var inCell = strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ")

// Table is a Markdown table whose columns align.
func Table(heads []string, cells [][]string) string {
	width := make([]int, len(heads))
	all := [][]string{heads}
	for _, line := range cells {
		var safe []string
		for _, cell := range line {
			safe = append(safe, inCell.Replace(cell))
		}
		all = append(all, safe)
	}
	for _, line := range all {
		for i, cell := range line {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for n, line := range all {
		for i, cell := range line {
			fmt.Fprintf(&b, "| %-*s ", width[i], cell)
		}
		b.WriteString("|\n")
		if n == 0 {
			for i := range heads {
				b.WriteString("|" + strings.Repeat("-", width[i]+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

func (r *Row) name() string {
	if r.Fault == "" || r.Fault == string(bench.Healthy) {
		return r.Scenario
	}
	return r.Scenario + ", " + r.Fault
}

func (r *Row) rate() string {
	if r.Wanted > 0 && strings.HasSuffix(r.Rate, "%") {
		return fmt.Sprintf("%s (%.0f/s)", r.Rate, r.Wanted)
	}
	return r.Rate
}

// Millis is microseconds as people read them: in milliseconds, with two digits behind the point.
func Millis(us float64) string { return fmt.Sprintf("%.2f ms", us/1000) }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

func share(p *float64) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%.2f %%", *p*100)
}

func optional(p *float64, format string) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(format, *p)
}

func list(values []float64) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("%.0f", v))
	}
	return strings.Join(texts, " ")
}
