package simulate

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// decisions draws stacked bars: what was allowed below, what was denied on top.
func (s *svg) decisions(p *PolicyReport, a timeAxis, top int) {
	var most int64
	for _, slot := range p.Series.Slots {
		most = max(most, slot.Allowed+slot.Denied)
	}
	first := int(p.Series.Start.Sub(a.from) / a.width)
	wide := float64(panelWide) / float64(a.slots)
	y := func(n int64) float64 { return float64(top) + panelTall*(1-float64(n)/float64(most)) }
	var allowed, denied strings.Builder
	for i, slot := range p.Series.Slots {
		x := firstLeft + wide*float64(first+i)
		bar(&allowed, x, wide, y(slot.Allowed), y(0))
		bar(&denied, x, wide, y(slot.Allowed+slot.Denied), y(slot.Allowed))
	}
	s.add(`<path class="allowed" d="%s"/>`, allowed.String())
	s.add(`<path class="denied" d="%s"/>`, denied.String())
	s.frame(firstLeft, top)
	s.text(firstLeft, top-8, "small", fmt.Sprintf("requests in %s: blue allowed, red denied", a.width))
	s.text(firstLeft-5, top+10, "small right", fmt.Sprint(most))
	s.text(firstLeft-5, top+panelTall, "small right", "0")
	s.text(firstLeft, top+panelTall+16, "small", a.from.Format(time.DateTime))
	s.text(firstLeft+panelWide, top+panelTall+16, "small right", a.to.Format(time.DateTime)+" UTC")
}

// bar adds a rectangle to a path, if there is any of it.
func bar(path *strings.Builder, x, wide, top, bottom float64) {
	if bottom > top {
		fmt.Fprintf(path, "M%.1f %.1fh%.1fV%.1fh%.1fz", x, top, wide, bottom, -wide)
	}
}

// capacities draws the denial share over the capacity, which has a logarithmic axis.
func (s *svg) capacities(p *PolicyReport, wished float64, top int) {
	g := p.Suggestion
	if len(p.Curve) == 0 || g == nil {
		return
	}
	last := max(p.Curve[len(p.Curve)-1].Capacity, g.Now.Capacity, 2)
	most := wished
	for _, point := range p.Curve {
		most = max(most, point.DenyShare)
	}
	if most == 0 {
		most = 0.01
	}
	x := func(capacity float64) float64 {
		return secondLeft + panelWide*math.Log(max(capacity, 1))/math.Log(last)
	}
	y := func(share float64) float64 { return float64(top) + panelTall*(1-share/most) }
	var points strings.Builder
	for _, point := range p.Curve {
		fmt.Fprintf(&points, "%.1f,%.1f ", x(point.Capacity), y(point.DenyShare))
	}
	fmt.Fprintf(&points, "%.1f,%.1f", x(last), y(0))
	s.frame(secondLeft, top)
	s.add(`<path class="wish" d="M%d %.1fh%d"/>`, secondLeft, y(wished), panelWide)
	s.add(`<path class="now" d="M%.1f %dv%d"/>`, x(g.Now.Capacity), top, panelTall)
	s.add(`<polyline class="curve" points="%s"/>`, points.String())
	caption := "share denied by " + g.Now.what() + ", dotted: now " + policy.FormatNumber(g.Now.Capacity)
	if v := g.Capacity; v != nil {
		s.add(`<circle class="point" cx="%.1f" cy="%.1f" r="4"/>`, x(v.Capacity), y(v.DenyShare))
		caption += ", dot: " + policy.FormatNumber(v.Capacity)
	}
	s.text(secondLeft, top-8, "small", caption)
	s.text(secondLeft-5, top+10, "small right", Percent(roundUp(most)))
	s.text(secondLeft-5, top+panelTall, "small right", "0%")
	s.text(secondLeft, top+panelTall+16, "small", "1")
	s.text(secondLeft+panelWide, top+panelTall+16, "small right", policy.FormatNumber(last))
}

// roundUp gives a share three digits, for want of room.
func roundUp(share float64) float64 { return math.Round(share*1000) / 1000 }
