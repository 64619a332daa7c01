package tracing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	queueSize = 2048
	batchSize = 512
	batchTime = time.Second // at most until the first span of a batch is sent
)

// queue is what is to be sent: a span processor that never waits. OpenTelemetry's own does not tell how many spans it drops.
type queue struct {
	onFailure func(error)
	spans     chan sdktrace.ReadOnlySpan

	exported, failed, dropped atomic.Uint64

	mu      sync.Mutex
	started bool
	closed  bool
	stop    chan struct{}
	done    chan struct{}
	ctx     context.Context // of exports
	cancel  context.CancelFunc
	export  sdktrace.SpanExporter
}

func newQueue(onFailure func(error)) *queue {
	q := &queue{
		onFailure: onFailure, spans: make(chan sdktrace.ReadOnlySpan, queueSize), stop: make(chan struct{}), done: make(chan struct{}),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// OnStart implements sdktrace.SpanProcessor.
func (q *queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	select {
	case q.spans <- s:
	default:
		q.dropped.Add(1)
	}
}

// Shutdown implements sdktrace.SpanProcessor. Nobody calls it: close ends the queue.
func (q *queue) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor. Nobody calls it.
func (q *queue) ForceFlush(context.Context) error { return nil }

// start begins to send to an exporter, which the queue then owns.
func (q *queue) start(exporter sdktrace.SpanExporter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started, q.export = true, exporter
	go q.run()
}

// close sends what is there and ends the exporter; what is under way when ctx ends is given up.
func (q *queue) close(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.started || q.closed {
		return
	}
	q.closed = true
	close(q.stop)
	select {
	case <-q.done:
	case <-ctx.Done():
		q.cancel()
		<-q.done
	}
	q.cancel()
	_ = q.export.Shutdown(ctx) // it only closes the connection
}

func (q *queue) run() {
	defer close(q.done)
	batch := make([]sdktrace.ReadOnlySpan, 0, batchSize)
	for {
		var stopping bool
		batch, stopping = q.collect(batch[:0])
		if len(batch) > 0 {
			q.send(batch)
		}
		if stopping && len(q.spans) == 0 {
			return
		}
	}
}

// collect waits for a span and then for more of them: until the batch is full, some time has gone by, or the queue is to end.
func (q *queue) collect(batch []sdktrace.ReadOnlySpan) (_ []sdktrace.ReadOnlySpan, stopping bool) {
	var due <-chan time.Time
	for len(batch) < batchSize {
		select {
		case s := <-q.spans:
			if batch = append(batch, s); due == nil {
				due = time.After(batchTime)
			}
		case <-due:
			return batch, false
		case <-q.stop:
			return q.rest(batch), true
		}
	}
	return batch, false
}

// rest adds what is there already.
func (q *queue) rest(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for len(batch) < batchSize {
		select {
		case s := <-q.spans:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

func (q *queue) send(batch []sdktrace.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(q.ctx, exportTimeout)
	defer cancel()
	if err := q.export.ExportSpans(ctx, batch); err != nil {
		q.failed.Add(uint64(len(batch)))
		q.onFailure(err)
		return
	}
	q.exported.Add(uint64(len(batch)))
}
