package httplimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// from is a request as it arrives from peer, with these lines of the field that proxies write.
func from(peer, field string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	r.Header[field] = lines
	return r
}

const (
	xff       = "X-Forwarded-For"
	forwarded = "Forwarded"
	proxy     = "10.0.0.1:4000" // a trusted peer
)

var (
	oneHop     = httplimit.Proxies{Hops: 1}
	twoHops    = httplimit.Proxies{Hops: 2}
	trustedNet = httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	guardedHop = httplimit.Proxies{Trusted: trustedNet.Trusted, Hops: 1}
)

func TestClient(t *testing.T) {
	tests := []struct {
		name    string
		proxies httplimit.Proxies
		peer    string
		lines   []string
		want    string
	}{
		{"nobody trusted", httplimit.Proxies{}, "203.0.113.7:51000", []string{"1.1.1.1"}, "203.0.113.7"},
		{"nobody trusted, IPv6", httplimit.Proxies{}, "[2001:db8::1]:443", nil, "2001:db8::1"},
		{"zone", httplimit.Proxies{}, "[fe80::1%eth0]:443", nil, "fe80::1"},
		{"peer without port", httplimit.Proxies{}, "203.0.113.7", nil, "203.0.113.7"},
		{"Unix socket", httplimit.Proxies{}, "@", nil, httplimit.Unknown},
		{"Unix socket behind a proxy", oneHop, "@", []string{"9.9.9.9"}, "9.9.9.9"},
		{"Unix socket is no trusted network", trustedNet, "@", []string{"9.9.9.9"}, httplimit.Unknown},

		{"hops: the second from the right", twoHops, proxy, []string{"6.6.6.6, 9.9.9.9, 10.0.0.2"}, "9.9.9.9"},
		{"hops: exactly as many", twoHops, proxy, []string{"9.9.9.9, 10.0.0.2"}, "9.9.9.9"},
		{"hops: fewer", twoHops, proxy, []string{"9.9.9.9"}, "10.0.0.1"},
		{"hops: empty elements do not count", oneHop, proxy, []string{"9.9.9.9, ,", " ,\t"}, "9.9.9.9"},
		{"hops: only empty elements", oneHop, proxy, []string{" , ,"}, "10.0.0.1"},
		{"hops: no address", oneHop, proxy, []string{"9.9.9.9, unknown"}, httplimit.Unknown},

		{"networks: past trusted ones", trustedNet, proxy, []string{"6.6.6.6, 9.9.9.9, 10.0.0.3, 10.0.0.2"}, "9.9.9.9"},
		{"networks: client inside", trustedNet, proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"networks: IPv4-mapped peer", trustedNet, "[::ffff:10.0.0.1]:4000", []string{"9.9.9.9"}, "9.9.9.9"},
		{"networks: IPv4-mapped proxy", trustedNet, proxy, []string{"9.9.9.9, ::ffff:10.0.0.2"}, "9.9.9.9"},
		{"networks: IPv6 proxies", trustedNet, "[fd00::1]:4000", []string{"2001:db8::1, fd00::2"}, "2001:db8::1"},
		{"networks: hidden client", trustedNet, proxy, []string{"9.9.9.9, unknown, 10.0.0.2"}, httplimit.Unknown},
		{"networks: stranger", trustedNet, "203.0.113.7:1", []string{"9.9.9.9"}, "203.0.113.7"},
		{"networks and hops: stranger", guardedHop, "203.0.113.7:1", []string{"9.9.9.9"}, "203.0.113.7"},
		{"networks and hops", guardedHop, proxy, []string{"6.6.6.6, 10.0.0.9"}, "10.0.0.9"},

		{"with port", oneHop, proxy, []string{"9.9.9.9:51000"}, "9.9.9.9"},
		{"IPv6", oneHop, proxy, []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", oneHop, proxy, []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with port", oneHop, proxy, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv4-mapped", oneHop, proxy, []string{"::ffff:9.9.9.9"}, "::ffff:9.9.9.9"},
		{"garbage", oneHop, proxy, []string{"999.1.1.1"}, httplimit.Unknown},
		{"garbage in brackets", oneHop, proxy, []string{"[9.9.9.9"}, httplimit.Unknown},
		{"garbage behind brackets", oneHop, proxy, []string{"[2001:db8::1]x"}, httplimit.Unknown},
		{"5 kB", oneHop, proxy, []string{strings.Repeat("9", 5000)}, httplimit.Unknown},
		{"quotes mean nothing here", oneHop, proxy, []string{`"6.6.6.6, 9.9.9.9`}, "9.9.9.9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.proxies.Client(from(tt.peer, xff, tt.lines...)))
		})
	}
}

