package httplimit

import (
	"net/http"

	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// The fields that every response has, as the keys of a header.
const (
	keyPolicy    = "Ratelimit-Policy"
	keyRateLimit = "Ratelimit"
)

// fields are the values of RateLimit-Policy and RateLimit, as they were put into a header. An empty one is not sent.
type fields struct{ policy, rateLimit string }

// fieldLines has room for a header's lines of both.
type fieldLines [2]string

// fields gives the answer's, both in one piece of memory.
func (s *scratch) fields() fields {
	s.text = append(append(s.text[:0], s.answer.Policy...), s.answer.RateLimit...)
	both, n := string(s.text), len(s.answer.Policy)
	return fields{policy: both[:n], rateLimit: both[n:]}
}

// put sets the fields in h, joined with those that are there. It can be called again, when h may have changed.
func (f *fields) put(h http.Header, lines *fieldLines, r *rlheaders.Renderer) {
	putField(h, keyPolicy, &f.policy, lines[0:1:1], r)
	putField(h, keyRateLimit, &f.rateLimit, lines[1:2:2], r)
}

func putField(h http.Header, key string, value *string, line []string, r *rlheaders.Renderer) {
	present := h[key]
	if len(present) == 0 && *value == "" || len(present) == 1 && present[0] == *value {
		return
	}
	if len(present) > 0 {
		*value = r.Merge(*value, present)
	}
	if *value == "" {
		delete(h, key)
		return
	}
	line[0] = *value
	h[key] = line
}
