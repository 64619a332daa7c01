package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// counter are policies that count all requests, by names in turn with capacities.
func counter(nameAndCapacity ...any) string {
	text := "policies:\n"
	for i := 0; i < len(nameAndCapacity); i += 2 {
		n := nameAndCapacity[i+1]
		text += fmt.Sprintf("  - {id: %s, key: [], algorithm: token-bucket, capacity: %d, refillPerMinute: %d, onStoreFailure: closed}\n", nameAndCapacity[i], n, n)
	}
	return text
}

// TestFieldsAreJoined: what the handler says of limits ends up in the same lines, however it says it.
func TestFieldsAreJoined(t *testing.T) {
	const policy, limit = `"outer";q=60;w=60`, `"outer";r=59;t=59`
	tests := []struct {
		name          string
		handle        http.HandlerFunc
		policy, limit string
	}{
		{"nothing said", hello, policy, limit},
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, policy, limit},
		{"set", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("RateLimit-Policy", `"inner";q=5;w=60`)
			w.Header().Set("RateLimit", `"inner";r=4;t=60`)
			hello(w, r)
		}, policy + `, "inner";q=5;w=60`, limit + `, "inner";r=4;t=60`},
		{"added", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("RateLimit-Policy", `"inner";q=5;w=60`)
			w.Header().Add("RateLimit", `"inner";r=4;t=60`)
		}, policy + `, "inner";q=5;w=60`, limit + `, "inner";r=4;t=60`},
		{"same name", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("RateLimit-Policy", `"outer";q=60;w=60`)
			w.Header().Add("RateLimit", `"outer";r=7;t=7`)
			w.WriteHeader(http.StatusNoContent)
		}, policy, `"outer";r=7;t=7`},
		{"removed", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Del("RateLimit-Policy")
			w.Header().Del("RateLimit")
			hello(w, r)
		}, policy, limit},
		{"malformed", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("RateLimit", "limit=100, remaining=50, reset=50")
			hello(w, r)
		}, policy, limit},
		{"one that the gateway tells of", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("RateLimit-Policy", `"gateway";q=5;w=60`)
			hello(w, r)
		}, policy, limit},
		{"after the response has begun", func(w http.ResponseWriter, r *http.Request) {
			hello(w, r)
			w.Header().Set("RateLimit", `"late";r=4;t=60`)
		}, policy, limit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMiddleware(t, counter("outer", 60), httplimit.Options{Elsewhere: []string{"gateway"}})
			resp := serve(m.Handler(tt.handle), get("/")).Result()
			require.Equal(t, tt.policy, field(t, resp.Header, "RateLimit-Policy"))
			require.Equal(t, tt.limit, field(t, resp.Header, "RateLimit"))
		})
	}
}

// TestElsewhereOnly: if the gateway tells of every policy that applies, there is no field.
func TestElsewhereOnly(t *testing.T) {
	m := newMiddleware(t, counter("gateway", 1), httplimit.Options{Elsewhere: []string{"gateway"}})
	handler := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit", `"gateway";r=1`) }))
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		rec := serve(handler, get("/"))
		require.Equal(t, status, rec.Code)
		require.NotContains(t, rec.Header(), "Ratelimit")
		require.NotContains(t, rec.Header(), "Ratelimit-Policy")
	}
}

// TestLimitersInLayers: a limiter for the whole site around one for a route, each with a store of its own, and a name in common.
func TestLimitersInLayers(t *testing.T) {
	inner := newMiddleware(t, counter("route", 5, "shared", 2), httplimit.Options{})
	outer := newMiddleware(t, counter("site", 60, "shared", 3), httplimit.Options{})
	handler := outer.Handler(inner.Handler(http.HandlerFunc(hello)))
	rec := serve(handler, get("/"))
	require.Equal(t, `"shared";q=3;w=60, "site";q=60;w=60, "route";q=5;w=60`, field(t, rec.Header(), "RateLimit-Policy"))
	require.Equal(t, `"shared";r=1;t=30, "site";r=59;t=59, "route";r=4;t=48`, field(t, rec.Header(), "RateLimit"))

	serve(handler, get("/"))
	rec = serve(handler, get("/"))
	require.Equal(t, http.StatusTooManyRequests, rec.Code, "denied by the inner one")
	require.Equal(t, `"shared";r=0;t=20, "site";r=57;t=57, "route";r=3`, field(t, rec.Header(), "RateLimit"))
}

// TestTwiceTheSame: a limiter around the mux and around the handler charges twice, and is told of once, as it is in the end.
func TestTwiceTheSame(t *testing.T) {
	limit := newMiddleware(t, counter("only", 5), httplimit.Options{})
	rec := serve(limit.Handler(limit.Handler(http.HandlerFunc(hello))), get("/"))
	require.Equal(t, `"only";q=5;w=60`, field(t, rec.Header(), "RateLimit-Policy"))
	require.Equal(t, `"only";r=3;t=36`, field(t, rec.Header(), "RateLimit"))
}

