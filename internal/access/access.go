// Package access decides who may change things over HTTP: whoever shows a token of a file, or a client certificate that the server has
// verified. Nobody else may.
package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Reason is why a request was refused.
type Reason string

// The reasons.
const (
	// NotConfigured: there are neither tokens nor client certificates: nobody may change anything.
	NotConfigured Reason = "not-configured"
	// NoCredentials: neither a token nor a certificate came.
	NoCredentials Reason = "no-credentials"
	// BadToken: the token is none of the file.
	BadToken Reason = "bad-token"
	// TooMany: wrong tokens came from that address of late, so that even the right one is refused for a while.
	TooMany Reason = "too-many"
	// TokenFile: the file cannot be used, so that no token is good.
	TokenFile Reason = "token-file"
	// CrossSite: a page of another site made a browser send it.
	CrossSite Reason = "cross-site"
	// ContentType: not application/json, which a browser does not send elsewhere without asking.
	ContentType Reason = "content-type"
)

// Reasons are all that there are.
func Reasons() []Reason {
	return []Reason{NotConfigured, NoCredentials, BadToken, TooMany, TokenFile, CrossSite, ContentType}
}

// Refused is why a request may not change anything, for whoever sent it. There is nothing of the request in it.
type Refused struct {
	Reason Reason
	Text   string
	Wait   time.Duration // with TooMany: when to try again
}

// Error implements error.
func (r *Refused) Error() string { return r.Text }

// Status is the HTTP status for it.
func (r *Refused) Status() int {
	switch r.Reason {
	case NoCredentials, BadToken:
		return http.StatusUnauthorized
	case TooMany:
		return http.StatusTooManyRequests
	case ContentType:
		return http.StatusUnsupportedMediaType
	case TokenFile:
		return http.StatusServiceUnavailable
	default:
		return http.StatusForbidden
	}
}

// Options say who may.
type Options struct {
	// TokenFile has a token a line, after its name if it has one; empty lines and those that begin with # are skipped. It is read for each
	// request that has a token, so that a token can be given and taken at any time. Empty: there are no tokens.
	TokenFile string
	// Certificates is whether a client certificate will do. The server must verify those that it is shown.
	Certificates bool
	// OnRefused, if set, is told of each request that was refused.
	OnRefused func(*Refused)
	// OnTokens, if set, is told once when other tokens are in force (nil), and once why the file cannot be used.
	OnTokens func(error)
}

// Gate decides. Safe for concurrent use. Make one with New.
type Gate struct {
	o        Options
	tokens   tokens
	failures failures
	sites    *http.CrossOriginProtection
}

// New reads the token file, if there is one. The error says what is wrong with it, and quotes nothing of it.
func New(o Options) (*Gate, error) {
	if o.OnRefused == nil {
		o.OnRefused = func(*Refused) {}
	}
	if o.OnTokens == nil {
		o.OnTokens = func(error) {}
	}
	g := &Gate{o: o, sites: http.NewCrossOriginProtection(), failures: newFailures()}
	g.tokens.file, g.tokens.told = o.TokenFile, o.OnTokens
	if o.TokenFile == "" {
		return g, nil
	}
	return g, g.tokens.open()
}

// Authorize says who makes a request that changes something: "token:NAME", or "cert:NAME" by the certificate's URI, mail address, common name or
// DNS name. The error is a [Refused].
func (g *Gate) Authorize(r *http.Request) (actor string, err error) {
	actor, refused := g.authorize(r)
	if refused != nil {
		g.o.OnRefused(refused)
		return "", refused
	}
	return actor, nil
}

func (g *Gate) authorize(r *http.Request) (string, *Refused) {
	if g.o.TokenFile == "" && !g.o.Certificates {
		return "", refuse(NotConfigured, "nothing can be changed here: the service was started with neither --admin-token-file nor --admin-tls-client-ca-file")
	}
	if g.sites.Check(r) != nil {
		return "", refuse(CrossSite, "a page of another site must not change anything here")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return "", refuse(ContentType, "want Content-Type: application/json")
	}
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		return g.byToken(r, given)
	}
	if cert := verified(r); cert != nil && g.o.Certificates {
		return "cert:" + nameOf(cert), nil
	}
	return "", refuse(NoCredentials, g.wanted())
}

// wanted says what would do.
func (g *Gate) wanted() string {
	var ways []string
	if g.o.TokenFile != "" {
		ways = append(ways, "Authorization: Bearer, with a token of --admin-token-file")
	}
	if g.o.Certificates {
		ways = append(ways, "a client certificate that --admin-tls-client-ca-file vouches for")
	}
	return "want " + strings.Join(ways, ", or ")
}

// byToken never falls back to the certificate: whoever sends a token wants it to count.
func (g *Gate) byToken(r *http.Request, given []string) (string, *Refused) {
	if g.o.TokenFile == "" {
		return "", refuse(BadToken, "no token is good here: the service was started without --admin-token-file")
	}
	from := sourceOf(r)
	if wait := g.failures.wait(from); wait > 0 {
		refused := refuse(TooMany, fmt.Sprintf("too many wrong tokens from your address: try again in %d s", int(wait/time.Second)+1))
		refused.Wait = wait
		return "", refused
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", refuse(NoCredentials, g.wanted())
	}
	name, err := g.tokens.name(strings.TrimSpace(token))
	switch {
	case errors.Is(err, errUnknown):
		g.failures.add(from)
		return "", refuse(BadToken, "the token is none of --admin-token-file")
	case err != nil:
		return "", refuse(TokenFile, "no token is good now: --admin-token-file cannot be used; the log says why")
	}
	return "token:" + name, nil
}

func refuse(reason Reason, text string) *Refused { return &Refused{Reason: reason, Text: text} }

// verified is the client's certificate, if the server has verified it.
func verified(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// nameOf is what a certificate is for, for logs.
func nameOf(c *x509.Certificate) string {
	names := append([]string{}, c.EmailAddresses...)
	if len(c.URIs) > 0 {
		names = append([]string{c.URIs[0].String()}, names...)
	}
	names = append(append(names, c.Subject.CommonName), c.DNSNames...)
	for _, name := range append(names, c.Subject.String()) {
		if name != "" {
			return printable(name)
		}
	}
	return "unnamed"
}

// printable is text that changes no log line and no page, and is short.
func printable(text string) string {
	const most = 128
	clean := strings.Map(func(r rune) rune {
		if r < '!' || r > '~' || r == '"' || r == '<' || r == '>' {
			return '_'
		}
		return r
	}, text)
	return clean[:min(len(clean), most)]
}
