package simulate

// What waits for earlier lines is bounded in number and in bytes, since clients choose how long paths are.
const (
	maxWaiting      = 1 << 16
	maxWaitingBytes = 64 << 20
)

// reorder puts records in the order of their times, and those of one time in the order of their lines. It is a heap.
type reorder struct {
	slack  int64 // microseconds
	latest int64
	heap   []*record
	bytes  int // of the records' texts
}

func before(a, b *record) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.line < b.line
}

func (q *reorder) push(r *record) {
	q.latest = max(q.latest, r.at)
	q.heap = append(q.heap, r)
	q.bytes += len(r.text)
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !before(q.heap[i], q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

// pop gives the earliest record if it need not wait any longer, else nil. At the end of the log nothing waits.
func (q *reorder) pop(end bool) *record {
	n := len(q.heap)
	full := n > maxWaiting || q.bytes > maxWaitingBytes
	if n == 0 || !end && !full && q.heap[0].at > q.latest-q.slack {
		return nil
	}
	first := q.heap[0]
	q.bytes -= len(first.text)
	q.heap[0], q.heap[n-1] = q.heap[n-1], nil
	q.heap = q.heap[:n-1]
	q.sink()
	return first
}

func (q *reorder) sink() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if before(q.heap[child], q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
