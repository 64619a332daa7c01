package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/buckets"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

const drained = `domain: edge
policies:
  - {id: user, key: [user], algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: local}
`

// three are instances on one Redis.
func three(t *testing.T, urls ...string) []*instance {
	t.Helper()
	all := make([]*instance, 3)
	for n := range all {
		opts, log := options(t, drained)
		opts.Store, opts.StoreTimeout, opts.Redis.URLs = "redis", 2*time.Second, urls
		all[n] = newInstance(t, opts, log)
		require.NoError(t, all[n].Start(t.Context()))
		all[n].connect()
		t.Cleanup(func() { require.NoError(t, all[n].Stop(context.Background())) })
	}
	return all
}

// change asks one instance to change a bucket.
func (i *instance) change(action buckets.Action, body string) (status int, r buckets.Report) {
	i.t.Helper()
	post := httptest.NewRequest(http.MethodPost, buckets.Path+string(action), strings.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	i.BucketPages().ServeHTTP(w, post)
	require.NoError(i.t, json.Unmarshal(w.Body.Bytes(), &r), w.Body.String())
	return w.Code, r
}

// source is who decides a call of a user.
func (i *instance) source(user string) string {
	i.t.Helper()
	return i.call("user", user).GetDynamicMetadata().GetFields()["source"].GetStringValue()
}

func (i *instance) awaitBlocked(user string) {
	i.t.Helper()
	require.Eventually(i.t, func() bool { return i.source(user) == "blocked" }, patience, 5*time.Millisecond)
}

func body(user, more string) string {
	return fmt.Sprintf(`{"policy": "user", "attributes": {"user": %q}%s}`, user, more)
}

// exhaust drains a user's bucket until every instance denies it by what it remembers.
func exhaust(t *testing.T, all []*instance, user string) {
	t.Helper()
	for _, i := range all {
		i.admitted(7, "user", user)
		require.Zero(t, i.admitted(3, "user", user))
	}
}

// passesSoon measures how long it takes until a call passes, and fails in the long form after a second.
func passesSoon(t *testing.T, i *instance, since time.Time, user string) {
	t.Helper()
	for time.Since(since) < patience {
		if i.admitted(1, "user", user) == 1 {
			took := time.Since(since)
			t.Logf("passed after %v", took.Round(time.Millisecond))
			require.True(t, took < time.Second+200*time.Millisecond || !long(), "%v", took)
			return
		}
		time.Sleep(5 * time.Millisecond) // whoever is denied comes again
	}
	t.Fatal("still denied")
}

var layouts = map[string]func(t *testing.T) []string{
	"standalone": func(t *testing.T) []string { return []string{redistest.StartStandalone(t).URL()} },
	"cluster":    func(t *testing.T) []string { return redistest.StartCluster(t, redistest.Options{}).URLs() },
}

// TestAChangeReachesEveryInstance: each has denied by what it remembers, and admits; in the long form within a second.
func TestAChangeReachesEveryInstance(t *testing.T) {
	for name, urls := range layouts {
		t.Run(name, func(t *testing.T) {
			all := three(t, urls(t)...)
			exhaust(t, all, "a")
			began := time.Now()
			status, r := all[0].change(buckets.Reset, body("a", ""))
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "all instances", r.Scope)
			require.InDelta(t, 0, r.Before.Remaining, 0.1)
			require.Equal(t, 5.0, r.After.Remaining)
			require.Equal(t, 1, all[0].admitted(1, "user", "a"), "at once where it was made")
			for _, i := range all[1:] {
				passesSoon(t, i, began, "a")
			}

			exhaust(t, all, "a")
			began = time.Now()
			_, r = all[1].change(buckets.Set, body("a", `, "remaining": 3`))
			require.Equal(t, 3.0, r.After.Remaining)
			for _, i := range all {
				passesSoon(t, i, began, "a")
			}
			require.Zero(t, all[0].admitted(1, "user", "a"))

			status, r = all[2].change(buckets.Block, body("b", `, "for": "1h", "reason": "test"`))
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "all instances", r.Scope)
			for _, i := range all {
				i.awaitBlocked("b")
				answer := i.call("user", "b")
				require.Equal(t, rlsv3.RateLimitResponse_OVER_LIMIT, answer.GetOverallCode())
				seconds, err := strconv.Atoi(header(answer, "Retry-After"))
				require.NoError(t, err)
				require.InDelta(t, 3590, seconds, 10, "until the block ends")
				require.NotEqual(t, "", i.metric(`envoy_rls_decisions_total{outcome="denied",policy="user",source="blocked"}`))
				require.Equal(t, "1", i.metric("envoy_rls_blocked_buckets"))
			}
			status, _ = all[0].change(buckets.Unblock, body("b", ""))
			require.Equal(t, http.StatusOK, status)
			for _, i := range all {
				require.Eventually(t, func() bool { return i.source("b") != "blocked" }, patience, 5*time.Millisecond)
			}
			requireAudit(t, all)
			requireInstances(t, all)
		})
	}
}

