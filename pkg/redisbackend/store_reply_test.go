package redisbackend_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestFieldErrorReplies(t *testing.T) {
	server := redistest.StartStandalone(t)
	p := redistest.StartProxy(t, server)
	s := open(t, redisbackend.Options{URLs: []string{p.URL()}, Timeout: 5 * time.Second})
	b := take(key("a", "replies"))
	for reply, want := range map[string]redisbackend.Reason{
		"-OOM command not allowed when used memory > 'maxmemory'.":           redisbackend.ReasonOOM,
		"-LOADING Redis is loading the dataset in memory":                    redisbackend.ReasonLoading,
		"-CLUSTERDOWN The cluster is down":                                   redisbackend.ReasonClusterDown,
		"-MASTERDOWN Link with MASTER is down":                               redisbackend.ReasonMasterDown,
		"-NOAUTH Authentication required.":                                   redisbackend.ReasonNoAuth,
		"-NOPERM this user has no permissions to run the 'evalsha' command":  redisbackend.ReasonNoPerm,
		"-BUSY Redis is busy running a script.":                              redisbackend.ReasonBusy,
		"-MISCONF Redis is configured to save RDB snapshots":                 redisbackend.ReasonMisconf,
		"-READONLY You can't write against a read only replica.":             redisbackend.ReasonReadOnly,
		"-NOREPLICAS Not enough good replicas to write.":                     redisbackend.ReasonNoReplicas,
		"-ERR max number of clients reached":                                 redisbackend.ReasonMaxClients,
		"-WRONGTYPE Operation against a key holding the wrong kind of value": redisbackend.ReasonWrongType,
		"-ERR anything": redisbackend.ReasonOther,
		"-MOVED 1 ":     redisbackend.ReasonRedirects,
		"$3\r\nabc":     redisbackend.ReasonReply,
		"*-1":           redisbackend.ReasonOther,
		"!garbage":      redisbackend.ReasonConnection,
	} {
		t.Run(reply, func(t *testing.T) {
			eventually(t, s, b)
			spoil := func([]byte) ([]byte, bool) { return []byte(reply + "\r\n"), true }
			p.SpoilReplies(spoil)
			defer p.Heal()
			r := one(t.Context(), s, b)
			require.Equal(t, want, reason(r), "%v", r.Err)
			require.Zero(t, r.Outcome)
		})
	}
}

// TestTryAgainForLong has a slot move for longer than a caller has time.
func TestTryAgainForLong(t *testing.T) {
	server := redistest.StartStandalone(t)
	p := redistest.StartProxy(t, server)
	s := open(t, redisbackend.Options{URLs: []string{p.URL()}, Timeout: patient})
	b := take(key("a", "tryagain"))
	eventually(t, s, b)
	var replies atomic.Int64
	spoil := func([]byte) ([]byte, bool) {
		replies.Add(1)
		return []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), true
	}
	p.SpoilReplies(spoil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough for a second reply
	defer cancel()
	require.Contains(t, []redisbackend.Reason{redisbackend.ReasonTryAgain, redisbackend.ReasonTimeout, redisbackend.ReasonUnsent}, reason(one(ctx, s, b)))
	s.Close()
	require.Greater(t, replies.Load(), int64(1), "it was tried again")
}

func TestHalfAReply(t *testing.T) {
	server := redistest.StartStandalone(t)
	p := redistest.StartProxy(t, server)
	s := open(t, redisbackend.Options{URLs: []string{p.URL()}, Timeout: time.Second})
	b := take(key("a", "half"))
	eventually(t, s, b)
	spoil := func(piece []byte) ([]byte, bool) { return piece[:len(piece)/2], false }
	p.SpoilReplies(spoil)
	r := one(t.Context(), s, b)
	require.Equal(t, redisbackend.ReasonConnection, reason(r))
	var e *redisbackend.Error
	require.ErrorAs(t, r.Err, &e)
	require.True(t, e.MayHaveRun)
}

func TestMemoryFull(t *testing.T) {
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: time.Second})
	b, log, fresh := take(key("a", "full")), take(key("a", "log")), take(key("a", "fresh"))
	log.Limits = storetest.SL(5, time.Hour)
	s.Acquire(t.Context(), []ratelimit.Bucket{b, log}, nil)
	_, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1")
	require.NoError(t, err)
	for _, r := range s.Acquire(t.Context(), []ratelimit.Bucket{fresh, log, b}, nil) {
		require.Equal(t, redisbackend.ReasonOOM, reason(r))
	}
	_, err = server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, err)
	for i, r := range s.Acquire(t.Context(), []ratelimit.Bucket{fresh, log, b}, nil) {
		require.NoError(t, r.Err)
		require.InDelta(t, []float64{99, 3, 98}[i], r.Remaining, 0.01, "nothing was written meanwhile")
	}
}

func TestForeignKey(t *testing.T) {
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: time.Second})
	b := take(key("a", "foreign"))
	_, err := server.Do(t.Context(), "LPUSH", b.Key.String(), "x")
	require.NoError(t, err)
	require.Equal(t, redisbackend.ReasonWrongType, reason(one(t.Context(), s, b)))
}

