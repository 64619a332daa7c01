package buckets

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Question is what a person asks for, as the bodies of requests have it.
type Question = question

// Which says which bucket is meant.
type Which = which

// Client asks a service at its admin address.
type Client struct {
	// Addr is host:port, or a URL.
	Addr string
	// TokenFile has a token; as a line of the service's own file it may have a name before it. Empty: none is shown.
	TokenFile string
	// CAFile vouches for the service, in place of the system's certificates.
	CAFile string
}

// ErrRefused is in the chain of an error that the service has answered.
var ErrRefused = errors.New("the service refused")

// Ask has the service carry out an action. It waits for 10 seconds at most.
func (c *Client) Ask(ctx context.Context, action Action, q *Question) (*Report, error) {
	addr := c.Addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(addr, "/")+Path+string(action), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	if c.TokenFile != "" {
		token, err := readToken(c.TokenFile)
		if err != nil {
			return nil, err
		}
		post.Header.Set("Authorization", "Bearer "+token)
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, CheckRedirect: noRedirect}).Do(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return readAnswer(answer)
}

// noRedirect keeps a token from being shown elsewhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func readAnswer(answer *http.Response) (*Report, error) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBytes))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			f.Error = "is that the admin address of envoy-rls?"
		}
		return nil, fmt.Errorf("%w: %s: %s", ErrRefused, answer.Status, f.Error)
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("is that the admin address of envoy-rls? %w", err)
	}
	return &r, nil
}

// readToken reads the first line that has a token, and quotes nothing of it in errors.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			return fields[len(fields)-1], nil
		}
	}
	return "", fmt.Errorf("%s: there is no token in it", path)
}

func (c *Client) transport() (*http.Transport, error) {
	t := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if c.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: there is no certificate in it", c.CAFile)
	}
	return t, nil
}
