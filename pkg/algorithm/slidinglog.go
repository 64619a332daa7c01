package algorithm

// Run is a stretch of a log: all entries with one time stamp.
type Run struct {
	// At is when the entries were admitted, by the bucket's clock, in microseconds.
	At int64
	// Total numbers the last of them: how many entries the log has taken in up to and including this run. So the entries
	// between two runs are a difference, and both the count and the n-th oldest are found without adding up.
	Total uint64
}

// Log is the state of a sliding log: it remembers when each unit of cost was admitted and lets at most Limits.Capacity
// of them stand in any stretch of Limits.Window. An entry counts until exactly one window after its time stamp.
//
// Entries live in a ring of runs whose memory the owner gives ([Log.Grow]). When a new run finds no room, neighbours are
// joined under the later time stamp: the log then is stricter than it should be, never more generous. Nothing takes time
// in proportion to the number of entries, except Undo of something old.
//
// The methods take the limits in force at the time of the call. Entries that have left the window in force are
// forgotten when something is charged or given back; a denial changes nothing.
type Log struct {
	Clock
	ring []Run
	head int
	runs int
	gone uint64 // Total of the run that left last
}

// NewLog is an empty log that keeps its runs in ring.
func NewLog(ring []Run) Log { return Log{ring: ring} }

// Runs is how many runs the log holds.
func (g *Log) Runs() int { return g.runs }

// Room is how many runs the log's ring has place for.
func (g *Log) Room() int { return len(g.ring) }

// Grow moves the log into ring, which must have room for its runs.
func (g *Log) Grow(ring []Run) {
	for i := range g.runs {
		ring[i] = *g.run(i)
	}
	g.ring, g.head = ring, 0
}

func (g *Log) run(i int) *Run {
	if i += g.head; i >= len(g.ring) {
		i -= len(g.ring)
	}
	return &g.ring[i]
}

// totalBefore is how many entries came before run i.
func (g *Log) totalBefore(i int) uint64 {
	if i == 0 {
		return g.gone
	}
	return g.run(i - 1).Total
}

// left is how many of the oldest runs have left the window at now.
func (g *Log) left(l Limits, now int64) int {
	if g.runs == 0 || g.run(0).At > now-l.Window {
		return 0
	}
	low, high := 0, g.runs // run low has left, run high has not
	for high-low > 1 {
		if mid := (low + high) / 2; g.run(mid).At > now-l.Window {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// Count is how many entries stand in the window that ends at time.
func (g *Log) Count(l Limits, time int64) uint64 {
	return g.totalBefore(g.runs) - g.totalBefore(g.left(l, g.Now(time)))
}

// Remaining is how many entries still fit into the window that ends at time. Never negative.
func (g *Log) Remaining(l Limits, time int64) uint64 {
	count, limit := g.Count(l, time), uint64(l.Capacity)
	return limit - min(count, limit)
}

// Reset is how many microseconds after time the oldest entry leaves the window. Zero if there is none.
func (g *Log) Reset(l Limits, time int64) int64 {
	now := g.Now(time)
	if i := g.left(l, now); i < g.runs {
		return g.run(i).At + l.Window - now
	}
	return 0
}

// Wait is how many microseconds after time a Take of cost is admitted if nobody else calls: at that time it is, one
// microsecond earlier it is not. Zero if it is admitted at once, Never if cost is more than the limit.
func (g *Log) Wait(l Limits, cost uint64, time int64) int64 {
	limit := uint64(l.Capacity)
	if cost > limit {
		return Never
	}
	now := g.Now(time)
	first := g.left(l, now)
	gone := g.totalBefore(first)
	count := g.totalBefore(g.runs) - gone
	if count <= limit-cost {
		return 0
	}
	last := gone + count - (limit - cost) // number of the last entry that has to leave
	low, high := first-1, g.runs-1        // run high holds it or a later one, run low an earlier one
	for high-low > 1 {
		if mid := low + (high-low)/2; g.run(mid).Total >= last {
			high = mid
		} else {
			low = mid
		}
	}
	return g.run(high).At + l.Window - now
}

// Take adds cost entries if they fit, else returns false and changes nothing, but for a step back of the clock
// ([Clock.Seen]).
func (g *Log) Take(l Limits, cost uint64, time int64) bool {
	if g.Remaining(l, time) < cost {
		g.Clock = g.Seen(time)
		return false
	}
	g.Forget(l, time)
	g.Add(cost, time)
	return true
}

// Clear drops all entries.
func (g *Log) Clear() { g.gone, g.head, g.runs = g.totalBefore(g.runs), 0, 0 }

// Forget drops the runs that have left the window at time.
func (g *Log) Forget(l Limits, time int64) {
	n := g.left(l, g.Now(time))
	g.gone = g.totalBefore(n)
	if g.head += n; g.head >= len(g.ring) {
		g.head -= len(g.ring)
	}
	g.runs -= n
}

// Full reports whether Add at time has to join runs for want of room.
func (g *Log) Full(time int64) bool {
	return g.runs == len(g.ring) && (g.runs == 0 || g.run(g.runs-1).At != g.Now(time))
}

// Add appends count entries at time, whether they fit into the limit or not. The ring must have room for one run.
func (g *Log) Add(count uint64, time int64) {
	if count == 0 {
		return
	}
	if g.Full(time) {
		g.join()
	}
	g.Clock = g.At(time)
	total := g.totalBefore(g.runs) + count
	if g.runs == 0 || g.run(g.runs-1).At != g.Last && g.runs < len(g.ring) {
		g.runs++
	}
	*g.run(g.runs - 1) = Run{At: g.Last, Total: total}
}

// join halves the number of runs. Of two neighbours the later one stays, whose Total covers both.
func (g *Log) join() {
	kept := 0
	for i := 0; i < g.runs; i += 2 {
		*g.run(kept) = *g.run(min(i+1, g.runs-1))
		kept++
	}
	g.runs = kept
}

// Undo removes the entries of a Take of cost at the time at, by the bucket's clock, whose sibling was denied. Entries that
// have been joined with later ones stay.
func (g *Log) Undo(l Limits, cost uint64, at, time int64) {
	g.Forget(l, time)
	g.Clock = g.At(time)
	for i := g.runs - 1; i >= 0 && g.run(i).At >= at; i-- {
		if g.run(i).At == at {
			g.remove(i, cost)
		}
	}
}

// remove takes up to count entries out of run i.
func (g *Log) remove(i int, count uint64) {
	before := g.totalBefore(i)
	count = min(count, g.run(i).Total-before)
	for j := i; j < g.runs; j++ {
		g.run(j).Total -= count
	}
	if g.run(i).Total > before {
		return
	}
	for j := i; j < g.runs-1; j++ {
		*g.run(j) = *g.run(j + 1)
	}
	g.runs--
}

// Refund removes the newest cost entries.
func (g *Log) Refund(l Limits, cost uint64, time int64) {
	g.Forget(l, time)
	g.Clock = g.At(time)
	for cost > 0 && g.runs > 0 {
		here := g.totalBefore(g.runs) - g.totalBefore(g.runs-1)
		g.remove(g.runs-1, cost)
		cost -= min(cost, here)
	}
}

// Force adds as many of cost entries as fit and returns how many did not.
func (g *Log) Force(l Limits, cost uint64, time int64) uint64 {
	charged := min(cost, g.Remaining(l, time))
	if charged > 0 {
		g.Forget(l, time)
		g.Add(charged, time)
	}
	return cost - charged
}