// requireAudit: each instance shows what any was told.
func requireAudit(t *testing.T, all []*instance) {
	t.Helper()
	for _, i := range all {
		var audit buckets.AuditList
		i.read(buckets.AuditPath, &audit)
		require.Equal(t, "all instances", audit.Scope)
		var actions []buckets.Action
		for _, e := range audit.Entries {
			actions = append(actions, e.Action)
		}
		require.Equal(t, []buckets.Action{buckets.Unblock, buckets.Block, buckets.Set, buckets.Reset}, actions)
	}
}

// requireInstances: each instance knows what all say of themselves.
func requireInstances(t *testing.T, all []*instance) {
	t.Helper()
	for _, i := range all {
		require.Eventually(t, func() bool {
			var list admin.InstanceList
			i.read("/api/v1/instances", &list)
			known := 0
			for _, other := range list.Instances {
				if other.Ready && other.Version == "v-test" && other.Policies != "" && other.Address != "" {
					known++
				}
			}
			return known == len(all)
		}, 10*time.Second, 50*time.Millisecond)
	}
}

// read reads a page of the admin address.
func (i *instance) read(path string, into any) {
	i.t.Helper()
	status, text := i.page(path)
	require.Equal(i.t, http.StatusOK, status, text)
	require.NoError(i.t, json.Unmarshal([]byte(text), into))
}