// TestProxyInFrontOfAnotherService: a gateway written in Go, whose upstream has limits, too.
func TestProxyInFrontOfAnotherService(t *testing.T) {
	upstream := httptest.NewServer(newServer(t, counter("service", 5), httplimit.Options{}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = upstream.Client().Transport
	gateway := httptest.NewServer(newMiddleware(t, counter("gateway", 60), httplimit.Options{}).Handler(proxy))
	defer gateway.Close()
	resp := fetch(t, gateway.Client(), gateway.URL)
	require.Equal(t, `"gateway";q=60;w=60, "service";q=5;w=60`, field(t, resp.Header, "RateLimit-Policy"))
	require.Equal(t, `"gateway";r=59;t=59, "service";r=4;t=48`, field(t, resp.Header, "RateLimit"))
}

// fetch gets a page and closes it.
func fetch(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

// TestRealServers has handlers use what the writers of HTTP/1 and HTTP/2 offer.
func TestRealServers(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"string": func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, "hello")
			require.NoError(t, err)
		},
		"copy": func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader("hello")})
			require.NoError(t, err)
		},
		"cleared": func(w http.ResponseWriter, r *http.Request) { // as httputil.ReverseProxy does after a 1xx
			clear(w.Header())
			w.Header().Add("RateLimit", `"inner";r=1`)
			hello(w, r)
		},
		"two statuses": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.WriteHeader(http.StatusTeapot) // too late, which the server's log says
			hello(w, r)
		},
		"trailer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Checksum")
			hello(w, r)
			w.Header().Set("Checksum", "5")
		},
		"file": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "hello.txt", time.Time{}, strings.NewReader("hello"))
		},
		"timeout": func(w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(hello), time.Minute, "late").ServeHTTP(w, r)
		},
		"flush": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			hello(w, r)
		},
		"controller": func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
			require.NoError(t, c.Flush())
			hello(w, r)
		},
	}
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, handle := range handlers {
			t.Run(version+" "+name, func(t *testing.T) {
				limit := newMiddleware(t, counter("outer", 60), httplimit.Options{})
				server := httptest.NewUnstartedServer(limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusEarlyHints)
					w.Header().Add("RateLimit", `"inner";r=1`)
					handle(w, r)
				})))
				server.EnableHTTP2 = version == "HTTP/2.0"
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.StartTLS()
				defer server.Close()
				resp, err := server.Client().Get(server.URL)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, version, resp.Proto)
				require.Equal(t, "hello", string(body))
				require.Equal(t, `"outer";q=60;w=60`, field(t, resp.Header, "RateLimit-Policy"))
				require.Equal(t, `"outer";r=59;t=59, "inner";r=1`, field(t, resp.Header, "RateLimit"))
			})
		}
	}
}

// TestHijack: a connection can be taken over, directly and through a controller.
func TestHijack(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
	takers := map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"directly": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	}
	for name, take := range takers {
		t.Run(name, func(t *testing.T) {
			limit := newMiddleware(t, counter("outer", 60), httplimit.Options{})
			server := httptest.NewServer(limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := take(w)
				require.NoError(t, err)
				_, err = io.WriteString(conn, answer)
				require.NoError(t, err)
				require.NoError(t, conn.Close())
			})))
			defer server.Close()
			require.Equal(t, http.StatusOK, fetch(t, server.Client(), server.URL).StatusCode)
		})
	}
}

// bare is a writer that can do nothing more, and flushing one that can flush only.
type bare struct{ http.ResponseWriter }

type flushing struct {
	bare
	flushed *bool
}

func (w flushing) Flush() { *w.flushed = true }

// TestWritersPromiseNothing: a writer has the methods that the one underneath has.
func TestWritersPromiseNothing(t *testing.T) {
	see := func(w http.ResponseWriter) (can [3]bool) {
		limit := newMiddleware(t, counter("outer", 60), httplimit.Options{})
		limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, can[1] = w.(http.Hijacker)
			_, can[2] = w.(http.Pusher)
			var flusher http.Flusher
			if flusher, can[0] = w.(http.Flusher); can[0] {
				flusher.Flush()
			} else {
				require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
			}
		})).ServeHTTP(w, get("/"))
		return can
	}
	rec := httptest.NewRecorder()
	require.Equal(t, [3]bool{}, see(bare{rec}))
	require.Equal(t, `"outer";r=59;t=59`, rec.Header().Get("RateLimit"))

	flushed := false
	require.Equal(t, [3]bool{true, false, false}, see(flushing{bare{httptest.NewRecorder()}, &flushed}))
	require.True(t, flushed)
}
