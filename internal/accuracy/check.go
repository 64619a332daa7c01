package accuracy

import (
	"runtime"
	"sync"
	"time"
)

// Options say how exact clocks are. The zero value is good for a store on a machine whose clock is kept by NTP.
type Options struct {
	// Drift is by which part the store's clock may run faster or slower than that of the record. Default 0.0005, the most by which NTP
	// corrects a clock. Negative: none.
	Drift float64
	// Step is the unit in which the store counts time. Default 2 us: it may see one more microsecond pass than there was time for.
	Step time.Duration
	// Settle is how long after a call's answer something may still be charged or given back for it. Default 1 s.
	Settle time.Duration
}

const (
	defaultDrift  = 0.0005
	defaultStep   = 2 * time.Microsecond
	defaultSettle = time.Second
)

func (o Options) withDefaults() Options {
	switch {
	case o.Drift == 0:
		o.Drift = defaultDrift
	case o.Drift < 0:
		o.Drift = 0
	}
	if o.Step == 0 {
		o.Step = defaultStep
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	return o
}

// Check looks for what cannot be. The error is about a record that makes no sense; what is proven stands in the verdict.
func Check(r *Record, o Options) (*Verdict, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := &checker{Options: o, record: inOrder(r)}
	c.origin = c.begins()
	v := &Verdict{Buckets: len(r.Buckets)}
	c.sort(v)
	for _, found := range c.judgeAll() {
		v.add(found)
	}
	return v, nil
}

type checker struct {
	Options
	record    *Record // entries in the order of their calls
	origin    int64   // when the record begins; times in histories count from here
	histories []history
}

func (c *checker) begins() int64 {
	begin := int64(latest)
	for i := range c.record.Entries {
		begin = min(begin, c.record.Entries[i].Start)
	}
	return begin
}

// judgeAll judges all buckets, as many at once as there are processors.
func (c *checker) judgeAll() []judgement {
	found := make([]judgement, len(c.histories))
	var all sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(found)) {
		all.Go(func() {
			for i := range next {
				found[i] = c.judge(&c.histories[i])
			}
		})
	}
	for i := range found {
		next <- i
	}
	close(next)
	all.Wait()
	return found
}

// judgement is what came out for one bucket.
type judgement struct {
	findings []Finding
	counts   Counts
	peak     Peak
}

func (c *checker) judge(h *history) judgement {
	if h.empty() {
		return judgement{}
	}
	h.prepare()
	j := judgement{}
	c.judgeAdmissions(h, &j)
	c.judgeDenials(h, &j)
	c.judgePromises(h, &j)
	return j
}
