package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is an answer that tells why a request was not carried out (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Original is the status of the response that cannot be given again.
	Original int `json:"originalStatus,omitempty"`
	// retryAfter is in seconds; 0: a retry does not help.
	retryAfter int
}

func keyMissing() *problem {
	return &problem{
		Type: "/errors/idempotency-key-missing", Title: "Idempotency-Key is missing", Status: http.StatusBadRequest,
		Code: "IDEMPOTENCY_KEY_MISSING", Detail: "this request needs an Idempotency-Key",
	}
}

func keyMalformed(err error) *problem {
	return &problem{
		Type: "/errors/idempotency-key-malformed", Title: "Idempotency-Key is malformed", Status: http.StatusBadRequest,
		Code: "IDEMPOTENCY_KEY_MALFORMED", Detail: err.Error(),
	}
}

func bodyUnread(tooLarge bool) *problem {
	p := &problem{
		Type: "/errors/body-unreadable", Title: "The body could not be read", Status: http.StatusBadRequest, Code: "BODY_UNREADABLE",
	}
	if tooLarge {
		p.Status = http.StatusRequestEntityTooLarge
	}
	return p
}

func stillRunning() *problem {
	return &problem{
		Type: "/errors/idempotency-key-in-flight", Title: "A request is outstanding for this Idempotency-Key", Status: http.StatusConflict,
		Code: "IDEMPOTENCY_KEY_IN_FLIGHT", Detail: "the first request with this key is still being carried out", retryAfter: 1,
	}
}

func keyReused() *problem {
	return &problem{
		Type: "/errors/idempotency-key-reused", Title: "Idempotency-Key is already used", Status: http.StatusUnprocessableEntity,
		Code: "IDEMPOTENCY_KEY_REUSED", Detail: "the key belongs to another request; use a new key for each",
	}
}

// notKept has no Retry-After, so that nobody tries until the key is forgotten and the request is carried out twice.
func notKept(status int) *problem {
	return &problem{
		Type: "/errors/idempotency-response-not-kept", Title: "The response was not kept", Status: http.StatusConflict,
		Code:   "IDEMPOTENCY_RESPONSE_NOT_KEPT",
		Detail: "the request was carried out, but its response was too large to be kept or broke off; do not repeat it", Original: status,
	}
}

func storeDown() *problem {
	return &problem{
		Type: "/errors/idempotency-unavailable", Title: "Retries cannot be recognised now", Status: http.StatusServiceUnavailable,
		Code: "IDEMPOTENCY_UNAVAILABLE", Detail: "the request was not carried out", retryAfter: 1,
	}
}

// ServeHTTP answers with the problem.
func (p *problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := json.Marshal(p)
	if err != nil { // strings and numbers always have a form
		text = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.Status)
	w.Write(text)
}