func TestUserWithoutRights(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{Config: []string{"user ann on >ann ~* +@all -script -info"}})
	policies := make(chan string, 10)
	s := open(t, redisbackend.Options{
		URLs: []string{"redis://ann:ann@" + server.Addr()}, Timeout: time.Second,
		OnMaxMemoryPolicy: func(_, policy string) { policies <- policy },
	})
	require.Equal(t, redisbackend.ReasonNoPerm, reason(one(t.Context(), s, take(key("a", "rights")))), "and not that there is no script")
	require.Empty(t, policies)
}

func TestMaxMemoryPolicy(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{Config: []string{"maxmemory-policy volatile-lru"}})
	policies := make(chan string, 10)
	s := open(t, redisbackend.Options{
		URLs: []string{server.URL()}, Timeout: time.Second,
		OnMaxMemoryPolicy: func(node, policy string) { policies <- node + " " + policy },
	})
	eventually(t, s, take(key("a", "policy")))
	require.Equal(t, server.Addr()+" volatile-lru", <-policies)
}

func TestHooks(t *testing.T) {
	server := redistest.StartStandalone(t)
	var mu sync.Mutex
	var calls []redisbackend.Call
	var failures []redisbackend.Failure
	s := open(t, redisbackend.Options{
		URLs: []string{server.URL()}, Timeout: time.Second,
		OnCall: func(c *redisbackend.Call) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, *c)
		},
		OnFailure: func(f *redisbackend.Failure) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, *f)
		},
	})
	began := time.Now()
	buckets := []ratelimit.Bucket{take(key("a", "hooks")), take(key("b", "hooks"))}
	buckets[1].Limits = storetest.SL(5, time.Hour)
	results := s.Acquire(t.Context(), buckets, nil)
	require.Len(t, calls, 1)
	c := calls[0]
	require.Equal(t, server.Addr(), c.Node)
	require.Equal(t, []int{0, 1}, c.At)
	require.Equal(t, 99.0, c.Results[0].Remaining)
	require.Same(t, &results[0], &c.Results[0])
	require.WithinRange(t, c.Queued, began, time.Now())
	require.Positive(t, c.Took)
	require.Empty(t, failures)

	server.Kill()
	s.Acquire(t.Context(), buckets, nil)
	require.Len(t, failures, 1)
	require.Equal(t, server.Addr(), failures[0].Error.Node)
	require.False(t, failures[0].Undo)
}

// pausingTimeout is how long a caller waits there.
const pausingTimeout = 300 * time.Millisecond

// pausing is what happens to a node at the moment when something is about to be given back on it.
type pausing struct {
	cluster *redistest.Cluster
	store   *redisbackend.Store
	victim  *redistest.Server
	told    []string
	fails   tally
}

func (p *pausing) options() redisbackend.Options {
	return redisbackend.Options{
		URLs: p.cluster.URLs(), Timeout: pausingTimeout, ConnectionTimeout: 3 * time.Second / 2,
		OnUndo: func(buckets []ratelimit.Bucket) {
			for _, b := range buckets {
				p.told = append(p.told, b.Key.String())
			}
			if err := p.victim.Pause(); err != nil {
				panic(err)
			}
		},
		OnFailure: func(f *redisbackend.Failure) {
			if f.Undo {
				p.fails.add(f)
			}
		},
	}
}

// deny makes a call over two nodes that one denies, and the other cannot be told in time.
func (p *pausing) deny(t *testing.T, name string) ratelimit.Bucket {
	t.Helper()
	keys := keysApart(t, p.store, name, 2)
	drained, taken := take(keys[0]), take(keys[1])
	drained.Cost = 100
	eventually(t, p.store, drained)
	victim, err := p.cluster.Primary(t.Context(), taken.Key.String())
	require.NoError(t, err)
	p.victim = victim
	began := time.Now()
	r := p.store.Acquire(t.Context(), []ratelimit.Bucket{drained, taken}, nil)
	require.Less(t, time.Since(began), pausingTimeout+slack())
	require.Empty(t, p.fails.String(), "its caller does not wait until it has failed")
	require.Equal(t, ratelimit.Denied, r[0].Outcome)
	require.Equal(t, ratelimit.Admitted, r[1].Outcome)
	require.Equal(t, 100.0, r[1].Remaining)
	require.Equal(t, []string{taken.Key.String()}, p.told)
	p.told = nil
	taken.Op = ratelimit.Peek
	return taken
}

func TestWhatIsGivenBackLate(t *testing.T) {
	p := &pausing{cluster: shared.Cluster(t)}
	nodeTimeout(t, p.cluster, time.Minute)
	p.store = open(t, p.options())
	other := open(t, redisbackend.Options{URLs: p.cluster.URLs(), Timeout: patient})
	t.Run("its caller does not wait, Close does", func(t *testing.T) {
		taken := p.deny(t, "late")
		victim, resumed := p.victim, make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { _ = victim.Resume(); close(resumed) })
		p.store.Close()
		<-resumed
		require.Empty(t, p.fails.String())
		require.Equal(t, 100.0, one(t.Context(), other, taken).Remaining)
	})
	t.Run("it fails after a second, and is counted", func(t *testing.T) {
		p.store = open(t, p.options())
		p.deny(t, "never")
		began := time.Now()
		p.store.Close()
		require.Less(t, time.Since(began), undoBound+slack())
		require.NotEmpty(t, p.fails.String())
		require.NoError(t, p.victim.Resume())
	})
}

// undoBound is how long Close takes with something that cannot be given back: a second for that, and what the connections take to end.
const undoBound = time.Second + 3*time.Second/2 + time.Second
