package page_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// TestManyKeys calls with a great many distinct keys: a million in the long form. The metrics have as many series as before, and they and the page
// are made as fast. Times are judged in the long form only, by the median.
func TestManyKeys(t *testing.T) {
	long := os.Getenv("ENVOY_RLS_LONG") == "1"
	keys := 20_000
	if long {
		keys = 1_000_000
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	i, err := harness.StartInstance(ctx, programs.service, []string{"serve", "--policies", file, "--drain-delay", "0s"}, nil)
	require.NoError(t, err)
	t.Cleanup(i.Stop)
	callWithKeys(t, i, 0, 100) // what comes with a first call
	before, _ := fetch(t, "http://"+i.Admin+"/metrics", 0)
	callWithKeys(t, i, 100, keys)
	after, scrape := fetch(t, "http://"+i.Admin+"/metrics", 0)
	require.Equal(t, series(before), series(after))
	page, shown := fetch(t, "http://"+i.Admin+"/", 1100*time.Millisecond)
	require.Contains(t, page, "tenant-ceiling")
	require.Less(t, len(page), 100_000)
	t.Logf("%d keys: %d series, a scrape takes %v, the page of %d bytes %v", keys, series(after), scrape, len(page), shown)
	if long {
		require.Less(t, scrape, 100*time.Millisecond)
		require.Less(t, shown, 50*time.Millisecond)
	}
}

// callWithKeys makes a call for each number from first to last.
func callWithKeys(t *testing.T, i *harness.Instance, first, last int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < last; n = int(next.Add(1)) - 1 {
				key := strconv.Itoa(n)
				if _, err := i.Ask(t.Context(), n, harness.Attributes("plan", "free", "api_key", key, "tenant", "customer-"+key)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// fetch gives a page of the admin address, and how long it takes: the median of five. every: the time between two, since the web page is made
// anew once a second.
func fetch(t *testing.T, url string, every time.Duration) (body string, took time.Duration) {
	t.Helper()
	var times []time.Duration
	for n := range 5 {
		if n > 0 {
			time.Sleep(every)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html,text/plain")
		began := time.Now()
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		b, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		times = append(times, time.Since(began))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, fmt.Sprintf("%.200s", b))
		body = string(b)
	}
	http.DefaultClient.CloseIdleConnections()
	slices.Sort(times)
	return body, times[len(times)/2]
}

// series counts those of the service's own metrics.
func series(metrics string) (n int) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "envoy_rls_") {
			n++
		}
	}
	return n
}
