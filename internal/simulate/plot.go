package simulate

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxPlotted is how many policies a plot shows: those with the most denials, in file order.
const maxPlotted = 20

// The layout of a plot, in pixels: a row for each policy, with two panels.
const (
	plotWidth  = 860
	rowHeight  = 210
	panelTop   = 44 // below the top of its row
	panelTall  = 120
	firstLeft  = 56
	secondLeft = 506
	panelWide  = 330
)

const plotStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f }
.name { font-weight: 600; font-size: 13px }
.small { font-size: 11px; fill: #57606a }
.right { text-anchor: end }
.axis { stroke: #8c959f; fill: none }
.allowed, .denied { shape-rendering: crispEdges }
.allowed { fill: #4c8fd6 }
.denied { fill: #d9534f }
.curve { stroke: #8250df; fill: none; stroke-width: 1.5 }
.wish { stroke: #8c959f; stroke-dasharray: 4 3 }
.now { stroke: #d9534f; stroke-dasharray: 2 2 }
.point { fill: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #d1d7e0 }
  .small { fill: #9198a1 }
  .curve { stroke: #b392f0 }
  .point { fill: #b392f0 }
}
</style>
`

// WriteSVG draws, for each policy that applied to any request, its decisions over time, and the share that it would deny over its capacity. The
// image has no background, and is legible on a light and on a dark one.
func (r *Report) WriteSVG(out io.Writer) error {
	shown := r.plotted()
	var s svg
	height := max(len(shown), 1)*rowHeight + 10
	s.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, plotWidth, height, plotWidth, height)
	s.add(`<title>Decisions of %s replayed</title>`, counted(r.Lines.Replayed, "request", "requests"))
	s.WriteString(plotStyle)
	if len(shown) == 0 {
		s.text(firstLeft, 30, "name", "No policy applied to any request.")
	}
	axis := timeAxisOf(shown)
	for i, p := range shown {
		top := i * rowHeight
		s.text(firstLeft, top+20, "name", p.ID)
		s.text(secondLeft+panelWide, top+20, "small right", fmt.Sprintf("%s, %s denied", counted(p.Requests, "request", "requests"), Percent(share(p.Denied, p.Requests))))
		s.decisions(p, axis, top+panelTop)
		s.capacities(p, r.DenyShare, top+panelTop)
	}
	s.add(`</svg>`)
	_, err := io.WriteString(out, s.String())
	return err
}

// plotted are the policies that a plot shows.
func (r *Report) plotted() []*PolicyReport {
	var shown []*PolicyReport
	for i := range r.Policies {
		if r.Policies[i].Requests > 0 {
			shown = append(shown, &r.Policies[i])
		}
	}
	if len(shown) <= maxPlotted {
		return shown
	}
	byDenials := slices.SortedStableFunc(slices.Values(shown), func(a, b *PolicyReport) int { return int(min(max(b.Denied-a.Denied, -1), 1)) })
	most := byDenials[:maxPlotted]
	return slices.DeleteFunc(shown, func(p *PolicyReport) bool { return !slices.Contains(most, p) })
}

// timeAxis is the stretch of time that all policies are drawn on.
type timeAxis struct {
	from, to time.Time
	width    time.Duration
	slots    int
}

func timeAxisOf(shown []*PolicyReport) (a timeAxis) {
	for _, p := range shown {
		a.width = time.Duration(p.Series.WidthSeconds) * time.Second
		if end := p.Series.Start.Add(time.Duration(len(p.Series.Slots)) * a.width); end.After(a.to) {
			a.to = end
		}
		if a.from.IsZero() || p.Series.Start.Before(a.from) {
			a.from = p.Series.Start
		}
	}
	if a.width > 0 {
		a.slots = int(a.to.Sub(a.from) / a.width)
	}
	return a
}

// svg is an image in the making.
type svg struct{ strings.Builder }

func (s *svg) add(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// text writes what may hold anything: policy ids do.
func (s *svg) text(x, y int, class, content string) {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(content)) // into memory
	s.add(`<text x="%d" y="%d" class="%s">%s</text>`, x, y, class, escaped.String())
}

func (s *svg) frame(left, top int) {
	s.add(`<path class="axis" d="M%d %dV%dH%d"/>`, left, top, top+panelTall, left+panelWide)
}
