package explain

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
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
		if !adminhttp.Posted(w, r, "which request to explain") {
			return
		}
		set := inForce()
		if set == nil {
			adminhttp.Fail(w, http.StatusServiceUnavailable, "no policy set is loaded")
			return
		}
		var q question
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&q); err != nil {
			adminhttp.Fail(w, http.StatusBadRequest, "not a RateLimitRequest: "+err.Error())
			return
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			adminhttp.Fail(w, http.StatusBadRequest, "not a RateLimitRequest: want one object and nothing after it")
			return
		}
		if len(q.Descriptors) == 0 {
			adminhttp.Fail(w, http.StatusBadRequest, "a request needs descriptors: the service refuses one without")
			return
		}
		adminhttp.Reply(w, http.StatusOK, Live(r.Context(), set, store, q.request(set), q.Hashed))
	})
}

// Ask has a service explain req.
func Ask(ctx context.Context, client adminhttp.Client, req *descriptors.Request, hashed bool) (*Report, error) {
	var r Report
	if err := client.Post(ctx, Path, questionOf(req, hashed), &r, 16*maxBytes); err != nil {
		return nil, err
	}
	return &r, nil
}
