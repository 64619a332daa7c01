// Package adminhttp is what the handlers of the admin address, and those who ask them, share: questions and answers in JSON.
package adminhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// failure is an answer that says what is wrong.
type failure struct {
	Error string `json:"error"`
}

// Reply answers with a value in JSON, which nobody keeps.
func Reply(w http.ResponseWriter, status int, value any) {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil { // a number that JSON does not know: a bug, but not one to hide
		status, b = http.StatusInternalServerError, []byte(`{"error": "the answer is not JSON"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that left is no fault of ours
}

// Fail answers with {"error": message}.
func Fail(w http.ResponseWriter, status int, message string) {
	Reply(w, status, failure{strings.ToValidUTF8(message, "\uFFFD")})
}

// Posted reports whether a request is a POST of JSON, which a browser does not send elsewhere by itself. If not it answers what is wanted: what the
// body says.
func Posted(w http.ResponseWriter, r *http.Request, says string) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		Fail(w, http.StatusMethodNotAllowed, "want POST, with a body that says "+says)
		return false
	case kind != "application/json":
		Fail(w, http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		return false
	}
	return true
}

// ErrRefused is in the chain of an error that the service has answered.
var ErrRefused = errors.New("the service refused")

// patience is how long an answer is waited for.
const patience = 10 * time.Second

// Client asks a service at its admin address.
type Client struct {
	// Addr is host:port, or a URL.
	Addr string
	// HTTP makes the calls. Redirects are not followed, so that a token is not shown elsewhere. Nil: [http.DefaultClient].
	HTTP *http.Client
	// Token, if any, is shown.
	Token string
}

// Post sends a question in JSON to a path, and reads the answer, of at most so many bytes. It waits for 10 seconds at most.
func (c Client) Post(ctx context.Context, path string, question, answer any, most int64) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	addr := c.Addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(addr, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		post.Header.Set("Authorization", "Bearer "+c.Token)
	}
	post.Close = true
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(post)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return read(response, answer, most)
}

const notThere = "is that the admin address of envoy-rls?"

func read(response *http.Response, answer any, most int64) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			f.Error = notThere
		}
		return fmt.Errorf("%w: %s: %s", ErrRefused, response.Status, f.Error)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("%s %w", notThere, err)
	}
	return nil
}
