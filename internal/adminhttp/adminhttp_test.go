package adminhttp_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
)

func TestPosted(t *testing.T) {
	for name, test := range map[string]struct {
		method, kind string
		status       int
		says         string
	}{
		"json":         {"POST", "application/json", 200, ""},
		"with charset": {"POST", "application/json; charset=utf-8", 200, ""},
		"a form":       {"POST", "application/x-www-form-urlencoded", 415, "want Content-Type: application/json"},
		"no type":      {"POST", "", 415, "application/json"},
		"another verb": {"GET", "application/json", 405, "want POST, with a body that says which bucket"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(test.method, "/", nil)
		r.Header.Set("Content-Type", test.kind)
		require.Equal(t, test.status == 200, adminhttp.Posted(w, r, "which bucket"), name)
		require.Equal(t, test.status, w.Code, name)
		require.Contains(t, w.Body.String(), test.says, name)
		require.Equal(t, test.status == 405, w.Header().Get("Allow") == "POST", name)
	}
}

func TestReply(t *testing.T) {
	w := httptest.NewRecorder()
	adminhttp.Reply(w, http.StatusOK, map[string]float64{"left": math.NaN()})
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.JSONEq(t, `{"error": "the answer is not JSON"}`, w.Body.String())
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	w = httptest.NewRecorder()
	adminhttp.Fail(w, http.StatusTeapot, "bytes \xff")
	require.Equal(t, "{\n  \"error\": \"bytes \uFFFD\"\n}\n", w.Body.String())
}

func TestPost(t *testing.T) {
	var seen *http.Request
	answer := func(w http.ResponseWriter, _ *http.Request) {
		adminhttp.Reply(w, http.StatusOK, map[string]int{"n": 5})
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the token was shown elsewhere") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		answer(w, r)
	}))
	defer server.Close()
	var got struct{ N int }
	client := adminhttp.Client{Addr: strings.TrimPrefix(server.URL, "http://"), Token: "secret"}
	require.NoError(t, client.Post(t.Context(), "/path", map[string]string{"a": "b"}, &got, 100))
	require.Equal(t, 5, got.N)
	require.Equal(t, "/path", seen.URL.Path)
	require.Equal(t, "Bearer secret", seen.Header.Get("Authorization"))
	client.Addr = server.URL + "/"
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		refused bool
		says    string
	}{
		"refused":        {func(w http.ResponseWriter, _ *http.Request) { adminhttp.Fail(w, 403, "not you") }, true, "the service refused: 403 Forbidden: not you"},
		"somebody else":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, true, "is that the admin address"},
		"not JSON":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, false, "is that the admin address"},
		"too much of it": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat(" ", 200) + "{}")) }, false, "unexpected end"},
		"sent elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, true, "307"},
	} {
		answer = test.answer
		err := client.Post(t.Context(), "/", nil, &got, 100)
		require.ErrorContains(t, err, test.says, name)
		if test.refused {
			require.ErrorIs(t, err, adminhttp.ErrRefused, name)
		} else {
			require.NotErrorIs(t, err, adminhttp.ErrRefused, name)
		}
	}
	require.Error(t, adminhttp.Client{Addr: "127.0.0.1:1"}.Post(t.Context(), "/", nil, &got, 100))
}
