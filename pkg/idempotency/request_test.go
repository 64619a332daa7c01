package idempotency_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// TestSameKeyOtherRequest: what makes a key another one, and what makes a request another one with the same key.
func TestSameKeyOtherRequest(t *testing.T) {
	with := func(r *http.Request, field, value string) *http.Request {
		r.Header.Set(field, value)
		return r
	}
	patch := post("{}")
	patch.Method = http.MethodPatch
	tests := []struct {
		name    string
		request *http.Request
		status  int
	}{
		{"the same", post("{}"), http.StatusCreated},
		{"key in other words", with(post("{}"), idempotency.FieldKey, ` "k";a=1 `), http.StatusCreated},
		{"another body", post("{ }"), http.StatusUnprocessableEntity},
		{"no body", post(""), http.StatusUnprocessableEntity},
		{"another type", with(post("{}"), "Content-Type", "text/plain"), http.StatusUnprocessableEntity},
		{"another coding", with(post("{}"), "Content-Encoding", "gzip"), http.StatusUnprocessableEntity},
		{"another query", postTo("/payments?to=eve", "{}"), http.StatusUnprocessableEntity},
		{"another path of the route", postTo("/users/2", "{}"), http.StatusUnprocessableEntity},
		{"another account", with(post("{}"), "Account", "ben"), http.StatusAccepted},
		{"another route", postTo("/refunds", "{}"), http.StatusAccepted},
		{"another method", patch, http.StatusAccepted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status := http.StatusCreated
			s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			mux := http.NewServeMux()
			mux.Handle("/payments", s)
			mux.Handle("/users/{id}", s)
			mux.Handle("/refunds", s)
			before := post("{}")
			if strings.HasPrefix(tt.request.URL.Path, "/users") {
				before = postTo("/users/1", "{}")
			}
			mux.ServeHTTP(httptest.NewRecorder(), before)
			status = http.StatusAccepted
			rec := httptest.NewRecorder()
			mux.ServeHTTP(rec, tt.request)
			require.Equal(t, tt.status, rec.Code)
			if tt.status == http.StatusUnprocessableEntity {
				requireProblem(t, rec, tt.status, "IDEMPOTENCY_KEY_REUSED")
				require.Equal(t, 2, s.charged(t))
			}
		})
	}
}

// TestKeysDoNotRunTogether: where the parts of one end cannot be shifted into another.
func TestKeysDoNotRunTogether(t *testing.T) {
	var c counter
	s := newService(t, idempotency.Options{}, c.ServeHTTP)
	for i, parts := range [][3]string{{"an", "/a", "bc"}, {"an", "/ab", "c"}, {"a", "n/a", "bc"}} {
		r := postTo(parts[1][strings.Index(parts[1], "/"):], "{}")
		r.Pattern = parts[1]
		r.Header.Set("Account", parts[0])
		r.Header.Set(idempotency.FieldKey, `"`+parts[2]+`"`)
		require.Equal(t, http.StatusCreated, s.serve(r).Code)
		require.Equal(t, i+1, c.runs)
	}
}

// TestBody: the handler reads all of it, whatever was compared.
func TestBody(t *testing.T) {
	const most = 10
	long := strings.Repeat("x", 5000)
	chunked := post(long)
	chunked.ContentLength = -1
	tests := []struct {
		name          string
		first, second *http.Request
		status        int // of the second
	}{
		{"short", post("0123456789"), post("0123456789"), 200},
		{"long", post(long), post(long), 200},
		{"long, and another end", post(long + "a"), post(long + "b"), 200}, // documented
		{"another end behind what is compared", post(long[:most] + "a"), post(long[:most] + "b"), 200},
		{"long, and another length", post(long), post(long + "x"), 422},
		{"long, and no length", post(long), chunked, 422},
		{"long, and another beginning", post(long), post("y" + long[1:]), 422},
		{"as long as what is compared", post(long[:most]), post(long[:most+1]), 422},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, err := io.ReadAll(tt.first.Body)
			require.NoError(t, err)
			closed := false
			tt.first.Body = &closing{strings.NewReader(string(want)), &closed}
			s := newService(t, idempotency.Options{MaxBody: most}, func(_ http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got))
				require.NoError(t, r.Body.Close())
			})
			require.Equal(t, http.StatusOK, s.serve(tt.first).Code)
			require.True(t, closed)
			require.Equal(t, tt.status, s.serve(tt.second).Code)
		})
	}
}

type closing struct {
	io.Reader
	closed *bool
}

func (c *closing) Close() error {
	*c.closed = true
	return nil
}

// TestBodyThatCannotBeRead: such a request is not carried out: nobody knows which one it is.
func TestBodyThatCannotBeRead(t *testing.T) {
	var c counter
	s := newService(t, idempotency.Options{}, c.ServeHTTP)
	broken := post("")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	requireProblem(t, s.serve(broken), http.StatusBadRequest, "BODY_UNREADABLE")
	large := post("{}")
	large.Body = http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("12345")), 4)
	requireProblem(t, s.serve(large), http.StatusRequestEntityTooLarge, "BODY_UNREADABLE")
	require.Zero(t, c.runs)
	require.Equal(t, 2, s.charged(t))
}
