package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The layout, in pixels.
const (
	plotWidth  = 760
	plotLeft   = 70
	plotRight  = 560 // names stand to the right of it
	plotTop    = 44
	plotBottom = 340
	barHeight  = 22
	barsLeft   = 300
	barsRight  = 600
)

const style = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f }
.name { font-weight: 600; font-size: 13px }
.small { font-size: 11px; fill: #57606a }
.right { text-anchor: end }
.middle { text-anchor: middle }
.axis { stroke: #8c959f; fill: none }
.grid { stroke: #8c959f; stroke-opacity: 0.25 }
.curve { fill: none; stroke-width: 1.8 }
.wish { stroke: #d9534f; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #d1d7e0 } .small { fill: #9198a1 } }
</style>
`

// colours tell curves apart, also to most who are colour-blind.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d1f", "#56b4e9"}

// Curve is a line of a plot of latencies.
type Curve struct {
	Name   string
	Points []Point
}

// WriteCurves draws latencies (upwards, on a scale of tens) by the share of calls that they cover (to the right, on a scale of nines).
func WriteCurves(out io.Writer, title string, curves []Curve) error {
	var s svg
	s.open(title, plotBottom+44)
	low, high := bounds(curves)
	y := func(us float64) float64 {
		return plotBottom - (math.Log10(max(us, 1))-low)/(high-low)*(plotBottom-plotTop)
	}
	for tens := low; tens <= high; tens++ {
		at := y(math.Pow(10, tens))
		s.add(`<path class="grid" d="M%d %.1fH%d"/>`, plotLeft, at, plotRight)
		s.text(plotLeft-6, at+4, "small right", magnitude(tens))
	}
	for _, mark := range []struct {
		share float64
		name  string
	}{{0, "0 %"}, {0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}} {
		s.add(`<path class="grid" d="M%.1f %dV%d"/>`, nines(mark.share), plotTop, plotBottom)
		s.text(nines(mark.share), plotBottom+18, "small middle", mark.name)
	}
	s.add(`<path class="axis" d="M%d %dV%dH%d"/>`, plotLeft, plotTop, plotBottom, plotRight)
	s.text((plotLeft+plotRight)/2, plotBottom+36, "small middle", "of the calls were answered within")
	for i, c := range curves {
		colour := colours[i%len(colours)]
		var points strings.Builder
		for _, p := range c.Points {
			fmt.Fprintf(&points, "%.1f,%.1f ", nines(p.Share), y(p.Micros))
		}
		s.add(`<polyline class="curve" stroke="%s" points="%s"/>`, colour, strings.TrimSpace(points.String()))
		s.add(`<path stroke="%s" stroke-width="3" d="M%d %dH%d"/>`, colour, plotRight+14, plotTop+i*20, plotRight+32)
		s.text(plotRight+38, float64(plotTop+i*20+4), "", c.Name)
	}
	return s.close(out)
}

// nines is where a share stands: every nine is as wide.
func nines(share float64) float64 {
	const most = 4
	return plotLeft + min(-math.Log10(max(1-share, 1e-9)), most)/most*(plotRight-plotLeft)
}

// bounds are the powers of ten between which all points lie.
func bounds(curves []Curve) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, p := range c.Points {
			v := math.Log10(max(p.Micros, 1))
			low, high = min(low, math.Floor(v)), max(high, math.Ceil(v))
		}
	}
	if low > high {
		low, high = 2, 3
	}
	return low, max(high, low+1)
}

func magnitude(tens float64) string {
	switch v := math.Pow(10, tens); {
	case v < 1000:
		return fmt.Sprintf("%g us", v)
	case v < 1e6:
		return fmt.Sprintf("%g ms", v/1000)
	default:
		return fmt.Sprintf("%g s", v/1e6)
	}
}

// Bar is a bar of a chart.
type Bar struct {
	Name  string
	Value float64
	Most  float64 // what it must not be above; 0: anything goes
}

// WriteBars draws values as bars, and a mark where one must end at the latest. format is that of their labels, such as "%.1f us".
func WriteBars(out io.Writer, title, format string, bars []Bar) error {
	var s svg
	s.open(title, plotTop+len(bars)*barHeight+14)
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.Value, b.Most)
	}
	if !(longest > 0) {
		longest = 1
	}
	x := func(v float64) float64 { return barsLeft + max(v, 0)/longest*(barsRight-barsLeft) }
	for i, b := range bars {
		top := plotTop + i*barHeight
		s.text(barsLeft-8, float64(top+14), "right", b.Name)
		s.add(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, barsLeft, top+2, x(b.Value)-barsLeft, barHeight-6, colours[0])
		label := fmt.Sprintf(format, b.Value)
		if b.Most > 0 {
			s.add(`<path class="wish" d="M%.1f %dV%d"/>`, x(b.Most), top, top+barHeight-2)
			label += ", at most " + fmt.Sprintf(format, b.Most)
		}
		s.text(x(max(b.Value, b.Most))+6, float64(top+14), "small", label)
	}
	return s.close(out)
}

// svg is an image in the making.
type svg struct{ strings.Builder }

func (s *svg) open(title string, height int) {
	s.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, plotWidth, height, plotWidth, height)
	s.add(`<title>%s</title>`, escape(title))
	s.WriteString(style)
	s.text(16, 22, "name", title)
}

func (s *svg) add(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

func (s *svg) text(x, y float64, class, content string) {
	s.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, escape(content))
}

func (s *svg) close(out io.Writer) error {
	s.add(`</svg>`)
	_, err := io.WriteString(out, s.String())
	return err
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // into memory
	return b.String()
}
