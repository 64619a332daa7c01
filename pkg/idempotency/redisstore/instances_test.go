package redisstore_test

import (
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

func start(t *testing.T, urls []string, next http.HandlerFunc) *instance {
	t.Helper()
	i, err := newInstance(urls, nil, next)
	require.NoError(t, err)
	t.Cleanup(i.close)
	return i
}

func requireCharged(t *testing.T, i *instance, want int) {
	t.Helper()
	got, err := i.charged()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestOneKeyAtThreeInstances: a client that sends one key again and again, to all instances at once, is charged for all but 5.
func TestOneKeyAtThreeInstances(t *testing.T) {
	requests := 1_500
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		requests = 10_000
	}
	urls := shared.Cluster(t).URLs()
	var runs, next, free atomic.Int64
	var instances []*instance
	for range 3 {
		instances = append(instances, start(t, urls, func(w http.ResponseWriter, _ *http.Request) {
			w.Write(strconv.AppendInt(nil, runs.Add(1), 10))
		}))
	}
	codes := map[int]int{}
	var mu sync.Mutex // guards codes
	var clients sync.WaitGroup
	for range 12 {
		clients.Go(func() {
			for n := next.Add(1); n <= int64(requests); n = next.Add(1) {
				rec := instances[n%3].post()
				if rec.Header().Get("RateLimit") == "" { // there is no Tell here
					free.Add(1)
				}
				mu.Lock()
				codes[rec.Code]++
				mu.Unlock()
				if rec.Code == http.StatusOK && rec.Body.String() != "1" {
					t.Errorf("run %s", rec.Body)
				}
			}
		})
	}
	clients.Wait()
	require.EqualValues(t, 1, runs.Load())
	require.EqualValues(t, idempotency.FreeReplays, free.Load())
	require.Equal(t, requests, codes[http.StatusOK]+codes[http.StatusConflict], codes)
	requireCharged(t, instances[0], requests-idempotency.FreeReplays)
}

// TestFirstAtThreeInstances: of three first requests at once one runs, the others are told 409.
func TestFirstAtThreeInstances(t *testing.T) {
	urls := []string{redistest.StartStandalone(t).URL()}
	begun, goOn := make(chan struct{}, 3), make(chan struct{})
	codes := make(chan int, 3)
	var clients sync.WaitGroup
	var last *instance
	for range 3 {
		last = start(t, urls, func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-goOn
			w.WriteHeader(http.StatusCreated)
		})
		clients.Go(func() { codes <- last.post().Code })
	}
	<-begun
	require.Equal(t, http.StatusConflict, <-codes)
	require.Equal(t, http.StatusConflict, <-codes)
	close(goOn)
	require.Equal(t, http.StatusCreated, <-codes)
	clients.Wait()
	require.Empty(t, begun)
	requireCharged(t, last, 3)
	require.Equal(t, http.StatusCreated, last.post().Code)
	requireCharged(t, last, 3)
}