func TestClientOfForwarded(t *testing.T) {
	tests := []struct {
		name  string
		hops  int
		lines []string
		want  string
	}{
		{"token", 1, []string{`for=9.9.9.9`}, "9.9.9.9"},
		{"letter case", 1, []string{`FOR=9.9.9.9;Proto=https`}, "9.9.9.9"},
		{"not the first parameter", 1, []string{`proto=https;by=10.0.0.1;for=9.9.9.9`}, "9.9.9.9"},
		{"white space", 1, []string{` proto=https ; for = 9.9.9.9 ; host=a`}, httplimit.Unknown},
		{"white space around semicolons", 1, []string{"proto=https ;\tfor=9.9.9.9 ; host=a"}, "9.9.9.9"},
		{"empty parameters", 1, []string{`;;for=9.9.9.9;`}, "9.9.9.9"},
		{"quoted", 1, []string{`for="9.9.9.9:51000"`}, "9.9.9.9"},
		{"quoted IPv6", 1, []string{`for="[2001:db8::1]"`}, "2001:db8::1"},
		{"quoted IPv6 with port", 1, []string{`for="[2001:db8::1]:443";proto=https`}, "2001:db8::1"},
		{"obfuscated port", 1, []string{`for="9.9.9.9:_x"`}, "9.9.9.9"},
		{"escapes", 1, []string{`for="\9.9.\9.9"`}, "9.9.9.9"},
		{"quoted comma and semicolon", 1, []string{`for=6.6.6.6, host="a,b;for=1.1.1.1";for=9.9.9.9`}, "9.9.9.9"},
		{"quoted quote", 1, []string{`for=6.6.6.6, host="a\", for=1.1.1.1, \"";for=9.9.9.9`}, "9.9.9.9"},
		{"backslash at the end of a quoted string", 1, []string{`for=6.6.6.6, host="a\\";for=9.9.9.9`}, "9.9.9.9"},
		{"unknown", 1, []string{`for=9.9.9.9, for=unknown`}, httplimit.Unknown},
		{"obfuscated", 1, []string{`for=9.9.9.9, for="_gazonk"`}, httplimit.Unknown},
		{"without for", 1, []string{`for=9.9.9.9, proto=https`}, httplimit.Unknown},
		{"for twice", 1, []string{`for=9.9.9.9;for=8.8.8.8`}, httplimit.Unknown},
		{"no parameter", 1, []string{`9.9.9.9`}, httplimit.Unknown},
		{"text behind a quoted string", 1, []string{`for="9.9.9.9"x`}, httplimit.Unknown},
		{"quote inside a token", 1, []string{`for=9.9.9.9"`}, httplimit.Unknown},
		{"several lines", 2, []string{`for=6.6.6.6`, `for=9.9.9.9, for=10.0.0.3`}, "9.9.9.9"},
		{"several lines, fewer nodes", 3, []string{`for=9.9.9.9`, `for=10.0.0.3`}, "10.0.0.1"},
		{"the client's quote never ends", 1, []string{`for=", for=9.9.9.9`}, "9.9.9.9"},
		{"the client's quote never ends, on a line before", 1, []string{`for="`, `for="9.9.9.9"`}, "9.9.9.9"},
		{"the client escapes what follows", 1, []string{`for="\, for="9.9.9.9"`}, "9.9.9.9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := httplimit.Proxies{Hops: tt.hops, Forwarded: true}
			require.Equal(t, tt.want, p.Client(from(proxy, forwarded, tt.lines...)))
		})
	}
}

