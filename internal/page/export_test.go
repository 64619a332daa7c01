package page

import "time"

// Viewers is how many follow the stream.
func (p *Page) Viewers() int {
	p.viewers.mu.Lock()
	defer p.viewers.mu.Unlock()
	return len(p.viewers.all)
}

// Second reads the counters, as Run does each second.
func (p *Page) Second(now time.Time) { p.second(now) }

// Now is the latest snapshot.
func (p *Page) Now() Snapshot { return p.snapshot().Snapshot }

// QuantilesOf gives p50 and p99 of some durations, in microseconds.
func QuantilesOf(durations ...time.Duration) Latency {
	var h histogram
	var r recent
	for _, d := range durations {
		h.observe(d)
	}
	return r.since(&h)
}

// Fade tells the page that a second has gone by, as Run does.
func (p *Page) Fade() {
	p.Keys.Tick()
	p.shapes.tick()
}
