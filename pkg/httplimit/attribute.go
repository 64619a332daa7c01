package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Attribute is a fact about a request that policies can match and count by.
type Attribute struct {
	name string
	// append appends the value to text; ok is false if the request lacks it.
	append func(text []byte, r *http.Request) (_ []byte, ok bool)
	err    error // why it cannot be used
}

// Func is an attribute that value gives: the user that a session middleware has put into the request's context, a tenant from the host name.
// Where value's second result is false, the request lacks the attribute, and a policy that counts by it does what its onMissingKey says.
// Names are those of the policy files; some are made canonical before they count: ip, apiKey, route, path.
func Func(name string, value func(*http.Request) (string, bool)) Attribute {
	a := Attribute{name: name, append: func(text []byte, r *http.Request) ([]byte, bool) {
		v, ok := value(r)
		return append(text, v...), ok
	}}
	if name == "" || value == nil {
		a.err = fmt.Errorf("attribute %q: want a name and a func", name)
	}
	return a
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

// Route is the attribute route: method and path of the pattern that the request matched, such as "POST /users/{id}/payments", as policies
// write it. A host in the pattern is left out. A request that matched no pattern has no route.
//
// A mux notes the pattern in the request when it calls the handler. So with a nil mux, the middleware goes around each handler:
//
//	mux.Handle("POST /payments", limit.Handler(pay))
//
// When it goes around the whole mux instead, it has to look the pattern up in it, which costs as much as the mux's own search.
//
// Where the pattern has no method, the route has the request's (see [Method]). Then a policy for "POST /login" does not hold for the other
// methods that the handler takes: name the method in the pattern.
func Route(mux *http.ServeMux) Attribute {
	return Attribute{name: "route", append: func(text []byte, r *http.Request) ([]byte, bool) {
		pattern := r.Pattern
		if mux != nil {
			_, pattern = mux.Handler(r)
		}
		slash := strings.IndexByte(pattern, '/')
		if slash < 0 {
			return text, false
		}
		method, _, found := strings.Cut(pattern[:slash], " ")
		if !found {
			method = methodOf(r)
		}
		return append(append(append(text, method...), ' '), pattern[slash:]...), true
	}}
}

// Method is the attribute method. Methods that neither RFC 9110 nor RFC 5789 (PATCH) defines are all OTHER: a client that invents methods gets no
// new bucket by each. With Path it makes "{method} {path}", which is the attribute route where no other is given.
func Method() Attribute {
	return Func("method", func(r *http.Request) (string, bool) { return methodOf(r), true })
}

func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	case "": // of a client's request, for GET
		return http.MethodGet
	}
	return "OTHER"
}

// Path is the attribute path, without percent-encoding and query. Where a handler takes several spellings of a path for the same, Route is the
// better choice.
func Path() Attribute {
	return Func("path", func(r *http.Request) (string, bool) { return r.URL.Path, true })
}