// TestOnlyTheFieldThatProxiesWrite: what is in the other one was written by a client.
func TestOnlyTheFieldThatProxiesWrite(t *testing.T) {
	r := from(proxy, xff, "9.9.9.9")
	r.Header.Set(forwarded, "for=6.6.6.6")
	require.Equal(t, "9.9.9.9", oneHop.Client(r))
	p := httplimit.Proxies{Hops: 1, Forwarded: true}
	require.Equal(t, "6.6.6.6", p.Client(r))
}

func TestFieldOneTrustedHop(t *testing.T) {
	require.Equal(t, "9.9.9.9", oneHop.Client(from(proxy, xff, "1.1.1.1, 9.9.9.9")))
}

func TestFieldThreeLinesJoinInOrder(t *testing.T) {
	r := from(proxy, xff, "1.1.1.1", "2.2.2.2, 3.3.3.3", "9.9.9.9")
	for hops, want := range map[int]string{1: "9.9.9.9", 2: "3.3.3.3", 3: "2.2.2.2", 4: "1.1.1.1", 5: "10.0.0.1"} {
		p := httplimit.Proxies{Hops: hops}
		require.Equal(t, want, p.Client(r), "%d hops", hops)
	}
}

func TestFieldNoHeaderUsesThePeer(t *testing.T) {
	for _, p := range []httplimit.Proxies{oneHop, twoHops, trustedNet, guardedHop} {
		require.Equal(t, "10.0.0.1", p.Client(from(proxy, xff)))
	}
}

func TestFieldStrangersHeaderIsIgnored(t *testing.T) {
	for _, p := range []httplimit.Proxies{trustedNet, guardedHop} {
		require.Equal(t, "198.51.100.4", p.Client(from("198.51.100.4:51000", xff, "1.1.1.1")))
		require.Equal(t, "9.9.9.9", p.Client(from(proxy, xff, "9.9.9.9")), "a proxy's header is not")
	}
}

// spoof is a left end of the field as an attacker might choose it.
func spoof() string {
	addr := netip.AddrFrom4([4]byte{byte(rand.IntN(256)), byte(rand.IntN(256)), byte(rand.IntN(256)), byte(rand.IntN(256))})
	return [...]string{
		addr.String(), addr.String() + ":80", "10.0.0.9, " + addr.String(), `for=` + addr.String(), `for="` + addr.String(),
		fmt.Sprintf("[2001:db8::%x]:443", rand.IntN(1<<16)), `\`, `"`, ",", strings.Repeat("10.0.0.2,", rand.IntN(100)) + addr.String(),
	}[rand.IntN(10)]
}

// TestFieldSpoofedLeftmostValuesAreOneBucket has one client send 100 different left ends: all count as the same client, however proxies are told.
func TestFieldSpoofedLeftmostValuesAreOneBucket(t *testing.T) {
	const policies = `
policies:
  - {id: ip, key: [ip], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: closed}
`
	networks := trustedNet
	networks.Forwarded = true
	tests := []struct {
		name    string
		proxies httplimit.Proxies
		field   string
		append  func(spoofed string) []string
	}{
		{"hops", oneHop, xff, func(s string) []string { return []string{s + ", 9.9.9.9"} }},
		{"hops, a line of its own", oneHop, xff, func(s string) []string { return []string{s, "9.9.9.9"} }},
		{"networks", trustedNet, xff, func(s string) []string { return []string{s + ", 9.9.9.9, 10.0.0.2"} }},
		{"both", guardedHop, xff, func(s string) []string { return []string{s + ", 9.9.9.9"} }},
		{"Forwarded", httplimit.Proxies{Hops: 1, Forwarded: true}, forwarded, func(s string) []string { return []string{s + `, for="9.9.9.9:1"`} }},
		{"Forwarded, networks", networks, forwarded, func(s string) []string { return []string{s, "for=9.9.9.9, for=10.0.0.2"} }},
		{"nobody trusted", httplimit.Proxies{}, xff, func(s string) []string { return []string{s} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler := newServer(t, policies, httplimit.Options{Attributes: []httplimit.Attribute{httplimit.ClientIP(tt.proxies)}})
			admitted := 0
			for range 100 {
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, from(proxy, tt.field, tt.append(spoof())...))
				if rec.Code == http.StatusOK {
					admitted++
				}
			}
			require.Equal(t, 10, admitted)
		})
	}
}

