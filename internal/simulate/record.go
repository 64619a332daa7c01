package simulate

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// record is what is kept of a line until it is replayed.
type record struct {
	at      int64 // microseconds since 1970
	line    int64
	denied  bool // with status 429
	cost    uint64
	hasCost bool
	values  []value // by rank of their targets
	text    []byte
	hasTime bool
}

// value is where a record's text has the value of a target.
type value struct {
	target   int32
	from, to int32
}

func (r *record) reset(line int64) {
	*r = record{line: line, values: r.values[:0], text: r.text[:0]}
}

// maxValues bounds what one line may give. Envoy's own requests have 32 entries at most.
const maxValues = 32

// put notes what text, the value of a field of the log, is for.
func (r *record) put(targets []int32, v string) {
	for _, t := range targets {
		if len(r.values) == maxValues {
			return
		}
		from := len(r.text)
		r.text = append(r.text, v...)
		r.values = append(r.values, value{t, int32(from), int32(len(r.text))})
		for i := len(r.values) - 1; i > 0 && r.values[i].target < r.values[i-1].target; i-- {
			r.values[i], r.values[i-1] = r.values[i-1], r.values[i]
		}
	}
}

func (r *record) bytes(v value) []byte { return r.text[v.from:v.to] }

var (
	errNoTime   = errors.New("has no time")
	errBadTime  = errors.New("has a time that is neither RFC 3339, nor as in common log format, nor seconds since 1970")
	errTimeSpan = errors.New("has a time before 1970 or after 9999")
	errBadCost  = errors.New("has a cost that is no whole number")
)

// settle reads those values that are no entries.
func (r *record) settle(f *fields) error {
	r.hasTime = false
	hasStatus := false
	for _, v := range r.values {
		t := &f.targets[v.target]
		if t.entry != nil {
			continue
		}
		text := string(r.bytes(v))
		var err error
		switch t.name {
		case fieldTime:
			if !r.hasTime {
				r.hasTime = true
				r.at, err = parseTime(text)
			}
		case fieldStatus:
			if !hasStatus {
				hasStatus = true
				r.denied = text == "429"
			}
		case fieldCost:
			if !r.hasCost {
				r.hasCost = true
				r.cost, err = parseCost(text)
			}
		}
		if err != nil {
			return err
		}
	}
	if !r.hasTime {
		return errNoTime
	}
	return nil
}

func parseCost(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, errBadCost
	}
	return n, nil
}

const clfTime = "02/Jan/2006:15:04:05 -0700"

// parseTime gives microseconds since 1970.
func parseTime(text string) (int64, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return span(float64(t.Unix()), t.UnixMicro())
	}
	if strings.Contains(text, "/") {
		t, err := time.Parse(clfTime, text)
		if err != nil {
			return 0, errBadTime
		}
		return span(float64(t.Unix()), t.UnixMicro())
	}
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, errBadTime
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errBadTime
	}
	switch { // %START_TIME% can give seconds, milli-, micro- and nanoseconds
	case n < 1e11:
		n *= 1e6
	case n < 1e14:
		n *= 1e3
	case n >= 1e17:
		n /= 1e3
	}
	return span(n/1e6, int64(math.Round(min(n, 1e18))))
}

// span refuses what the clock of a bucket cannot show.
func span(seconds float64, micros int64) (int64, error) {
	const year10000 = 253402300800
	if seconds < 0 || seconds >= year10000 {
		return 0, errTimeSpan
	}
	return micros, nil
}
