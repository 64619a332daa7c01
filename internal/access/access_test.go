package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/access"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	alice = "a1b2c3d4e5f6g7h8-alice"
	bob   = "z9y8x7w6v5u4t3s2-bob"
)

// gate is a Gate and what it told.
type gate struct {
	*access.Gate
	t    *testing.T
	file string

	mu      sync.Mutex
	refused []access.Reason
	told    []error
}

func newGate(t *testing.T, tokens string, certificates bool) *gate {
	t.Helper()
	g := &gate{t: t}
	o := access.Options{
		Certificates: certificates,
		OnRefused: func(r *access.Refused) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refused = append(g.refused, r.Reason)
		},
		OnTokens: func(err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.told = append(g.told, err)
		},
	}
	if tokens != "" {
		g.file = filepath.Join(t.TempDir(), "tokens")
		o.TokenFile = g.file
		g.write(tokens)
	}
	var err error
	g.Gate, err = access.New(o)
	require.NoError(t, err)
	return g
}

func (g *gate) write(tokens string) {
	g.t.Helper()
	require.NoError(g.t, testcerts.Replace(g.file, []byte(tokens)))
}

func post(change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://admin.internal:8080/api/v1/buckets/reset", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	return r
}

func with(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func (g *gate) reason(r *http.Request) access.Reason {
	g.t.Helper()
	actor, err := g.Authorize(r)
	var refused *access.Refused
	require.ErrorAs(g.t, err, &refused)
	require.Empty(g.t, actor)
	require.Equal(g.t, refused.Reason, g.refused[len(g.refused)-1])
	require.GreaterOrEqual(g.t, refused.Status(), 400)
	return refused.Reason
}

func TestTokens(t *testing.T) {
	g := newGate(t, "# who may\n\nalice  "+alice+"\r\nbob\t"+bob+"\n"+alice+"-2\n", false)
	for token, want := range map[string]string{alice: "token:alice", bob: "token:bob", alice + "-2": "token:unnamed"} {
		actor, err := g.Authorize(post(with(token)))
		require.NoError(t, err)
		require.Equal(t, want, actor)
	}
	for name, r := range map[string]*http.Request{
		"another":      post(with(alice + "x")),
		"a part":       post(with(alice[:len(alice)-1])),
		"the name":     post(with("alice")),
		"name and all": post(with("alice " + alice)),
		"empty":        post(with("")),
		"not UTF-8":    post(with("\xff\xfe")),
		"huge":         post(with(strings.Repeat("x", 60_000))),
	} {
		require.Equal(t, access.BadToken, g.reason(r), name)
	}
	for name, r := range map[string]*http.Request{
		"none":       post(nil),
		"not Bearer": post(func(r *http.Request) { r.SetBasicAuth("alice", alice) }),
		"no scheme":  post(func(r *http.Request) { r.Header.Set("Authorization", alice) }),
		"two":        post(func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + alice, "Bearer " + bob} }),
		"in the URL": post(func(r *http.Request) { r.URL.RawQuery = "access_token=" + alice }),
	} {
		require.Equal(t, access.NoCredentials, g.reason(r), name)
	}
	actor, err := g.Authorize(post(func(r *http.Request) { r.Header.Set("Authorization", "bearer "+alice) }))
	require.NoError(t, err)
	require.Equal(t, "token:alice", actor)
}

// Tokens come and go with the file; one that cannot be used makes none good, and is told once.
func TestTokensFollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "alice "+alice, false)
		g.write("alice " + alice + "\nbob " + bob)
		for _, token := range []string{alice, bob, alice} {
			_, err := g.Authorize(post(with(token)))
			require.NoError(t, err)
		}
		require.Equal(t, []error{nil}, g.told)
		g.write("bob " + bob)
		require.Equal(t, access.BadToken, g.reason(post(with(alice))))

		began := time.Now()
		g.write("bob " + bob + "\nalice " + alice + " extra")
		for range 5 {
			require.Equal(t, access.TokenFile, g.reason(post(with(bob))))
		}
		require.Less(t, time.Since(began), time.Second, "a file that is known to be faulty is not waited for")
		require.NoError(t, os.Remove(g.file))
		require.Equal(t, access.TokenFile, g.reason(post(with(bob))), "no file, no tokens")
		require.Len(t, g.told, 4)
		require.ErrorContains(t, g.told[2], "line 2: want a token, or a name and a token")
		require.NotContains(t, g.told[2].Error(), "extra")
		g.write("bob " + bob)
		_, err := g.Authorize(post(with(bob)))
		require.NoError(t, err)
		require.NoError(t, g.told[4])
	})
}

