package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

const (
	upstreamTimeout = time.Minute
	maxBody         = 1 << 20 // bytes
	maxAnswer       = 8 << 20 // bytes
)

// Proxy passes calls on to a language model as long as there are tokens for them. Its exported fields are set before use.
type Proxy struct {
	Limiter  *ratelimit.Limiter
	Upstream string // URL of the model's API
	Client   *http.Client

	renderer  rlheaders.Renderer
	actual    atomic.Uint64
	uncharged atomic.Int64
}

// ServeHTTP passes one call on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read, or is too large", http.StatusRequestEntityTooLarge)
		return
	}
	c, err := parseCall(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	attributes := map[string]string{"model": c.Model}
	if key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		attributes["apiKey"] = key // hashed before it counts; the model's API says whether it is a good one
	}
	reservation, err := p.Limiter.Reserve(r.Context(), ratelimit.Request{Attributes: attributes, Cost: c.estimate(body)})
	switch {
	case err != nil: // a policy that cannot reserve
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !reservation.Decision.Allowed:
		p.deny(w, &reservation.Decision)
	default:
		p.pass(w, r, body, reservation)
	}
}

// pass passes on what was reserved for, and settles. Without an answer nobody knows what the model has done: then the estimate stays charged.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, body []byte, reservation *ratelimit.Reservation) {
	answer, err := p.ask(r, body)
	if err != nil {
		http.Error(w, "the model did not answer", http.StatusBadGateway)
		return
	}
	if tokens, ok := usage(answer.body); ok {
		p.commit(r.Context(), w, reservation, tokens)
	} else if answer.status >= http.StatusBadRequest {
		reservation.Cancel(r.Context())
	}
	w.Header().Set("Content-Type", answer.contentType)
	w.WriteHeader(answer.status)
	w.Write(answer.body)
}

// commit makes the estimate what the call has taken.
func (p *Proxy) commit(ctx context.Context, w http.ResponseWriter, r *ratelimit.Reservation, tokens uint64) {
	settled, err := r.Commit(ctx, tokens)
	if err != nil {
		return // not reached: it is the only one
	}
	p.actual.Add(tokens)
	p.uncharged.Add(int64(settled.Uncharged()) - int64(settled.MadeUp())) // neither is more than calls have taken
	left := &settled
	if len(settled.Checks) == 0 { // the estimate was right, or the policy is gone
		left = &r.Decision
	}
	p.fields(w, left)
}

// fields tells what is left.
func (p *Proxy) fields(w http.ResponseWriter, d *ratelimit.Decision) rlheaders.Answer {
	var a rlheaders.Answer
	p.renderer.Render(d, &a)
	set(w, rlheaders.FieldPolicy, a.Policy)
	set(w, rlheaders.FieldRateLimit, a.RateLimit)
	return a
}

func set(w http.ResponseWriter, field string, value []byte) {
	if len(value) > 0 {
		w.Header().Set(field, string(value))
	}
}

func (p *Proxy) deny(w http.ResponseWriter, d *ratelimit.Decision) {
	a := p.fields(w, d)
	set(w, rlheaders.FieldRetryAfter, a.RetryAfter)
	w.Header().Set(rlheaders.FieldContentType, rlheaders.ProblemContentType)
	w.Header().Set(rlheaders.FieldCacheControl, rlheaders.NoStore)
	w.WriteHeader(a.Status)
	w.Write(a.Body)
}

// newClient keeps as many connections as a busy proxy has calls under way to its one upstream.
func newClient() *http.Client {
	return &http.Client{Timeout: upstreamTimeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 100, IdleConnTimeout: time.Minute,
	}}
}

// answer is what the model's API has said.
type answer struct {
	status      int
	contentType string
	body        []byte
}

// ask passes a call on. It goes on when the client hangs up: what the model then does is paid for all the same.
func (p *Proxy) ask(r *http.Request, body []byte) (*answer, error) {
	ctx := context.WithoutCancel(r.Context())
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(p.Upstream, "/")+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Authorization", r.Header.Get("Authorization"))
	resp, err := p.Client.Do(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type")}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, err
	}
	if len(a.body) > maxAnswer {
		return nil, errors.New("the model's answer is too long")
	}
	return a, nil
}

// Stats are tokens since the start.
type Stats struct {
	Actual    uint64 `json:"actualTokens"`    // what the model says that calls have taken
	Uncharged uint64 `json:"unchargedTokens"` // the part of it that has found no room, not even in the overdraft
}

// Stats counts.
func (p *Proxy) Stats() Stats { return Stats{p.actual.Load(), uint64(max(0, p.uncharged.Load()))} }

// ServeStats shows the Stats.
func (p *Proxy) ServeStats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(p.Stats()); err != nil {
		fmt.Fprintln(w, err)
	}
}