// TestChangesWhileRedisIsAway: what is blocked stays so on every instance, a change is refused and says so, and a Redis that comes back empty is told
// again what is blocked.
func TestChangesWhileRedisIsAway(t *testing.T) {
	server := redistest.StartStandalone(t)
	all := three(t, server.URL())
	status, _ := all[0].change(buckets.Block, body("b", `, "for": "1h", "reason": "test"`))
	require.Equal(t, http.StatusOK, status)
	for _, i := range all {
		i.awaitBlocked("b")
	}
	server.Kill()
	for _, i := range all {
		require.Equal(t, "blocked", i.source("b"))
		status, _ := i.change(buckets.Reset, body("a", ""))
		require.Equal(t, http.StatusServiceUnavailable, status)
		status, _ = i.change(buckets.Block, body("c", `, "for": "1h", "reason": "test"`))
		require.Contains(t, []int{http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
		require.NotContains(t, i.log.String(), "panic")
	}
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool {
		version, err := server.Do(t.Context(), "STRLEN", "rl:{instances}:blocks")
		return err == nil && version.(int64) > 16
	}, 10*time.Second, 20*time.Millisecond)
	late, log := options(t, drained)
	late.Store, late.StoreTimeout, late.Redis.URLs = "redis", 200*time.Millisecond, []string{server.URL()}
	fourth := launch(t, late, log)
	require.Equal(t, "blocked", fourth.source("b"), "known before the first decision")
	require.Equal(t, 5, fourth.admitted(6, "user", "c"))
}

// TestAChangeIsKnownWhenRedisFails: an instance that has only been told of a reset decides by the full bucket from then on.
func TestAChangeIsKnownWhenRedisFails(t *testing.T) {
	server := redistest.StartStandalone(t)
	all := three(t, server.URL())
	for _, i := range all {
		require.Eventually(t, func() bool { return i.metric("envoy_rls_instances") == "3" }, 10*time.Second, 20*time.Millisecond)
	}
	exhaust(t, all, "a")
	status, _ := all[0].change(buckets.Reset, body("a", ""))
	require.Equal(t, http.StatusOK, status)
	status, _ = all[0].change(buckets.Block, body("b", `, "for": "1h", "reason": "test"`))
	require.Equal(t, http.StatusOK, status)
	for _, i := range all {
		i.awaitBlocked("b") // the reset came before, or with it
	}
	server.Kill()
	admitted := 0
	for _, i := range all {
		admitted += i.admitted(5, "user", "a")
	}
	require.Equal(t, 5, admitted)
}

// TestATokenChangesAKeyOfThePage: by the id that the page shows for it, over HTTP.
func TestATokenChangesAKeyOfThePage(t *testing.T) {
	opts, log := options(t, drained)
	opts.AdminTokenFile = filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(opts.AdminTokenFile, []byte("alice 0123456789abcdef\n"), 0o600))
	i := launch(t, opts, log)
	i.admitted(7, "user", "somebody")
	id := ""
	require.Eventually(t, func() bool {
		_, text := i.page("/api/v1/topkeys")
		m := regexp.MustCompile(`"id": ?"([0-9a-f]{16})"`).FindStringSubmatch(text)
		if m != nil {
			id = m[1]
		}
		return m != nil
	}, 10*time.Second, 50*time.Millisecond)
	token, err := buckets.ReadToken(opts.AdminTokenFile)
	require.NoError(t, err)
	client := adminhttp.Client{Addr: i.AdminAddr().String(), Token: token}
	q := new(buckets.Question)
	q.ID = id
	report, err := buckets.Ask(t.Context(), client, buckets.Reset, q)
	require.NoError(t, err)
	require.Equal(t, 5.0, report.After.Remaining)
	require.Equal(t, 5, i.admitted(7, "user", "somebody"))
	require.Contains(t, log.String(), "actor=token:alice")
	require.NotContains(t, log.String(), "somebody")
	client.Token = ""
	_, err = buckets.Ask(t.Context(), client, buckets.Reset, q)
	require.ErrorIs(t, err, adminhttp.ErrRefused)
}

// TestTakesThatRaceAReset: on Redis, over three instances.
func TestTakesThatRaceAReset(t *testing.T) {
	all := three(t, redistest.StartStandalone(t).URL())
	for round := range 5 {
		user := fmt.Sprint("racer ", round)
		var admitted atomic.Int64
		var calls sync.WaitGroup
		for n := range 100 {
			calls.Go(func() {
				answer, err := all[n%3].rls.ShouldRateLimit(context.Background(), request("edge", "user", user))
				if err == nil && answer.GetOverallCode() == rlsv3.RateLimitResponse_OK {
					admitted.Add(1)
				}
			})
		}
		status, _ := all[round%3].change(buckets.Reset, body(user, ""))
		require.Equal(t, http.StatusOK, status)
		calls.Wait()
		require.LessOrEqual(t, admitted.Load(), int64(10))
		require.GreaterOrEqual(t, admitted.Load(), int64(5))
	}
}

func TestChangesInMemory(t *testing.T) {
	i := start(t, drained)
	i.admitted(7, "user", "a")
	status, r := i.change(buckets.Reset, body("a", ""))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "this instance", r.Scope)
	require.Equal(t, 5, i.admitted(7, "user", "a"))
	i.change(buckets.Block, body("a", `, "for": "1h", "reason": "test"`))
	i.change(buckets.Reset, body("a", ""))
	require.Zero(t, i.admitted(1, "user", "a"), "a reset does not end a block")
	var list admin.InstanceList
	i.read("/api/v1/instances", &list)
	require.Len(t, list.Instances, 1)
	require.True(t, list.Instances[0].This)
	require.Equal(t, "this instance", list.Scope)
	post := httptest.NewRequest(http.MethodPost, "http://"+i.AdminAddr().String()+buckets.Path+"reset", strings.NewReader(body("a", "")))
	post.RequestURI = ""
	post.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(post)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusForbidden, answer.StatusCode, "nobody is allowed to")
	require.Equal(t, "1", i.metric(`envoy_rls_bucket_changes_total{action="reset",outcome="refused"}`))
}
