package page

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// MaxViewers bounds how many follow the stream at a time.
const MaxViewers = 50

const (
	// behind is how many messages a viewer may be late before it is sent away.
	behind = 4
	// patience is how long one message may take to be written.
	patience = 5 * time.Second
)

// viewers are those who follow the stream of events.
type viewers struct {
	mu     sync.Mutex
	all    map[*viewer]struct{}
	closed bool
}

// viewer is one of them.
type viewer struct {
	tables   bool        // it wants the tables, too
	messages chan []byte // closed: it is sent away
}

// wanted is what there is to be made.
type wanted struct{ any, tables bool }

func (v *viewers) wanted() (w wanted) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for one := range v.all {
		w.any, w.tables = true, w.tables || one.tables
	}
	return w
}

// join adds a viewer, unless there are too many or none is served any more: nil.
func (v *viewers) join(tables bool) *viewer {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || len(v.all) >= MaxViewers {
		return nil
	}
	one := &viewer{tables: tables, messages: make(chan []byte, behind)}
	v.all[one] = struct{}{}
	return one
}

func (v *viewers) leave(one *viewer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked(one)
}

func (v *viewers) dropLocked(one *viewer) {
	if _, ok := v.all[one]; ok {
		delete(v.all, one)
		close(one.messages)
	}
}

// tell sends each viewer a message. It waits for nobody: who is behind is sent away.
func (v *viewers) tell(plain, withTables []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for one := range v.all {
		message := plain
		if one.tables && withTables != nil {
			message = withTables
		}
		select {
		case one.messages <- message:
		default:
			v.dropLocked(one)
		}
	}
}

// close sends everybody away, and lets nobody in again.
func (v *viewers) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for one := range v.all {
		v.dropLocked(one)
	}
}

// serveEvents serves GET /api/v1/events: the last five minutes at first, then a snapshot each second; with ?tables=1 also the tables of the page.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	one := p.viewers.join(r.URL.Query().Get("tables") == "1")
	if one == nil {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "too many follow the events already, or the service is stopping")
		return
	}
	defer p.viewers.leave(one)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy is not to wait for more
	out := http.NewResponseController(w)
	send := func(message []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(message)
		return err == nil && out.Flush() == nil
	}
	if r.Method == http.MethodHead || !send(p.greeting()) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case message, ok := <-one.messages:
			if !ok || !send(message) {
				return
			}
		}
	}
}

// greeting is what a viewer gets first.
func (p *Page) greeting() []byte {
	p.mu.Lock()
	series := seriesOf(p.history.seconds)
	p.mu.Unlock()
	b, _ := json.Marshal(series) // as with snapshots
	return append([]byte("retry: 2000\n"), event("history", b)...)
}
