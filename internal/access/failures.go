package access

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	mostFailures = 10 // from one address …
	failuresPer  = time.Minute
)

// failures counts wrong tokens by address. Its size is fixed: addresses may share a count, at random.
type failures struct {
	seed maphash.Seed

	mu      sync.Mutex
	windows [1024]window
}

type window struct {
	began time.Time
	n     int
}

func newFailures() failures { return failures{seed: maphash.MakeSeed()} }

// wait is how long nothing from an address is looked at.
func (f *failures) wait(from netip.Prefix) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.at(from); w.n >= mostFailures {
		return max(0, failuresPer-time.Since(w.began))
	}
	return 0
}

func (f *failures) add(from netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.at(from)
	if time.Since(w.began) >= failuresPer {
		*w = window{began: time.Now()}
	}
	w.n++
}

func (f *failures) at(from netip.Prefix) *window {
	return &f.windows[maphash.Comparable(f.seed, from)%uint64(len(f.windows))]
}

// sourceOf is the address that a request comes from; of IPv6 the 64 bits that one site has.
func sourceOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{} // those share a count
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
