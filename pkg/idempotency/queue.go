package idempotency

import (
	"container/heap"
	"time"
)

// entry is what a Memory knows of one key.
type entry struct {
	claim     Claim // who has it, or had it
	completed bool
	data      []byte
	free      int       // replays that are left
	until     time.Time // the lease, or the answer
	at        int       // in its queue
}

func (e *entry) bytes() int64 { return entryBytes + int64(len(e.data)) }

// queue has entries by the end of their time, the next one first.
type queue struct{ order byEnd }

func (q *queue) first() *entry {
	if len(q.order) == 0 {
		return nil
	}
	return q.order[0]
}

func (q *queue) add(e *entry)    { heap.Push(&q.order, e) }
func (q *queue) remove(e *entry) { heap.Remove(&q.order, e.at) }

func (q *queue) move(e *entry, until time.Time) {
	e.until = until
	heap.Fix(&q.order, e.at)
}

// byEnd implements heap.Interface.
type byEnd []*entry

func (b byEnd) Len() int           { return len(b) }
func (b byEnd) Less(i, j int) bool { return b[i].until.Before(b[j].until) }

func (b byEnd) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].at, b[j].at = i, j
}

// Push implements heap.Interface.
func (b *byEnd) Push(x any) {
	e := x.(*entry)
	e.at = len(*b)
	*b = append(*b, e)
}

// Pop implements heap.Interface.
func (b *byEnd) Pop() any {
	old, last := *b, len(*b)-1
	e := old[last]
	old[last] = nil
	*b = old[:last]
	return e
}
