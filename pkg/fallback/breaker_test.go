package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// What a shard can do to a call.
var (
	errSlow    = errors.New("slow")     // after a while
	errRefused = errors.New("refused")  // at once
	errOwnKey  = errors.New("own key")  // nothing that concerns others
	errSpoilt  = errors.New("spoilt")   // the shard answers that the key is not what it should be
	errOldNews = errors.New("old news") // of a call that was sent a second ago
)

const slow = 5 * time.Millisecond

// sharded is a store whose buckets' shards are what stands before the hyphen in their policy's name.
type sharded struct {
	mu    sync.Mutex
	does  map[string]error // what a shard does. Nil: it answers
	asked map[string]int   // calls that reached it
	moved map[string]string
	hold  map[string]chan struct{} // a shard answers when that is closed
}

func newSharded() *sharded {
	return &sharded{does: map[string]error{}, asked: map[string]int{}, moved: map[string]string{}, hold: map[string]chan struct{}{}}
}

func (s *sharded) set(shard string, does error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does[shard] = does
}

func (s *sharded) shard(key []byte) string {
	name := string(key[strings.LastIndexByte(string(key), ':')+1:])
	name, _, _ = strings.Cut(name, "-")
	s.mu.Lock()
	defer s.mu.Unlock()
	if to := s.moved[name]; to != "" {
		return to
	}
	return name
}

func (s *sharded) classify(err error) fallback.Fault {
	f := fallback.Fault{Reason: err.Error(), Trouble: !errors.Is(err, errOwnKey) && !errors.Is(err, errSpoilt), Answered: errors.Is(err, errSpoilt)}
	if errors.Is(err, errOldNews) {
		f.Sent = time.Now().Add(-time.Second)
	}
	return f
}

func (s *sharded) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = append(results[:0], make([]ratelimit.Result, len(buckets))...)
	for i := range buckets {
		shard := s.shard(buckets[i].Key.Bytes())
		s.mu.Lock()
		s.asked[shard]++
		does, hold := s.does[shard], s.hold[shard]
		s.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if errors.Is(does, errSlow) {
			time.Sleep(slow)
		}
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Err: does}
	}
	return results
}

// calls is how many calls reached a shard since it was asked last.
func (s *sharded) calls(shard string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asked[shard]
	s.asked[shard] = 0
	return n
}

// breakers is a fallback over a sharded store that notes its transitions.
type breakers struct {
	*fallback.Store
	store *sharded

	mu   sync.Mutex // guards told
	told []string
}

func newBreakers() *breakers {
	b := &breakers{store: newSharded()}
	b.Store = fallback.New(fallback.Options{
		Store: b.store, Shard: b.store.shard, Classify: b.store.classify,
		OnTransition: func(t fallback.Transition) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, fmt.Sprintf("%s %v>%v %s", t.Shard, t.From, t.To, t.Reason))
		},
	})
	return b
}

func (b *breakers) news() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	return told
}

func (b *breakers) call(names ...string) []string {
	var buckets []ratelimit.Bucket
	for _, n := range names {
		buckets = append(buckets, take(n, tokens, policy.Open))
	}
	var by []string
	for _, r := range b.Acquire(context.Background(), buckets, nil) {
		by = append(by, r.Source.String())
	}
	return by
}

// open has shard a fail until its breaker opens.
func (b *breakers) open(does error) {
	b.store.set("a", does)
	for range 3 {
		b.call("a-1")
	}
	b.store.calls("a")
}

func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.store.set("a", errSlow)
		for range 2 {
			began := time.Now()
			require.Equal(t, []string{"open"}, b.call("a-1"))
			require.Equal(t, slow, time.Since(began))
		}
		require.Empty(t, b.news())
		b.call("a-1")
		require.Equal(t, []string{"a closed>open slow"}, b.news())
		require.Equal(t, 3, b.store.calls("a"))

		began := time.Now()
		for range 100 {
			require.Equal(t, []string{"open", "store"}, b.call("a-2", "b-1"), "another key of it, and another shard")
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, 0, b.store.calls("a"))
		require.Equal(t, 100, b.store.calls("b"))

		time.Sleep(20 * time.Millisecond) // the longest first back-off
		b.store.set("a", nil)
		require.Equal(t, []string{"store"}, b.call("a-1"))
		require.Equal(t, []string{"a open>half-open slow", "a half-open>closed slow"}, b.news())
		require.Equal(t, []string{"store"}, b.call("a-1"))
	})
}

// TestBackoff: the time between probes doubles, with jitter, up to half a second.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		last := time.Now()
		for _, most := range []time.Duration{20, 40, 80, 160, 320, 500, 500, 500} {
			for b.store.calls("a") == 0 {
				time.Sleep(time.Millisecond / 10)
				b.call("a-1")
			}
			took := time.Since(last)
			last = time.Now()
			require.GreaterOrEqual(t, took, most*time.Millisecond/2)
			require.LessOrEqual(t, took, most*time.Millisecond+time.Millisecond)
		}
		b.store.set("a", nil)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, []string{"store"}, b.call("a-1"))
		b.open(errRefused)
		b.news()
		time.Sleep(20 * time.Millisecond)
		b.call("a-1")
		require.Len(t, b.news(), 2, "it begins with the first back-off again")
	})
}

