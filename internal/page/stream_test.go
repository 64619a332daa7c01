package page_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/page"
)

// serve serves the page as the service does, but with deadlines that would cut a stream soon.
func serve(t *testing.T, s *service) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(s.handler())
	server.Config.WriteTimeout, server.Config.ReadTimeout = time.Second, time.Second
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func TestStream(t *testing.T) {
	s := newService(t, policies, nil)
	server := serve(t, s)
	stop := s.run(t)
	one, tables := s.listen(t, server, ""), s.listen(t, server, "?tables=1")
	name, data := one.next()
	require.Equal(t, "history", name)
	require.Contains(t, data, `"bySource"`)
	asked, snapshots := s.asked.Load(), int64(0)
	s.call(t, 5, "plan", "free", "api_key", "k", "tenant", "customer-42")
	var snapshot page.Snapshot
	for ; snapshot.Now.Denied+snapshot.Now.Allowed == 0; snapshots++ {
		require.Less(t, snapshots, int64(3))
		name, data = one.next()
		require.Equal(t, "snapshot", name)
		require.NoError(t, json.Unmarshal([]byte(data), &snapshot))
	}
	require.Len(t, snapshot.Keys, 1)
	require.InDelta(t, 2, snapshot.Keys[0].Denied[0].Calls, 0.6, "less by 2 % for each second since")
	require.Greater(t, snapshot.Now.Allowed, snapshot.Now.Denied)
	require.NotNil(t, snapshot.Now.Decision.P50)

	name, _ = tables.next()
	require.Equal(t, "history", name)
	name, _ = tables.next()
	require.Equal(t, "snapshot", name)
	name, data = tables.next()
	require.Equal(t, "tables", name)
	require.Contains(t, data, "Nothing is wrong")

	for range 2 { // longer than the server's deadlines
		name, _ = one.next()
		require.Equal(t, "snapshot", name)
		snapshots++
	}
	stop()
	for name, _ = one.next(); name != ""; name, _ = one.next() {
		snapshots++
	}
	require.LessOrEqual(t, s.asked.Load()-asked, 2*snapshots+1, "each second the state is read, and a snapshot is made, once for all; it is read once before")
	refused := s.get("/api/v1/events")
	require.Equal(t, 503, refused.Code, "nobody follows what has ended")
}

func TestViewersAreBounded(t *testing.T) {
	s := newService(t, policies, nil)
	server := serve(t, s)
	var streams []*stream
	for range page.MaxViewers {
		streams = append(streams, s.listen(t, server, ""))
	}
	refused := s.get("/api/v1/events")
	require.Equal(t, 503, refused.Code)
	require.Equal(t, "5", refused.Header().Get("Retry-After"))
	require.Contains(t, refused.Body.String(), "too many")
	_ = streams[0].body.Body.Close()
	require.Eventually(t, func() bool {
		answer, err := server.Client().Head(server.URL + "/api/v1/events")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == 200
	}, 30*time.Second, 10*time.Millisecond, "who leaves makes room")
	require.Equal(t, 405, func() int {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/events", nil))
		return w.Code
	}())
}

// stuck is somebody who takes the first message and never another one.
type stuck struct {
	header http.Header
	writes int
	wait   chan struct{}
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Flush()              {}
func (s *stuck) Write(b []byte) (int, error) {
	if s.writes++; s.writes > 1 {
		<-s.wait
		return 0, net.ErrClosed
	}
	return len(b), nil
}

// TestSlowViewerIsSentAway: others get every snapshot meanwhile, and the page does not wait.
func TestSlowViewerIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, policies, nil)
		s.run(t)
		slow := &stuck{header: http.Header{}, wait: make(chan struct{})}
		left := make(chan struct{})
		go func() {
			defer close(left)
			s.handler().ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/events", nil))
		}()
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 0, s.Viewers(), "it is not served any more")
		require.Equal(t, 2, slow.writes)
		close(slow.wait)
		<-left
	})
}
