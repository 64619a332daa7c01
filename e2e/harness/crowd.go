package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Tally counts answers. Its zero value is ready for use; safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int
	first  error
}

// Add counts one answer, or an error in its place.
func (t *Tally) Add(r *Response, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	if err == nil {
		t.counts[fmt.Sprint(r.Status)]++
		return
	}
	t.counts["error"]++
	if t.first == nil {
		t.first = err
	}
}

// Status returns how many answers had the status.
func (t *Tally) Status(status int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[fmt.Sprint(status)]
}

// String gives the counts by status, such as "100 x 200, 900 x 429", and the first error if there was one.
func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		parts = append(parts, fmt.Sprintf("%d x %s", t.counts[what], what))
	}
	if t.first != nil {
		parts = append(parts, "first error: "+t.first.Error())
	}
	return strings.Join(parts, ", ")
}

// Crowd has many clients, each on a connection of its own, send the request at the same time, each calls times in a row.
func Crowd(ctx context.Context, addr string, clients, calls int, r Request) *Tally {
	tally := &Tally{}
	start := make(chan struct{})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			client := Client{Addr: addr}
			defer client.Close()
			<-start
			for range calls {
				tally.Add(client.Do(ctx, r))
			}
		})
	}
	close(start)
	all.Wait()
	return tally
}

// Spread sends the request once from each of n addresses 127.1.x.y, 20 at a time.
func Spread(ctx context.Context, addr string, n int, r Request) *Tally {
	tally := &Tally{}
	next := make(chan int)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for i := range next {
				client := Client{Addr: addr, From: fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)}
				tally.Add(client.Do(ctx, r))
				client.Close()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return tally
}

// Load is a steady stream of requests over some connections, until it is stopped.
type Load struct {
	tally  Tally
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// StartLoad starts clients that send the request again and again.
func StartLoad(addr string, clients int, r Request) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cancel: cancel}
	for range clients {
		l.all.Go(func() {
			client := Client{Addr: addr}
			defer client.Close()
			for ctx.Err() == nil {
				l.tally.Add(client.Do(context.Background(), r)) // a request that was sent is waited for
			}
		})
	}
	return l
}

// Stop stops the load and returns what came of it.
func (l *Load) Stop() *Tally {
	l.cancel()
	l.all.Wait()
	return &l.tally
}
