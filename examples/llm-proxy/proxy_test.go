package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The numbers of policies.yaml.
const (
	budget    = 10_000
	overdraft = 2_000
)

// lab is a proxy on a store whose clock stands still until told otherwise, in front of a model that answers as a test says.
type lab struct {
	t     *testing.T
	micro atomic.Int64
	proxy *Proxy
	url   string
	to    *http.Client
	model func(http.ResponseWriter, *http.Request)
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t}
	l.micro.Store(1e12)
	set, err := policy.Load("policies.yaml")
	require.NoError(t, err)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.model(w, r) }))
	t.Cleanup(model.Close)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: l.micro.Load})
	limiter := ratelimit.New(ratelimit.Options{Store: store, Policies: set})
	l.proxy = &Proxy{Limiter: limiter, Upstream: model.URL, Client: newClient()}
	server := httptest.NewServer(l.proxy)
	t.Cleanup(server.Close)
	l.url, l.to = server.URL, newClient()
	t.Cleanup(l.to.CloseIdleConnections)
	t.Cleanup(l.proxy.Client.CloseIdleConnections)
	return l
}

// left is what acme's bucket holds: less than nothing in debt.
func (l *lab) left() float64 {
	d, err := l.proxy.Limiter.Peek(l.t.Context(), ratelimit.Request{Attributes: map[string]string{"model": "m", "apiKey": "acme"}})
	require.NoError(l.t, err)
	return d.Checks[0].Result.Remaining
}

type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a body as acme. Without an answer the status is 0.
func (l *lab) post(body string) reply {
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return reply{body: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer acme")
	resp, err := l.to.Do(req)
	if err != nil {
		return reply{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{body: err.Error()}
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// promptTokens is what ask's prompt is estimated at.
const promptTokens = 20

// ask makes a call with this estimate, which is more than promptTokens.
func (l *lab) ask(estimate int) reply {
	body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":"`, estimate-promptTokens)
	return l.post(body + strings.Repeat("x", promptTokens*bytesPerToken-len(body)-2) + `"}`)
}

func took(w http.ResponseWriter, tokens int) {
	fmt.Fprintf(w, `{"usage":{"total_tokens":%d}}`, tokens)
}

// crowd makes n calls at once, and gives how many were admitted.
func (l *lab) crowd(n int, estimate func(int) int) (admitted int) {
	estimates := make([]int, n)
	for i := range estimates {
		estimates[i] = estimate(i)
	}
	var ok atomic.Int64
	var wg sync.WaitGroup
	for _, e := range estimates {
		wg.Go(func() {
			switch r := l.ask(e); r.status {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusTooManyRequests:
			default:
				l.t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	wg.Wait()
	return int(ok.Load())
}

// TestCrowd: whatever a hundred calls at once take, what is charged for it is what was taken, or all there was; the rest is told. What there
// is, is what the bucket holds, by a refill in between, and the overdraft.
func TestCrowd(t *testing.T) {
	random := func(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }
	tests := []struct {
		name     string
		estimate func(*rand.Rand) int
		actual   func(*rand.Rand) int
	}{
		{"estimates are too low", func(r *rand.Rand) int { return random(r, 30, 60) }, func(r *rand.Rand) int { return random(r, 61, 400) }},
		{"estimates are too high", func(r *rand.Rand) int { return random(r, 60, 100) }, func(r *rand.Rand) int { return random(r, 0, 50) }},
		{"any", func(r *rand.Rand) int { return random(r, 30, 200) }, func(r *rand.Rand) int { return random(r, 0, 300) }},
	}
	for _, tt := range tests {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(tt.name, " ", seed), func(t *testing.T) {
				l := newLab(t)
				estimates, actuals := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
				var mu sync.Mutex
				l.model = func(w http.ResponseWriter, _ *http.Request) {
					mu.Lock()
					tokens := tt.actual(actuals)
					mu.Unlock()
					took(w, tokens)
				}
				for range 3 {
					began, had := l.proxy.Stats(), l.left()
					room := uint64(had) + overdraft
					require.Positive(t, l.crowd(100, func(int) int { return tt.estimate(estimates) }))
					s := l.proxy.Stats()
					taken, uncharged := s.Actual-began.Actual, s.Uncharged-began.Uncharged
					require.InDelta(t, had-l.left(), float64(taken-uncharged), 1e-6, "the bucket says the same")
					require.Equal(t, min(taken, room), taken-uncharged)
					l.micro.Add((30 * time.Second).Microseconds()) // 5,000 tokens, if there is room for them
				}
			})
		}
	}
}

// TestWorstOrder: if calls that took more than estimated are all settled before those that took less, random costs still come to exactly the
// smaller of what was taken and what there was.
func TestWorstOrder(t *testing.T) {
	const calls, estimate = 100, budget / 100
	for seed := range uint64(5) {
		l := newLab(t)
		random := rand.New(rand.NewPCG(seed, 3))
		arrived, less, more := make(chan int), make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		l.model = func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			tokens := random.IntN(251)
			mu.Unlock()
			arrived <- tokens
			if tokens <= estimate {
				<-less
			} else {
				<-more
			}
			took(w, tokens)
		}
		replies := make(chan reply, calls)
		for range calls {
			go func() { replies <- l.ask(estimate) }()
		}
		total, dear := 0, 0
		for range calls {
			tokens := <-arrived
			if total += tokens; tokens > estimate {
				dear++
			}
		}
		require.Zero(t, l.left(), "all is reserved")
		require.Equal(t, http.StatusTooManyRequests, l.ask(promptTokens+1).status)
		close(more)
		for range dear {
			require.Equal(t, http.StatusOK, (<-replies).status)
		}
		close(less)
		for range calls - dear {
			require.Equal(t, http.StatusOK, (<-replies).status)
		}

		s := l.proxy.Stats()
		require.Equal(t, uint64(total), s.Actual)
		require.Equal(t, uint64(min(total, budget+overdraft)), s.Actual-s.Uncharged)
		require.Equal(t, float64(budget-min(total, budget+overdraft)), l.left())
	}
}

func TestFields(t *testing.T) {
	l := newLab(t)
	l.model = func(w http.ResponseWriter, _ *http.Request) { took(w, 4000) }
	r := l.ask(3000)
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, `{"usage":{"total_tokens":4000}}`, r.body)
	require.Equal(t, `"model-tokens";q=10000;w=60`, r.header.Get("RateLimit-Policy"))
	require.Equal(t, `"model-tokens";r=6000;t=36`, r.header.Get("RateLimit"), "what is left when the call is settled")
	require.Equal(t, `"model-tokens";r=2000;t=12`, l.ask(4000).header.Get("RateLimit"), "as estimated")

	r = l.ask(4000)
	require.Equal(t, http.StatusTooManyRequests, r.status)
	require.Equal(t, "12", r.header.Get("Retry-After"))
	require.Contains(t, r.body, "/errors/rate-limited")
	require.Empty(t, l.ask(budget+1).header.Get("Retry-After"), "never")
}

// TestWithoutUsage is about answers that do not say what they took.
func TestWithoutUsage(t *testing.T) {
	tests := []struct {
		name   string
		model  func(http.ResponseWriter, *http.Request)
		status int
		left   float64
	}{
		{"refused: nothing is charged", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, 401, budget},
		{"refused, but it took something", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest); took(w, 7) }, 400, budget - 7},
		{"no usage: the estimate stays", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }, 200, budget - 100},
		{"less than nothing: the estimate stays", func(w http.ResponseWriter, _ *http.Request) { took(w, -1_000_000) }, 200, budget - 100},
		{"no answer: the estimate stays", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, budget - 100},
		{"an endless answer: the estimate stays", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, maxAnswer+1)) }, 502, budget - 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.model = tt.model
			require.Equal(t, tt.status, l.ask(100).status)
			require.Equal(t, tt.left, l.left())
		})
	}
}