// A request that comes while the file is being written in place waits a little.
func TestFileBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "alice "+alice, false)
		require.NoError(t, os.WriteFile(g.file, nil, 0o600))
		go func() {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, os.WriteFile(g.file, []byte("bob "+bob), 0o600))
		}()
		actor, err := g.Authorize(post(with(bob)))
		require.NoError(t, err)
		require.Equal(t, "token:bob", actor)
		require.Equal(t, []error{nil}, g.told)
	})
}

func TestFaultyTokenFiles(t *testing.T) {
	const secret = "s3cret-in-the-file-0123"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":         {"", "no token"},
		"comments only": {"# alice " + secret + "\n\n", "no token"},
		"short":         {"alice s3cret", "line 1: the token has fewer than 16 characters"},
		"three words":   {"x\nalice " + secret + " x", "line 1: the token has fewer"},
		"three":         {"\nalice " + secret + " x", "line 2: want a token"},
		"odd name":      {"al\"ice " + secret, "line 1: want a name"},
		"twice":         {"alice " + secret + "\nbob " + secret, "line 2: the token of line 1 again"},
		"huge":          {strings.Repeat("#", 64<<10) + "\n", "more than 65536 bytes"},
		"too many":      {many(1001), "more than 1000 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tokens")
			require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
			_, err := access.New(access.Options{TokenFile: file})
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
	_, err := access.New(access.Options{TokenFile: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "token-number-%06d\n", i)
	}
	return b.String()
}

// After ten wrong tokens in a minute even the right one is refused from that address; others are not concerned.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "alice "+alice, false)
		from := func(addr, token string) *http.Request {
			return post(func(r *http.Request) { r.RemoteAddr = addr; with(token)(r) })
		}
		for i := range 10 {
			require.Equal(t, access.BadToken, g.reason(from(fmt.Sprintf("[2001:db8:1:2::%d]:1", i), "guess-number-0123456789")))
		}
		_, err := g.Authorize(from("[2001:db8:1:2:ffff::]:9", alice))
		var refused *access.Refused
		require.ErrorAs(t, err, &refused)
		require.Equal(t, access.TooMany, refused.Reason)
		require.Equal(t, http.StatusTooManyRequests, refused.Status())
		require.Equal(t, time.Minute, refused.Wait)
		_, err = g.Authorize(from("192.0.2.1:1", alice))
		require.NoError(t, err, "another address")
		time.Sleep(refused.Wait - time.Nanosecond)
		require.Equal(t, access.TooMany, g.reason(from("[2001:db8:1:2::1]:1", alice)))
		time.Sleep(time.Nanosecond)
		_, err = g.Authorize(from("[2001:db8:1:2::1]:1", alice))
		require.NoError(t, err)
		require.Equal(t, access.BadToken, g.reason(from("nonsense", "guess-number-0123456789")))
	})
}

func TestNothingConfigured(t *testing.T) {
	g := newGate(t, "", false)
	_, err := g.Authorize(post(with(alice)))
	var refused *access.Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, access.NotConfigured, refused.Reason)
	require.Equal(t, http.StatusForbidden, refused.Status())
	require.Contains(t, refused.Text, "--admin-token-file")
	require.Contains(t, refused.Text, "--admin-tls-client-ca-file")
}

