package idempotency_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// TestStatuses: which answers a retry gets, and after which it is carried out again.
func TestStatuses(t *testing.T) {
	for status, stored := range map[int]bool{
		200: true, 201: true, 204: true, 302: true, 304: true, 400: true, 409: true, 422: true, 500: true, 502: true, 101: false, 429: false, 503: false,
	} {
		runs := 0
		s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(status)
		})
		s.serve(post("{}"))
		rec := s.serve(post("{}"))
		require.Equal(t, status, rec.Code)
		require.Equal(t, "/payments/1", rec.Header().Get("Location"))
		require.Equal(t, stored, runs == 1, status)
		require.Equal(t, stored, rec.Header().Get(idempotency.FieldReplayed) == "true", status)
		require.Equal(t, runs, s.charged(t))
		_, hasLength := rec.Header()["Content-Length"]
		require.Equal(t, stored && status != 204 && status != 304, hasLength, status)
	}
}

// TestReplayedHeader: what belongs to one response or connection is not replayed, nor what others around the handler say each time.
func TestReplayedHeader(t *testing.T) {
	s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Set("X-Latin-1", "caf\xe9")
		h["Link"] = []string{"</a>", "</b>"}
		h.Set("Vary", "Origin, Accept") // was there, and is another now
		for _, name := range []string{
			"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Hop", "X-Jump",
			"Date", "Set-Cookie", "RateLimit", "RateLimit-Policy", "RateLimit-Reset", "X-RateLimit-Limit", "Trailer:X", idempotency.FieldReplayed,
		} {
			h.Set(name, "first")
		}
		h["set-cookie"] = []string{"not canonical"}
		h.Set("Connection", "close, x-hop")
		h.Add("Connection", "X-Jump")
		h.Set("RateLimit", `"other";r=1`)
		h.Set("RateLimit-Policy", `"other";q=1`)
		w.Write([]byte("done"))
		h.Set("X-Late", "not sent")
	})
	id := "first"
	around := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		rec.Header().Set("X-Request-Id", id)
		rec.Header().Set("Vary", "Origin")
		s.ServeHTTP(rec, post("{}"))
		return rec
	}
	require.Equal(t, "first", around().Header().Get("Set-Cookie"))
	id = "second"
	rec := around()
	require.Equal(t, http.Header{
		"Content-Type": {"text/plain"}, "X-Latin-1": {"caf\xe9"}, "Link": {"</a>", "</b>"}, "Vary": {"Origin, Accept"}, "X-Request-Id": {"second"},
		idempotency.FieldReplayed: {"true"}, "Content-Length": {"4"},
		"Ratelimit": rec.Header()["Ratelimit"], "Ratelimit-Policy": rec.Header()["Ratelimit-Policy"],
	}, rec.Header())
	require.NotContains(t, rec.Header().Get("RateLimit"), "other")
	require.Equal(t, "done", rec.Body.String())
}

// TestTooLarge: a response that cannot be kept is passed on, and a retry is told, and charged, but not carried out.
func TestTooLarge(t *testing.T) {
	tests := []struct {
		name   string
		handle http.HandlerFunc
		body   int
	}{
		{"at once", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 2000)) }, 2000},
		{"in pieces", func(w http.ResponseWriter, _ *http.Request) {
			for range 20 {
				_, err := io.WriteString(w, strings.Repeat("x", 100))
				require.NoError(t, err)
			}
		}, 2000},
		{"header", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1000)) }, 0},
		{"less than was declared", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write(make([]byte, 99))
		}, 99},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runs := 0
			s := newService(t, idempotency.Options{MaxResponse: 1000}, func(w http.ResponseWriter, r *http.Request) {
				runs++
				tt.handle(w, r)
			})
			rec := s.serve(post("{}"))
			require.Equal(t, http.StatusOK, rec.Code)
			require.Equal(t, tt.body, rec.Body.Len())
			for range 2 {
				rec = s.serve(post("{}"))
				requireProblem(t, rec, http.StatusConflict, "IDEMPOTENCY_RESPONSE_NOT_KEPT")
				require.Contains(t, rec.Body.String(), `"originalStatus":200`)
				require.Empty(t, rec.Header().Get("Retry-After"))
			}
			require.Equal(t, 1, runs)
			require.Equal(t, 3, s.charged(t))
		})
	}
}

// TestPanic: nothing is stored, the lease is given up, and the panic goes on.
func TestPanic(t *testing.T) {
	for _, value := range []error{errors.New("broken"), http.ErrAbortHandler} {
		panics := true
		s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			if panics {
				panic(value)
			}
		})
		require.PanicsWithError(t, value.Error(), func() { s.serve(post("{}")) })
		panics = false
		rec := s.serve(post("{}"))
		require.Equal(t, http.StatusCreated, rec.Code)
		require.Empty(t, rec.Header().Get(idempotency.FieldReplayed))
		require.Equal(t, []idempotency.Outcome{idempotency.RanOnly, idempotency.Ran}, s.took())
		require.Equal(t, 2, s.charged(t))
	}
}

// TestReplayIsTheSame: whatever a handler answers that may be kept, a retry gets byte for byte.
func TestReplayIsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		status := rapid.SampledFrom([]int{200, 201, 204, 206, 303, 404, 418, 500, 599}).Draw(rt, "status")
		header := rapid.MapOf(rapid.SampledFrom([]string{"Content-Type", "Etag", "Link", "X-A", "x-b"}),
			rapid.SliceOfN(rapid.StringMatching(`[^\r\n]{0,20}`), 1, 3)).Draw(rt, "header")
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 50), 0, 4).Draw(rt, "pieces")
		s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), header)
			w.WriteHeader(status)
			for _, piece := range pieces {
				_, err := w.Write(piece)
				require.Equal(rt, status == http.StatusNoContent, errors.Is(err, http.ErrBodyNotAllowed))
			}
		})
		first, again := s.serve(post("{}")), s.serve(post("{}"))
		require.Equal(rt, first.Code, again.Code)
		if status == http.StatusNoContent {
			require.Zero(rt, again.Body.Len(), "what the handler was not allowed to write")
		} else {
			require.Equal(rt, first.Body.Bytes(), again.Body.Bytes())
			require.Equal(rt, strconv.Itoa(first.Body.Len()), again.Header().Get("Content-Length"))
			again.Header().Del("Content-Length")
		}
		require.Equal(rt, "true", again.Header().Get(idempotency.FieldReplayed))
		again.Header().Del(idempotency.FieldReplayed)
		require.Equal(rt, first.Header(), again.Header())
	})
}
