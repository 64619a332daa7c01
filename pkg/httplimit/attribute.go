package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
)

// Attribute is a fact about a request that policies can match and count by.
type Attribute struct {
	name  string
	value func(*http.Request) (string, bool)
	err   error // why it cannot be used
}

// Func is an attribute that value gives: the user that a session middleware has put into the request's context, a tenant from the host name.
// Where value's second result is false, the request lacks the attribute, and a policy that counts by it does what its onMissingKey says.
// Names are those of the policy files; some are made canonical before they count: ip, apiKey, route, path.
func Func(name string, value func(*http.Request) (string, bool)) Attribute {
	return Attribute{name: name, value: value}
}

// Header is an attribute that the client, or a gateway in front, sends as a header field. Of several lines the first counts. What a client can
// choose freely, it can change for each request: count by it only what it proves, such as an API key that is checked.
func Header(name, field string) Attribute {
	field = http.CanonicalHeaderKey(field)
	return Func(name, func(r *http.Request) (string, bool) {
		if lines := r.Header[field]; len(lines) > 0 {
			return lines[0], true
		}
		return "", false
	})
}

// ClientIP is the attribute ip: the address of the client, as p finds it. The limiter counts an IPv6 client by its /64.
func ClientIP(p Proxies) Attribute {
	p.Trusted = append([]netip.Prefix(nil), p.Trusted...)
	a := Func("ip", func(r *http.Request) (string, bool) { return p.Client(r), true })
	if err := p.check(); err != nil {
		a.err = fmt.Errorf("attribute ip: %w", err)
	}
	return a
}

// Route is the attribute route: the pattern that the request matched, as it was registered, such as "POST /users/{id}/payments". A request
// that matched none has no route.
//
// A mux notes the pattern in the request when it calls the handler. So with a nil mux, the middleware goes around each handler:
//
//	mux.Handle("POST /payments", limit.Handler(pay))
//
// When it goes around the whole mux instead, it has to look the pattern up in it, which costs as much as the mux's own search.
//
// A pattern without a method gives a route without a method: if the request's were added, clients could invent methods to get new buckets.
func Route(mux *http.ServeMux) Attribute {
	return Func("route", func(r *http.Request) (string, bool) {
		pattern := r.Pattern
		if mux != nil {
			_, pattern = mux.Handler(r)
		}
		return pattern, pattern != ""
	})
}

// Method is the attribute method, as the request has it. With Path it makes "{method} {path}", which is the attribute route where no other
// is given.
func Method() Attribute {
	return Func("method", func(r *http.Request) (string, bool) { return r.Method, true })
}

// Path is the attribute path, without percent-encoding and query. Where a handler takes several spellings of a path for the same, Route is the
// better choice.
func Path() Attribute {
	return Func("path", func(r *http.Request) (string, bool) { return r.URL.Path, true })
}
