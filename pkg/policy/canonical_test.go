package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCanonicalIP(t *testing.T) {
	tests := []struct {
		in, want string
		verdict  verdict
	}{
		{"203.0.113.7", "203.0.113.7", valid},
		{" 203.0.113.7 ", "203.0.113.7", valid},
		{"::ffff:203.0.113.7", "203.0.113.7", valid},
		{"::ffff:cb00:7107", "203.0.113.7", valid},
		{"2001:db8:1:2::1.2.3.4", "2001:db8:1:2::/64", valid},
		{"2001:DB8:1:2::9", "2001:db8:1:2::/64", valid},
		{"2001:db8:1:2::/64", "2001:db8:1:2::/64", valid},
		{"2001:db8:1::/48", "2001:db8:1::/48", valid},
		{"64:ff9b::808:808", "8.8.8.8", valid},
		{"64:ff9b::909:909", "9.9.9.9", valid},
		{"2002:cb00:7107::1", "203.0.113.7", valid},
		{"2002:cb00:7107:1::/64", "203.0.113.7", valid},
		{"198.51.100.4:51000", "198.51.100.4", valid},
		{"198.51.100.4", "198.51.100.4", valid},
		{"[2001:db8::1]:443", "2001:db8::/64", valid},
		{"[2001:db8::2]", "2001:db8::/64", valid},
		{"2001:db8::2", "2001:db8::/64", valid},
		{"fe80::1%eth0", "fe80::/64", valid},
		{"[fe80::1%eth0]:80", "fe80::/64", valid},
		{"10.1.2.0/24", "10.1.2.0/24", valid},
		{"::1", "::/64", valid},
		{"::/64", "", refused},
		{"::ffff:0:0/80", "", refused},
		{"64:ff9b::/64", "", refused},
		{"2002::/16", "", refused},
		{"unknown", "", invalid},
		{"", "", invalid},
		{"999.1.1.1", "", invalid},
		{"[203.0.113.7]", "", invalid},
		{strings.Repeat("1.", 2500), "", invalid},
	}
	for _, tt := range tests {
		t.Run(tt.in[:min(len(tt.in), 20)], func(t *testing.T) {
			got, verdict := canonicalIP(nil, []byte(tt.in), 64)
			require.Equal(t, tt.verdict, verdict)
			if verdict == invalid {
				require.Regexp(t, `^#[0-9a-f]{32}$`, string(got), "a value of its own")
				return
			}
			require.Equal(t, tt.want, string(got))
		})
	}
}

func TestCanonicalRoute(t *testing.T) {
	tests := map[string]string{
		"POST /auth/login":            "POST /auth/login",
		"POST /auth/login?x=1":        "POST /auth/login",
		"POST /auth/login#top":        "POST /auth/login",
		"POST //auth/login":           "POST /auth/login",
		"POST /auth//login":           "POST /auth/login",
		"POST /auth/./login":          "POST /auth/login",
		"POST /x/../auth/login":       "POST /auth/login",
		"POST /../../auth/login":      "POST /auth/login",
		"POST /auth/%6cogin":          "POST /auth/login",
		"POST /%61uth/%2e/login":      "POST /auth/login",
		"POST /x/%2E%2e/auth/login":   "POST /auth/login",
		"POST /auth%2flogin":          "POST /auth%2Flogin",
		"POST /auth/login/":           "POST /auth/login/",
		"POST /auth/login/.":          "POST /auth/login/",
		"POST /auth/login/x/..":       "POST /auth/login/",
		"GET /":                       "GET /",
		"GET //":                      "GET /",
		"GET /..":                     "GET /",
		"GET /.well-known/x":          "GET /.well-known/x",
		"GET /a..b/...":               "GET /a..b/...",
		"GET /%zz%2":                  "GET /%25zz%252",
		"GET /%a%41":                  "GET /%25aA",
		"GET /search?q=a//b/../c":     "GET /search",
		"CONNECT":                     "CONNECT",
		"/no/method/../x":             "/no/x",
		"GET /\xff\xfe//x":            "GET /\xff\xfe/x",
		"GET /%25%32%65":              "GET /%252e",
		"GET /caf%c3%a9/%7Euser/%2d-": "GET /caf%C3%A9/~user/--",
	}
	for in, want := range tests {
		t.Run(in, func(t *testing.T) {
			got, _ := canonicalRoute(nil, []byte(in), 64)
			require.Equal(t, want, string(got))
			again, _ := canonicalRoute(nil, got, 64)
			require.Equal(t, want, string(again), "canonical already")
		})
	}
}

// TestCanonicalPathIdempotent: what is canonical stays as it is, whatever a client sends.
func TestCanonicalPathIdempotent(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"/", ".", "..", "//", "a", "%2e", "%2F", "%25", "%", "?", "#", "\xff", "/./", "/../", "%41"})
	rapid.Check(t, func(t *rapid.T) {
		in := "/" + strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "pieces"), "")
		once, _ := canonicalPath(nil, []byte(in), 64)
		twice, _ := canonicalPath(nil, once, 64)
		require.Equal(t, string(once), string(twice))
		require.True(t, strings.HasPrefix(string(once), "/"))
		for _, segment := range strings.Split(string(once), "/") {
			require.NotContains(t, []string{".", ".."}, segment)
		}
		require.NotContains(t, string(once), "//")
	})
}

func TestCanonicalAPIKey(t *testing.T) {
	got, _ := canonicalAPIKey(nil, []byte("secret1"), 64)
	require.Equal(t, "ak_5b11618c2e440278", string(got))
	require.True(t, hashedAPIKey(string(got)))
	require.False(t, hashedAPIKey("ak_5b11618c2e44027"))
	require.False(t, hashedAPIKey("ak_5b11618c2e44027x"))
}

func TestAppendLower(t *testing.T) {
	tests := map[string]string{
		"Alice":    "alice",
		" ALICE\t": "alice",
		"ÄRGER":    "ärger",
		"\xff\xfe": "\xff\xfe",
		"A\xffB":   "a\xffb",
		"":         "",
		"�":        "�",
	}
	for in, want := range tests {
		require.Equal(t, want, string(appendLower(nil, []byte(in))), "%q", in)
	}
}
