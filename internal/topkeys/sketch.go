package topkeys

// slots is how many keys one sketch counts.
const slots = 32

// Slots is how many places a Sketch has.
const Slots = slots

// Sketch is the space-saving sketch of Metwally, Agrawal and El Abbadi (2005), with counts that fade: of all that was added, W in weight, it
// knows every key of more than W/slots, and counts none of them too low, nor too high by more than that. What it stands for beside a key
// is kept by whoever has the sketch, by the place of the key.
//
// The zero Sketch is empty. It is not safe for concurrent use.
type Sketch struct {
	used   int
	ids    [slots]uint64
	counts [slots]float64
	errors [slots]float64 // how much of the count may belong to others
}

// Add counts a key and gives its place. fresh: the place was that of another key, or of none.
func (s *Sketch) Add(id uint64) (place int, fresh bool) {
	for i := range s.used {
		if s.ids[i] == id {
			s.counts[i]++
			return i, false
		}
	}
	if s.used < slots {
		place = s.used
		s.used++
	} else {
		place = s.least()
	}
	s.ids[place] = id
	s.errors[place] = s.counts[place]
	s.counts[place]++
	return place, true
}

// least is the place with the smallest count.
func (s *Sketch) least() int {
	at := 0
	for i := 1; i < slots; i++ {
		if s.counts[i] < s.counts[at] {
			at = i
		}
	}
	return at
}

// Decay multiplies all that was counted by factor, and gives what is left of it.
func (s *Sketch) Decay(factor float64) (weight float64) {
	for i := range s.used {
		s.counts[i] *= factor
		s.errors[i] *= factor
		weight += s.counts[i]
	}
	return weight
}

// Count is how often the key at a place was counted: too often by less than error. Zero for a place that was never taken.
func (s *Sketch) Count(place int) (count, error float64) { return s.counts[place], s.errors[place] }
