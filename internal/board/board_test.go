package board_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/board"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(closing{m}) }

// closing stops the cluster before anybody looks for what is left running.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var shared redistest.Shared

// member is an instance's board.
type member struct {
	*board.Board
	t       *testing.T
	blocks  *blocklist.Store
	mu      sync.Mutex
	notices []board.Notice
	polls   []error
}

// join makes a board on Redis that is asked only when the test says so.
func join(t *testing.T, id string, urls ...string) *member {
	t.Helper()
	redis, err := redisbackend.New(redisbackend.Options{URLs: urls, ConnectionTimeout: 10 * time.Second})
	require.NoError(t, err)
	require.NoError(t, redis.Start(t.Context()))
	t.Cleanup(redis.Close)
	m := &member{t: t, blocks: blocklist.New(memorybackend.New(memorybackend.Options{MaxBuckets: 16}))}
	m.Board = board.New(board.Options{
		Redis: redis, ID: id, Blocks: m.blocks, Record: func() []byte { return []byte(`{"id":"` + id + `"}`) },
		OnNotice: func(n board.Notice) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.notices = append(m.notices, n)
		},
		OnPoll: func(err error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.polls = append(m.polls, err)
		},
	})
	return m
}

// heard is what was told since it was asked last: key and what is left.
func (m *member) heard() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.notices {
		list = append(list, fmt.Sprintf("%s %v %v", n.Key, n.Remaining, n.Refund))
	}
	m.notices = nil
	return list
}

// polled reports whether Run has asked Redis with success.
func (m *member) polled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.polls, nil)
}

func (m *member) poll() {
	m.t.Helper()
	require.NoError(m.t, m.Poll(m.t.Context()))
}

// blocked are the reasons of the blocks.
func (m *member) blocked() (reasons []string) {
	for _, b := range m.blocks.Blocks() {
		reasons = append(reasons, b.Reason)
	}
	slices.Sort(reasons)
	return reasons
}

func key(name string) policy.Key { return policy.NewKey(policy.Part{Name: "user", Value: name}, "p") }

func block(name string, d time.Duration) blocklist.Block {
	now := time.Now().Truncate(time.Millisecond)
	return blocklist.Block{PolicyID: "p", Key: key(name).String(), Since: now, Until: now.Add(d), Reason: name, Actor: "tester"}
}

func TestBlocks(t *testing.T) {
	for name, urls := range map[string]func(t *testing.T) []string{
		"standalone": func(t *testing.T) []string { return []string{redistest.StartStandalone(t).URL()} },
		"cluster":    func(t *testing.T) []string { return shared.Cluster(t).URLs() },
	} {
		t.Run(name, func(t *testing.T) {
			at := urls(t)
			one, two := join(t, "one", at...), join(t, "two", at...)
			one.poll()
			two.poll()
			require.Empty(t, two.blocks.Blocks())
			b := block("a", time.Hour)
			require.NoError(t, one.Block(t.Context(), b))
			require.Equal(t, []blocklist.Block{b}, one.blocks.Blocks(), "at once where it was made")
			two.poll()
			require.Equal(t, b.Until.UnixMilli(), two.blocks.Blocks()[0].Until.UnixMilli())
			require.Equal(t, "tester", two.blocks.Blocks()[0].Actor)
			require.NoError(t, two.Block(t.Context(), block("b", time.Hour)))
			longer := block("a", 2*time.Hour)
			longer.Reason = "longer"
			require.NoError(t, two.Block(t.Context(), longer))
			one.poll()
			require.Equal(t, []string{"b", "longer"}, one.blocked())
			found, err := one.Unblock(t.Context(), key("b").String())
			require.NoError(t, err)
			require.True(t, found)
			found, err = two.Unblock(t.Context(), key("b").String())
			require.NoError(t, err)
			require.False(t, found)
			require.Equal(t, []string{"longer"}, two.blocked())
			late := join(t, "late", at...)
			late.poll()
			require.Equal(t, []string{"longer"}, late.blocked())
			_, err = late.Unblock(t.Context(), key("a").String())
			require.NoError(t, err)
		})
	}
}

