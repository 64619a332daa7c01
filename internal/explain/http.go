package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Path is where a service answers.
const Path = "/api/v1/explain"

// maxBytes bounds a question, and an answer.
const maxBytes = 1 << 20

// question is what is sent: a RateLimitRequest in JSON, and how to understand it.
type question struct {
	Domain      string       `json:"domain"` // empty: the only one of the policies
	HitsAddend  uint32       `json:"hitsAddend,omitempty"`
	Descriptors []descriptor `json:"descriptors"`
	Hashed      bool         `json:"hashed,omitempty"` // API keys may be given as their hashes
}

type descriptor struct {
	Entries        []entry `json:"entries"`
	HitsAddend     *uint64 `json:"hitsAddend,omitempty"`
	IsNegativeHits bool    `json:"isNegativeHits,omitempty"`
}

type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// request is the question as the service gets it from Envoy.
func (q *question) request(set *policy.Set) *descriptors.Request {
	req := &descriptors.Request{Domain: []byte(q.Domain), HitsAddend: q.HitsAddend}
	if domains := set.Domains(); q.Domain == "" && len(domains) == 1 {
		req.Domain = []byte(domains[0])
	}
	for i, d := range q.Descriptors {
		if i == descriptors.MaxDescriptors {
			req.Truncated = true
			break
		}
		to := descriptors.Descriptor{IsNegativeHits: d.IsNegativeHits}
		if d.HitsAddend != nil {
			to.HasHits, to.HitsAddend = true, *d.HitsAddend
		}
		for j, e := range d.Entries {
			if j == descriptors.MaxEntries {
				req.Truncated = true
				break
			}
			to.Entries = append(to.Entries, descriptors.Entry{Key: []byte(e.Key), Value: []byte(e.Value)})
		}
		req.Descriptors = append(req.Descriptors, to)
	}
	return req
}

func questionOf(req *descriptors.Request, hashed bool) question {
	q := question{Domain: string(req.Domain), HitsAddend: req.HitsAddend, Hashed: hashed}
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		to := descriptor{Entries: []entry{}, IsNegativeHits: d.IsNegativeHits}
		if d.HasHits {
			to.HitsAddend = &d.HitsAddend
		}
		for _, e := range d.Entries {
			to.Entries = append(to.Entries, entry{string(e.Key), string(e.Value)})
		}
		q.Descriptors = append(q.Descriptors, to)
	}
	return q
}

// Handler answers questions about the set in force and the buckets of store, at which it only looks. Whoever asks gives a request that others must
// not see: it is in the body, which is not logged. A browser does not send that type of body elsewhere by itself.
func Handler(inForce func() *policy.Set, store ratelimit.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		set := inForce()
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			reply(w, http.StatusMethodNotAllowed, failure{"a request to explain is sent by POST"})
			return
		case kind != "application/json":
			reply(w, http.StatusUnsupportedMediaType, failure{"want Content-Type: application/json"})
			return
		case set == nil:
			reply(w, http.StatusServiceUnavailable, failure{"no policy set is loaded"})
			return
		}
		var q question
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&q); err != nil {
			reply(w, http.StatusBadRequest, failure{"not a RateLimitRequest: " + strings.ToValidUTF8(err.Error(), "\uFFFD")})
			return
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			reply(w, http.StatusBadRequest, failure{"not a RateLimitRequest: want one object and nothing after it"})
			return
		}
		if len(q.Descriptors) == 0 {
			reply(w, http.StatusBadRequest, failure{"a request needs descriptors: the service refuses one without"})
			return
		}
		reply(w, http.StatusOK, Live(r.Context(), set, store, q.request(set), q.Hashed))
	})
}

type failure struct {
	Error string `json:"error"`
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // a client that left is no fault of ours
}

// ErrRefused is in the chain of an error that the service has answered.
var ErrRefused = errors.New("the service refused")

// Ask has the service whose admin address is addr (host:port, or a URL) explain req, by way of client.
func Ask(ctx context.Context, client *http.Client, addr string, req *descriptors.Request, hashed bool) (*Report, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	body, err := json.Marshal(questionOf(req, hashed))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(addr, "/")+Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	post.Close = true
	answer, err := client.Do(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(answer.Body, 16*maxBytes))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			f.Error = "is that the admin address of envoy-rls?"
		}
		return nil, fmt.Errorf("%w: %s: %s", ErrRefused, answer.Status, f.Error)
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("is that the admin address of envoy-rls? %w", err)
	}
	return &r, nil
}