// TestFieldIPv6NeighboursAreOneBucket: what a household is given is one client, and an IPv4 client is the same on any listener.
func TestFieldIPv6NeighboursAreOneBucket(t *testing.T) {
	const policies = `
policies:
  - {id: ip, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
`
	for _, pair := range [][2]string{
		{"2001:db8:1:2::1.2.3.4", "2001:DB8:1:2::9"},
		{"203.0.113.7", "::ffff:203.0.113.7"},
		{"::ffff:cb00:7107", "203.0.113.7:51000"},
		{"[2001:db8::1]:443", "2001:db8::2"},
		{"unknown", "999.1.1.1"},
	} {
		t.Run(pair[0], func(t *testing.T) {
			handler := newServer(t, policies, httplimit.Options{Attributes: []httplimit.Attribute{httplimit.ClientIP(oneHop)}})
			for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, from(proxy, xff, pair[i]))
				require.Equal(t, want, rec.Code)
			}
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, from(proxy, xff, "2001:db8:0:1::1"))
			require.Equal(t, http.StatusOK, rec.Code, "somebody else")
		})
	}
}

// FuzzForwardedFor and FuzzForwarded: whatever a client puts in front, the proxy's own element is what counts, and without the proxy nothing panics.
func FuzzForwardedFor(f *testing.F) {
	for _, seed := range []string{"", "1.1.1.1", "1.1.1.1, ", `"`, "[", "[::1", "]:1", ",,", "::ffff:1.2.3.4%x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, left string) { requireRightEnd(t, xff, left, oneHop, trustedNet, "203.0.113.7") })
}

func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"", "for=1.1.1.1", `for="`, `for="\`, `host="a,b`, `for=";for="`, "for=a;for=b", "=", ";", `"\"`, `\\"`} {
		f.Add(seed)
	}
	hop, networks := oneHop, trustedNet
	hop.Forwarded, networks.Forwarded = true, true
	f.Fuzz(func(t *testing.T, left string) {
		requireRightEnd(t, forwarded, left, hop, networks, "for=203.0.113.7")
		requireRightEnd(t, forwarded, left, hop, networks, `host="a, \"b\\";for="203.0.113.7:80"`)
	})
}

func requireRightEnd(t *testing.T, field, left string, hop, networks httplimit.Proxies, own string) {
	for _, lines := range [][]string{{left + ", " + own}, {left, own}} {
		require.Equal(t, "203.0.113.7", hop.Client(from(proxy, field, lines...)))
		require.Equal(t, "203.0.113.7", networks.Client(from(proxy, field, lines...)))
	}
	for _, p := range []httplimit.Proxies{hop, networks} {
		client := p.Client(from(proxy, field, left))
		if client != httplimit.Unknown {
			_, err := netip.ParseAddr(client)
			require.NoError(t, err)
		}
	}
}

// TestLongFieldsAreQuicklyRead: what a client puts in front of a proxy's address is read once, however much of nothing it is. Read once for each
// comma, this would take minutes.
func TestLongFieldsAreQuicklyRead(t *testing.T) {
	const size = 1 << 20 // all that net/http takes
	for name, line := range map[string]string{
		"commas":       "1.1.1.1" + strings.Repeat(",", size),
		"white space":  "1.1.1.1" + strings.Repeat(" ,", size/2),
		"quotes":       strings.Repeat(`"`, size) + ",for=1.1.1.1",
		"backslashes":  `"` + strings.Repeat(`\`, size) + `",for=1.1.1.1`,
		"both":         strings.Repeat(`\"`, size/2) + ",for=1.1.1.1",
		"parameters":   strings.Repeat(`a=b;`, size/4) + ",for=1.1.1.1",
		"proxies":      strings.Repeat("10.0.0.2,", size/9),
		"Forwarded so": strings.Repeat("for=10.0.0.2,", size/13),
	} {
		for _, p := range []httplimit.Proxies{{Hops: 64}, {Hops: 64, Forwarded: true}, trustedNet, {Trusted: trustedNet.Trusted, Forwarded: true}} {
			r := from(proxy, xff, line)
			r.Header.Set(forwarded, line)
			began := time.Now()
			require.NotEmpty(t, p.Client(r), name)
			require.Less(t, time.Since(began), 10*time.Second, name)
		}
	}
}