func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		time.Sleep(20 * time.Millisecond)
		b.store.set("a", nil)
		answer := make(chan struct{})
		b.store.hold["a"] = answer
		var probe []string
		go func() { probe = b.call("a-1", "a-2") }()
		synctest.Wait()
		for range 10 {
			require.Equal(t, []string{"open"}, b.call("a-3"))
			time.Sleep(time.Second)
		}
		close(answer)
		synctest.Wait()
		require.Equal(t, []string{"store", "store"}, probe, "all buckets of the call that probes")
		require.Equal(t, []string{"store"}, b.call("a-3"))
	})
}

func TestWhatOpensNoBreaker(t *testing.T) {
	for name, does := range map[string][]error{
		"what concerns one key": {errOwnKey, errOwnKey, errOwnKey, errOwnKey},
		"not in a row":          {errRefused, errRefused, nil, errRefused, errRefused, nil, errRefused},
		"late failures of calls sent before one that was answered": {errRefused, nil, errOldNews, errOldNews, errOldNews, errOldNews},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreakers()
				for _, d := range does {
					b.store.set("a", d)
					b.call("a-1")
					require.Equal(t, 1, b.store.calls("a"))
				}
				require.Empty(t, b.news())
			})
		})
	}
}

// TestLateFailuresDoNotReopen: many calls were under way when the shard failed, and are told so when it works again.
func TestLateFailuresDoNotReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		time.Sleep(20 * time.Millisecond)
		b.store.set("a", nil)
		b.call("a-1")
		b.news()
		b.store.set("a", errOldNews)
		for range 10 {
			b.call("a-1")
		}
		require.Empty(t, b.news())
	})
}

// TestProbeThatTellsNothing: the next call is a probe.
func TestProbeThatTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		time.Sleep(20 * time.Millisecond)
		b.store.set("a", errOwnKey)
		b.call("a-1")
		b.store.set("a", nil)
		require.Equal(t, []string{"store"}, b.call("a-1"))
	})
}

// TestProbeThatIsRefused: an answer that is about one key closes the breaker as any other does, but no caller gets more of it.
func TestProbeThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		b.news()
		time.Sleep(20 * time.Millisecond)
		b.store.set("a", errSpoilt)
		require.Equal(t, []string{"open"}, b.call("a-1"))
		require.Equal(t, []string{"a open>half-open refused", "a half-open>closed refused"}, b.news())
		for range 5 {
			b.call("a-1")
		}
		require.Empty(t, b.news())
	})
}

// TestLateAnswers: a shard that answers too late may be back, and is asked at once; but not every time.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errSlow)
		late := func() {
			b.Learn([]ratelimit.Bucket{take("a-1", tokens, policy.Open)}, []ratelimit.Result{{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore}}, time.Now())
		}
		late()
		b.call("a-1")
		require.Equal(t, 1, b.store.calls("a"), "asked before its time")
		asked := 0
		for range 1000 {
			late()
			b.call("a-1")
			asked += b.store.calls("a")
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, asked, 12, "it is slow: some probes of the first second, and one more for each 250 ms")
		b.store.set("a", nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"store"}, b.call("a-1"))
		b.store.set("a", errSlow)
		for range 3 {
			b.call("a-1")
		}
		b.store.set("a", nil)
		require.Equal(t, []string{"open"}, b.call("a-1"))
		late()
		require.Equal(t, []string{"store"}, b.call("a-1"), "it hung for a moment only")
		late()
		require.Equal(t, []string{"store"}, b.call("a-1"), "what works is left alone")
	})
}

// TestShardsThatGo: the table of breakers shrinks again, and calls then cost nothing.
func TestShardsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		b.open(errRefused)
		st := b.Shards()
		require.Len(t, st, 1)
		require.Equal(t, fallback.StateOpen, st[0].State)
		require.Equal(t, "refused", st[0].Reason)
		require.Equal(t, time.Now(), st[0].Since)
		require.Positive(t, time.Until(st[0].Next))
		b.news()

		b.store.mu.Lock()
		b.store.moved["a"] = "c" // promoted
		b.store.mu.Unlock()
		require.Equal(t, []string{"store"}, b.call("a-1"), "its keys are elsewhere")
		time.Sleep(time.Second)
		require.Empty(t, b.Shards())
		require.Equal(t, []string{"a open>closed gone"}, b.news())

		b.store.set("b", errRefused)
		b.call("b-1")
		b.store.set("b", nil)
		b.call("b-1")
		require.Len(t, b.Shards(), 1, "it works, but late failures may come")
		time.Sleep(time.Second)
		require.Empty(t, b.Shards())
	})
}
