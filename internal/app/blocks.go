package app

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/board"
	"github.com/envoy-rls/envoy-rls/internal/buckets"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// operations is what lets people change buckets.
type operations struct {
	blocks *blocklist.Store
	board  *board.Board // nil: there is nobody to tell
	audit  *buckets.Audit
	id     string
}

// withBlocks puts what is blocked in front of the store.
func (a *App) withBlocks(store ratelimit.Store) ratelimit.Store {
	a.blocks = blocklist.New(store)
	if a.shared == nil {
		a.id = strings.ToLower(rand.Text()[:16])
		a.audit = buckets.NewAudit(a.id, a.log, nil)
		return a.blocks
	}
	a.id = a.shared.ID()
	a.board = board.New(board.Options{
		Redis: a.shared.Redis, ID: a.id, Blocks: a.blocks, OnNotice: a.noticed, OnPoll: a.polled(), Record: a.record,
	})
	a.audit = buckets.NewAudit(a.id, a.log, a.board)
	return a.blocks
}

// noticed forgets what this instance knows of a bucket that somebody has changed in Redis.
func (a *App) noticed(n board.Notice) {
	a.shared.Cache.Forget(n.Key, 0)
	if n.Refund {
		a.shared.Fallback.Refunded(n.Key, n.Remaining)
		return
	}
	a.shared.Fallback.Replaced(n.Key, n.Remaining)
}

// polled tells the log when Redis begins not to tell what others do, and when it does again.
func (a *App) polled() func(error) {
	failing := false
	return func(err error) {
		switch {
		case err != nil && !failing:
			a.log.Warn("what other instances block and change is not known for now", "error", err)
		case err == nil && failing:
			a.log.Info("what other instances block and change is known again")
		}
		failing = err != nil
	}
}

// startBoard learns what is blocked before the first decision, if Redis answers, and then what others do.
func (a *App) startBoard() {
	ctx, cancel := context.WithCancel(context.Background())
	first, done := context.WithTimeout(ctx, firstPoll)
	_ = a.board.Poll(first) // Run tells
	done()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.board.Run(ctx)
	}()
	a.closers.push(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// changeMetrics are what of metrics.Options is about changes by hand.
func (a *App) changeMetrics(o *metrics.Options) {
	o.Blocked, o.ChangeOutcomes = a.blocks.Len, buckets.Outcomes()
	for _, action := range buckets.Actions() {
		if action != buckets.Show {
			o.ChangeActions = append(o.ChangeActions, string(action))
		}
	}
}

// bucketPages serve what people do with single buckets. Who may is what o says.
func (a *App) bucketPages(o *admin.Options) http.Handler {
	with := buckets.Options{
		Policies: a.source.Set, Store: a.cache, Blocks: a.blocks, Audit: a.audit, Authorize: o.Authorize,
		OnAttempt: func(action buckets.Action, outcome string) { a.metrics.OnChange(string(action), outcome) },
	}
	if o.ResolveKey != nil {
		with.Resolve = func(id string) (buckets.Known, bool) {
			k, ok := o.ResolveKey(id)
			return buckets.Known(k), ok
		}
	}
	if a.board != nil {
		with.Store, with.Shared = patient{a.shared.Redis}, told{a.board}
	}
	return buckets.Handler(with)
}

// patient is Redis for people.
type patient struct{ *redisbackend.Store }

// Acquire waits longer than a decision would.
func (p patient) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return p.AcquirePatiently(ctx, buckets, results)
}

// told is the board for package buckets.
type told struct{ *board.Board }

// Changed implements buckets.Shared.
func (t told) Changed(ctx context.Context, key policy.Key, remaining float64, refund bool) error {
	return t.Notify(ctx, board.Notice{Key: key, Remaining: remaining, Refund: refund})
}
