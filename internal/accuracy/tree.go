package accuracy

import "math"

// tree finds, among places in order, the one whose base plus all that was added at it or at later places is largest. Adding and
// asking take the time of its height.
type tree struct {
	size int // a power of two
	base []float64
	sum  []float64 // of what was added below a node
	best []float64 // of the places below it, by what was added below it
}

var never = math.Inf(-1)

// newTree has n places. None counts until it is opened.
func newTree(n int) *tree {
	size := 1
	for size < n {
		size *= 2
	}
	t := &tree{size: size, base: make([]float64, size), sum: make([]float64, 2*size), best: make([]float64, 2*size)}
	for i := range t.base {
		t.base[i] = never
	}
	for i := range t.best {
		t.best[i] = never
	}
	return t
}

// open makes a place count, with this base.
func (t *tree) open(place int, base float64) {
	t.base[place] = base
	t.update(place)
}

// shut makes a place count no more. What was added there still counts for those before it.
func (t *tree) shut(place int) { t.open(place, never) }

// add adds to a place and all before it. Before the first place there is none.
func (t *tree) add(place int, units float64) {
	if place < 0 {
		return
	}
	t.sum[t.size+place] += units
	t.update(place)
}

func (t *tree) update(place int) {
	i := t.size + place
	t.best[i] = t.base[place] + t.sum[i]
	for i /= 2; i > 0; i /= 2 {
		t.sum[i] = t.sum[2*i] + t.sum[2*i+1]
		t.best[i] = max(t.best[2*i+1], t.best[2*i]+t.sum[2*i+1])
	}
}

// largest is the largest value; minus infinity if no place is open.
func (t *tree) largest() float64 { return t.best[1] }

// place is the one that has the largest value.
func (t *tree) place() int {
	i := 1
	for i < t.size {
		i *= 2
		if t.best[i+1] >= t.best[i]+t.sum[i+1] {
			i++
		}
	}
	return i - t.size
}

// from is the sum of what was added at a place and all after it.
func (t *tree) from(place int) float64 {
	if place >= t.size {
		return 0
	}
	i := t.size + place
	total := t.sum[i]
	for ; i > 1; i /= 2 {
		if i%2 == 0 {
			total += t.sum[i+1]
		}
	}
	return total
}
