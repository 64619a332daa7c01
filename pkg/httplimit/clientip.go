package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// Unknown is what Proxies.Client gives for a client without an address: one that a proxy hides ("unknown", or an obfuscated identifier,
// which may be another for each request), and a peer on a Unix socket. All of them share the buckets of one client that has no valid
// address, and the policies count them as such.
const Unknown = "unknown"

// Proxies says which proxies stand between clients and the service, and so who a request's client is. What proxies note in a header field
// is read from the right, where they write, and never from the left, where anybody can.
//
// The zero Proxies trusts nobody: the client is the peer of the connection.
type Proxies struct {
	// Trusted are the addresses of the proxies. The header field of a request from any other peer is ignored. Unless Hops is set, the
	// client is the first address from the right that is not Trusted; list no network in which clients are.
	Trusted []netip.Prefix
	// Hops is how many proxies each request passes, exactly: the client is the Hops-th address from the right, and the peer where there are
	// fewer. Without Trusted every peer is believed to be the last of those proxies: then clients must have no other way to the service.
	Hops int
	// Forwarded says that the proxies write Forwarded (RFC 7239); otherwise it is X-Forwarded-For. The other field is not looked at: a proxy
	// that does not know it passes on what a client has put there.
	Forwarded bool
}

// mostHops is how many trusted addresses in a row are passed over in search of the client.
const mostHops = 64

// Client gives the address of the request's client, without port and zone, as it was noted: equal addresses may differ in spelling, and IPv4 ones
// appear as ::ffff:192.0.2.1 on some listeners. The limiter makes them one, and one client of each IPv6 /64. It gives Unknown if there is no
// address.
func (p *Proxies) Client(r *http.Request) string {
	client := hostOf(r.RemoteAddr)
	if p.believes(client) {
		client = p.noted(r, client)
	}
	if client.text == "" {
		return Unknown
	}
	return client.text
}

// believes reports whether the header field of a request from peer counts.
func (p *Proxies) believes(peer host) bool {
	if len(p.Trusted) == 0 {
		return p.Hops > 0
	}
	return p.trusts(peer)
}

// noted finds the client in the header field.
func (p *Proxies) noted(r *http.Request, peer host) host {
	c := chain{lines: r.Header[fieldForwardedFor]}
	if p.Forwarded {
		c = chain{lines: r.Header[fieldForwarded], forwarded: true}
	}
	if p.Hops > 0 {
		client := peer
		for range p.Hops {
			var ok bool
			if client, ok = c.next(); !ok {
				return peer
			}
		}
		return client
	}
	client := peer
	for range mostHops {
		next, ok := c.next()
		if !ok {
			break
		}
		if client = next; !p.trusts(client) {
			break
		}
	}
	return client
}

// trusts reports whether h is one of the proxies.
func (p *Proxies) trusts(h host) bool {
	addr := h.addr.Unmap()
	for _, network := range p.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// check finds what would make the chain be read wrongly.
func (p *Proxies) check() error {
	var faults []error
	if p.Hops < 0 || p.Hops > mostHops {
		faults = append(faults, fmt.Errorf("%d hops: want 0 to %d", p.Hops, mostHops))
	}
	for _, network := range p.Trusted {
		switch {
		case !network.IsValid():
			faults = append(faults, errors.New("an invalid network among the trusted proxies"))
		case network.Addr().Is4In6():
			faults = append(faults, fmt.Errorf("trusted proxies %v: write the network as one of IPv4", network))
		}
	}
	return errors.Join(faults...)
}