// What a page of another site can make a browser send does not count, whatever is sent with it.
func TestOtherSites(t *testing.T) {
	g := newGate(t, "alice "+alice, true)
	tests := map[string]struct {
		change func(*http.Request)
		want   access.Reason // empty: may
	}{
		"same origin":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, ""},
		"a person":          {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, ""},
		"cross site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, access.CrossSite},
		"same site":         {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, access.CrossSite},
		"own origin":        {func(r *http.Request) { r.Header.Set("Origin", "http://admin.internal:8080") }, ""},
		"another origin":    {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, access.CrossSite},
		"no origin":         {func(r *http.Request) { r.Header.Set("Origin", "null") }, access.CrossSite},
		"a form":            {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, access.ContentType},
		"no type":           {func(r *http.Request) { r.Header.Del("Content-Type") }, access.ContentType},
		"json with charset": {func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := post(func(r *http.Request) { with(alice)(r); tt.change(r) })
			if tt.want != "" {
				require.Equal(t, tt.want, g.reason(r))
				return
			}
			_, err := g.Authorize(r)
			require.NoError(t, err)
		})
	}
}

func TestCertificates(t *testing.T) {
	shown := func(c *x509.Certificate, verified bool) func(*http.Request) {
		return func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
			if verified {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{c}}
			}
		}
	}
	uri, err := url.Parse("spiffe://example.org/ns/ops/sa/admin")
	require.NoError(t, err)
	g := newGate(t, "alice "+alice, true)
	for want, c := range map[string]*x509.Certificate{
		"cert:spiffe://example.org/ns/ops/sa/admin": {URIs: []*url.URL{uri}, Subject: pkix.Name{CommonName: "x"}},
		"cert:ops@example.org":                      {EmailAddresses: []string{"ops@example.org"}, DNSNames: []string{"x"}},
		"cert:operator":                             {Subject: pkix.Name{CommonName: "operator"}, DNSNames: []string{"x"}},
		"cert:host.example.org":                     {DNSNames: []string{"host.example.org"}},
		"cert:O=Example":                            {Subject: pkix.Name{Organization: []string{"Example"}}},
		"cert:unnamed":                              {},
		"cert:a_b__c_":                              {Subject: pkix.Name{CommonName: "a\nb\x00<c\u2028"}},
		"cert:" + strings.Repeat("x", 128):          {Subject: pkix.Name{CommonName: strings.Repeat("x", 500)}},
	} {
		actor, err := g.Authorize(post(shown(c, true)))
		require.NoError(t, err)
		require.Equal(t, want, actor)
	}
	good := &x509.Certificate{Subject: pkix.Name{CommonName: "operator"}}
	require.Equal(t, access.NoCredentials, g.reason(post(shown(good, false))), "not verified")
	require.Equal(t, access.NoCredentials, newGate(t, "alice "+alice, false).reason(post(shown(good, true))), "certificates are for something else")
	require.Equal(t, access.BadToken, g.reason(post(func(r *http.Request) { shown(good, true)(r); with("wrong-0123456789-wrong")(r) })))
	actor, err := g.Authorize(post(func(r *http.Request) { shown(good, true)(r); with(alice)(r) }))
	require.NoError(t, err)
	require.Equal(t, "token:alice", actor)
	require.Equal(t, access.BadToken, newGate(t, "", true).reason(post(with(alice))))
}

// Tokens change while many ask: nobody whose token is in both files is refused.
func TestRotationWhileAsked(t *testing.T) {
	g := newGate(t, "alice "+alice+"\nbob "+bob, false)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := g.Authorize(post(with(alice))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 50 {
		g.write(fmt.Sprintf("alice %s\nbob %s-%d", alice, bob, i))
	}
	close(stop)
	all.Wait()
	require.False(t, errors.Is(errors.Join(g.told...), os.ErrNotExist))
}

func FuzzTokenFile(f *testing.F) {
	f.Add([]byte("alice " + alice + "\n# x\n" + bob))
	f.Add([]byte{0xff, '\n', 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "tokens")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		if _, err := access.New(access.Options{TokenFile: file}); err != nil {
			for _, word := range strings.Fields(string(text)) {
				if len(word) >= 16 {
					require.NotContains(t, strings.TrimPrefix(err.Error(), file), word)
				}
			}
		}
	})
}
