package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Until calls check every 20 ms until it succeeds. It fails when ctx ends, or as soon as one of the processes that are needed does.
func Until(ctx context.Context, what string, check func() error, needed ...*Process) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		for _, p := range needed {
			select {
			case <-p.Done():
				return fmt.Errorf("waiting for %s: %s", what, p.Obituary())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last: %w", what, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Get fetches a small page. Every status but 200 is an error.
func Get(ctx context.Context, url string) (string, error) { return GetTLS(ctx, url, nil) }

// GetTLS is Get by this configuration of TLS, if the URL is https.
func GetTLS(ctx context.Context, url string, config *tls.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	// One connection per page, so that none is left open to a process that is about to be stopped.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), nil
}