// TestClientHangsUp: what the model does for a client that has left is paid for.
func TestClientHangsUp(t *testing.T) {
	l := newLab(t)
	arrived, left := make(chan struct{}), make(chan struct{})
	l.model = func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-left
		took(w, 300)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":5}`))
	req.Header.Set("Authorization", "Bearer acme")
	go func() {
		<-arrived
		cancel()
		close(left)
	}()
	l.proxy.ServeHTTP(httptest.NewRecorder(), req)
	require.Equal(t, float64(budget-300), l.left())
}

func TestBadCalls(t *testing.T) {
	tests := map[string]struct {
		body   string
		status int
	}{
		"not JSON":         {"x", 400},
		"no model":         {`{}`, 400},
		"less than a word": {`{"model":"m","max_tokens":0}`, 400},
		"a refund":         {`{"model":"m","max_tokens":-5000}`, 400},
		"more than int64":  {`{"model":"m","max_tokens":9223372036854775808}`, 400},
		"all of int64":     {`{"model":"m","max_tokens":9223372036854775807}`, 429},
		"a stream":         {`{"model":"m","stream":true}`, 400},
		"too long":         {`{"model":"` + strings.Repeat("m", maxBody) + `"}`, 413},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.model = func(http.ResponseWriter, *http.Request) { t.Error("passed on") }
			require.Equal(t, tt.status, l.post(tt.body).status)
			require.Equal(t, float64(budget), l.left())
		})
	}
}

// TestServe is the program as it runs, with the model that invents its answers.
func TestServe(t *testing.T) {
	l := newLab(t)
	l.model = inventedModel(20, 20).ServeHTTP
	require.Contains(t, l.post(`{"model":"m"}`).body, "Certainly.")
	recorder := httptest.NewRecorder()
	l.proxy.ServeStats(recorder, httptest.NewRequest(http.MethodGet, "/stats", nil))
	require.JSONEq(t, `{"actualTokens":20,"unchargedTokens":0}`, recorder.Body.String())
}