// TestBlocksOfManyAtOnce: no change of the list is lost.
func TestBlocksOfManyAtOnce(t *testing.T) {
	server := redistest.StartStandalone(t)
	var all sync.WaitGroup
	for i := range 4 {
		m := join(t, fmt.Sprint(i), server.URL())
		all.Go(func() {
			for j := range 10 {
				b := block(fmt.Sprint(i, "-", j), time.Hour)
				for {
					err := m.Block(t.Context(), b)
					if err == nil {
						break
					}
					if err != blocklist.ErrContended { //nolint:errorlint // it is that value
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	m := join(t, "x", server.URL())
	m.poll()
	require.Len(t, m.blocks.Blocks(), 40)
}

// TestBlocksOutliveRedis: a Redis that was killed and comes back empty is told what the instances know, the newest of it.
func TestBlocksOutliveRedis(t *testing.T) {
	server := redistest.StartStandalone(t)
	one, two := join(t, "one", server.URL()), join(t, "two", server.URL())
	require.NoError(t, one.Block(t.Context(), block("a", time.Hour)))
	require.NoError(t, one.Block(t.Context(), block("b", time.Hour)))
	two.poll()
	_, err := one.Unblock(t.Context(), key("a").String())
	require.NoError(t, err)
	server.Kill()
	require.Error(t, one.Poll(t.Context()))
	require.Equal(t, []string{"b"}, one.blocked(), "the last known list")
	require.Error(t, one.Block(t.Context(), block("c", time.Hour)))
	require.Equal(t, []string{"b"}, one.blocked())
	require.NoError(t, server.Restart(t.Context()))
	eventually := func(m *member) {
		t.Helper()
		require.Eventually(t, func() bool { return m.Poll(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	}
	eventually(two) // which knows an older list
	eventually(one)
	eventually(two)
	require.Equal(t, []string{"b"}, one.blocked())
	require.Equal(t, []string{"b"}, two.blocked())
	late := join(t, "late", server.URL())
	eventually(late)
	require.Equal(t, []string{"b"}, late.blocked())
	require.NoError(t, late.Block(t.Context(), block("c", time.Hour)))
	eventually(one)
	require.Equal(t, []string{"b", "c"}, one.blocked())
}

// TestBlocksAfterAPromotion: a replica that had not got the last change takes the primary's place.
func TestBlocksAfterAPromotion(t *testing.T) {
	server := redistest.StartStandalone(t)
	one, two := join(t, "one", server.URL()), join(t, "two", server.URL())
	require.NoError(t, one.Block(t.Context(), block("a", time.Hour)))
	old, err := server.Do(t.Context(), "GET", "rl:{instances}:blocks")
	require.NoError(t, err)
	require.NoError(t, one.Block(t.Context(), block("b", time.Hour)))
	_, err = server.Do(t.Context(), "SET", "rl:{instances}:blocks", old)
	require.NoError(t, err)
	two.poll()
	require.Equal(t, []string{"a"}, two.blocked())
	one.poll()
	require.Equal(t, []string{"a", "b"}, one.blocked())
	two.poll()
	require.Equal(t, []string{"a", "b"}, two.blocked())
}

func TestNotices(t *testing.T) {
	server := redistest.StartStandalone(t)
	one, two := join(t, "one", server.URL()), join(t, "two", server.URL())
	one.poll()
	two.poll()
	require.NoError(t, one.Notify(t.Context(), board.Notice{Key: key("a"), Remaining: 10}))
	require.NoError(t, one.Notify(t.Context(), board.Notice{Key: key("b"), Remaining: 2.5, Refund: true}))
	require.Equal(t, []string{"rl:{user:a}:p 10 false", "rl:{user:b}:p 2.5 true"}, one.heard())
	two.poll()
	require.ElementsMatch(t, []string{"rl:{user:a}:p 10 false", "rl:{user:b}:p 2.5 true"}, two.heard(), "also what it missed")
	two.poll()
	one.poll()
	require.Empty(t, two.heard(), "once")
	require.Empty(t, one.heard())
	require.NoError(t, two.Notify(t.Context(), board.Notice{Key: key("c"), Remaining: -1}))
	one.poll()
	require.Equal(t, []string{"rl:{user:c}:p -1 false"}, one.heard())

	late := join(t, "late", server.URL())
	late.poll()
	require.Empty(t, late.heard(), "what was before it was there is of no concern")
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { return late.Notify(t.Context(), board.Notice{Key: key("d"), Remaining: 1}) == nil }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return two.Poll(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, two.heard(), "rl:{user:d}:p 1 false")
}

// TestNoticesAreBounded: however many there are, Redis keeps the last ones.
func TestNoticesAreBounded(t *testing.T) {
	server := redistest.StartStandalone(t)
	one, two := join(t, "one", server.URL()), join(t, "two", server.URL())
	two.poll()
	long := policy.NewKey(policy.Part{Name: "user", Value: strings.Repeat("x", 60)}, strings.Repeat("p", 60))
	for range 1500 {
		require.NoError(t, one.Notify(t.Context(), board.Notice{Key: long, Remaining: 1}))
	}
	size, err := server.Do(t.Context(), "STRLEN", "rl:{instances}:notices")
	require.NoError(t, err)
	require.LessOrEqual(t, size.(int64), int64(128<<10+16))
	two.poll()
	require.Greater(t, len(two.heard()), 500)
}

// TestWhatStandsInRedisIsNotTrusted: nothing of it is taken that no instance would write, and the next change puts it right.
func TestWhatStandsInRedisIsNotTrusted(t *testing.T) {
	server := redistest.StartStandalone(t)
	version := "1700000000000000"
	good := `{"policy":"p","key":"rl:{user:good}:p","since":1,"until":` + fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()) + `,"reason":"good\u0007\u202e","actor":"x"}` + "\n"
	bad := []string{
		"", "x", version, "no version at all, but long", version + "{}\n", version + "null\n[]\n", version + strings.Repeat("{", 1<<16),
		version + strings.Replace(good, "rl:{user:good}:p", "other:key", 1),
		version + strings.Replace(good, "rl:{user:good}:p", "rl:{instances}", 1),
		version + strings.Replace(good, `"reason":"`, `"reason":"`+strings.Repeat("r", 1000), 1),
		version + strings.Replace(good, `"until":`, `"until":9`, 1),
		version + strings.Replace(good, `"until":`, `"until":"`, 1),
		"9999999999999999" + "{}\n", "zzzzzzzzzzzzzzzz{}\n", "\x00\xff" + version,
	}
	for i, text := range bad {
		for _, k := range []string{"rl:{instances}:blocks", "rl:{instances}:notices", "rl:{instances}:audit", "rl:{instances}:at:x"} {
			_, err := server.Do(t.Context(), "SET", k, text)
			require.NoError(t, err)
		}
		m := join(t, "x", server.URL())
		_ = m.Poll(t.Context())
		require.Empty(t, m.blocks.Blocks(), "%d: %q", i, text)
		_ = m.Poll(t.Context())
		require.Empty(t, m.heard())
		_, err := m.Lines(t.Context())
		require.NoError(t, err)
		_, err = m.Records(t.Context(), []string{"x", strings.Repeat("long", 100)})
		require.NoError(t, err)
		require.NoError(t, m.Block(t.Context(), block("new", time.Hour)), "%d: %q", i, text)
		require.NoError(t, m.Notify(t.Context(), board.Notice{Key: key("new"), Remaining: 1}))
		other := join(t, "y", server.URL())
		_ = other.Poll(t.Context())
		require.Equal(t, []string{"new"}, other.blocked(), "%d: %q", i, text)
	}
	_, err := server.Do(t.Context(), "SET", "rl:{instances}:blocks", version+"garbage\n"+good)
	require.NoError(t, err)
	m := join(t, "x", server.URL())
	require.ErrorIs(t, m.Poll(t.Context()), board.ErrUnknown)
	require.Equal(t, []string{"good"}, m.blocked(), "one line of garbage takes nothing else with it")
	_, err = server.Do(t.Context(), "SET", "rl:{instances}:blocks", "zzzzzzzzzzzzzzzz")
	require.NoError(t, err)
	require.ErrorIs(t, m.Poll(t.Context()), board.ErrUnknown)
	require.Equal(t, []string{"good"}, m.blocked(), "what has no version replaces nothing")
	_, err = server.Do(t.Context(), "DEL", "rl:{instances}:blocks")
	require.NoError(t, err)
	_, err = server.Do(t.Context(), "LPUSH", "rl:{instances}:blocks", "another type")
	require.NoError(t, err)
	require.Error(t, m.Poll(t.Context()))
	require.Equal(t, []string{"good"}, m.blocked())
}

func TestAuditAndRecords(t *testing.T) {
	server := redistest.StartStandalone(t)
	one, two := join(t, "one", server.URL()), join(t, "two", server.URL())
	require.NoError(t, one.Log(t.Context(), []byte("first")))
	require.NoError(t, two.Log(t.Context(), []byte("second")))
	require.Error(t, two.Log(t.Context(), make([]byte, board.MaxLine+1)))
	lines, err := one.Lines(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"second", "first"}, lines)
	line := []byte(strings.Repeat("x", board.MaxLine))
	for range 300 {
		require.NoError(t, one.Log(t.Context(), line))
	}
	lines, err = one.Lines(t.Context())
	require.NoError(t, err)
	require.Less(t, len(lines), 300)
	require.Greater(t, len(lines), 200)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { one.Run(ctx) })
	require.Eventually(t, func() bool {
		records, err := two.Records(t.Context(), []string{"none", "one"})
		return err == nil && records["one"] == `{"id":"one"}` && len(records) == 1
	}, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, one.polled, 10*time.Second, 10*time.Millisecond)
	cancel()
	running.Wait()
}
