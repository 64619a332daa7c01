package lab

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

const (
	emptyTime = time.Second // how long each node is measured
	emptyKeys = 10_000
	// fewestRuns are as many as tell something: below, what Redis does on its own is most of it.
	fewestRuns = 500
)

// emptyArgs are what stands in for the numbers of a bucket.
var emptyArgs = []any{"tb", 100_000, "1.1574074074074074e-06", 1, 0}

// emptyScript measures the CPU, in microseconds, that a run of a script takes which does nothing, on the same nodes, with keys and
// arguments like those of a decision, in batches of the same size and as many a second. 0: not known.
func (r *Redis) emptyScript(ctx context.Context, like []*Sample) (float64, error) {
	last := like[len(like)-1]
	batch := max(1, int(math.Round(Median(like, (*Sample).Batch))))
	var scripts, cpu float64
	group, ctx := errgroup.WithContext(ctx)
	found := make([]struct{ runs, cpu float64 }, len(r.nodes))
	for i, n := range r.nodes {
		for _, use := range last.Nodes {
			if use.Addr != n.Addr() || !use.Primary || use.Scripts == 0 || use.CPU == 0 {
				continue
			}
			perSecond := float64(use.Scripts) / last.Elapsed.Seconds()
			group.Go(func() (err error) {
				found[i].runs, found[i].cpu, err = n.runEmpty(ctx, batch, perSecond)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for _, f := range found {
		scripts, cpu = scripts+f.runs, cpu+f.cpu
	}
	if scripts < fewestRuns {
		return 0, nil
	}
	return cpu / scripts, nil
}

// runEmpty runs the script for a while. It returns how often, and the CPU that took in microseconds.
func (n *node) runEmpty(ctx context.Context, batch int, perSecond float64) (runs, cpu float64, err error) {
	conn, err := n.Dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close() }() // all replies are read
	replies, err := conn.Pipeline(ctx, [][]any{{"SCRIPT", "LOAD", "return 1"}})
	if err != nil {
		return 0, 0, err
	}
	sha := replies[0]
	tag, err := homeTag(ctx, conn, sha)
	if err != nil {
		return 0, 0, err
	}
	before, err := n.use(ctx, true)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	for sent := 0; time.Since(start) < emptyTime; sent += batch {
		if wait := time.Until(start.Add(time.Duration(float64(sent) / perSecond * float64(time.Second)))); wait > 0 {
			time.Sleep(wait)
		}
		commands := make([][]any, batch)
		for i := range commands {
			key := fmt.Sprintf("rl:{%s}:daily:%016x", tag, (sent+i)%emptyKeys)
			commands[i] = append([]any{"EVALSHA", sha, 1, key}, emptyArgs...)
		}
		if _, err := conn.Pipeline(ctx, commands); err != nil {
			return 0, 0, err
		}
	}
	after, err := n.use(ctx, false)
	return float64(after.Scripts - before.Scripts), float64(after.CPU-before.CPU) / float64(time.Microsecond), err
}

// homeTag finds a hash tag whose keys the node serves.
func homeTag(ctx context.Context, conn *redistest.Conn, sha any) (string, error) {
	for i := range 1000 {
		tag := fmt.Sprintf("b%d", i)
		replies, err := conn.Pipeline(ctx, [][]any{{"EVALSHA", sha, 1, "rl:{" + tag + "}"}})
		if err != nil {
			return "", err
		}
		if e, ok := replies[0].(redistest.ReplyError); !ok {
			return tag, nil
		} else if !strings.HasPrefix(string(e), "MOVED") {
			return "", e
		}
	}
	return "", fmt.Errorf("found no key that is served here")
}
