package page_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/page"
)

func (s *service) unmatched(t *testing.T) []page.Unmatched {
	t.Helper()
	var got struct{ Unmatched []page.Unmatched }
	require.NoError(t, json.Unmarshal(s.get("/api/v1/unmatched").Body.Bytes(), &got))
	return got.Unmatched
}

func TestWhyUnmatched(t *testing.T) {
	tests := []struct {
		name    string
		all     [][]string
		entries []page.ShownEntry
		nearest string
		reasons []string
	}{
		{
			"another value",
			[][]string{{"plan", "gold", "api_key", "secret1", "tenant", "t"}},
			[]page.ShownEntry{{"plan", "gold"}, {"api_key", ""}, {"tenant", ""}},
			"free",
			[]string{`plan is "gold", must be "free" or "trial"`},
		},
		{
			"a misspelt key",
			[][]string{{"tenant_id", "customer-42"}},
			[]page.ShownEntry{{"tenant_id", ""}},
			"free",
			[]string{`no policy has a use for entries with the key "tenant_id"; did you mean "tenant"?`, `plan is absent, must be "free" or "trial"`},
		},
		{
			"a key nobody knows",
			[][]string{{"colour", "red"}},
			[]page.ShownEntry{{"colour", ""}},
			"",
			[]string{`no policy has a use for entries with the key "colour"`},
		},
		{
			"a key attribute in another descriptor is no help",
			[][]string{{"route", "GET /v2/x"}, {"plan", "free", "api_key", "k", "tenant", "t"}},
			[]page.ShownEntry{{"route", "GET /v2/x"}},
			"search",
			[]string{`route is "GET /v2/x", must be "GET /v1/search" and more`},
		},
		{
			"what a route is composed of",
			[][]string{{"method", "GET", "path", "/v2/x"}, {"plan", "free", "api_key", "k", "tenant", "t"}},
			[]page.ShownEntry{{"method", ""}, {"path", ""}},
			"search",
			[]string{`route is "GET /v2/x", must be "GET /v1/search" and more`},
		},
		{"no entries", [][]string{{}}, []page.ShownEntry{}, "", []string{"the descriptor has no entries"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, policies, nil)
			s.callDomain(t, 3, "edge", tt.all...)
			all := s.unmatched(t)
			require.Len(t, all, 1)
			require.Equal(t, "edge", all[0].Domain)
			require.Equal(t, 3.0, all[0].Calls)
			require.Equal(t, tt.entries, all[0].Entries)
			require.Equal(t, tt.nearest, all[0].Nearest)
			require.Equal(t, tt.reasons, all[0].Reasons)
		})
	}
}

// TestUnmatchedShowsNobody: values of what some policy counts by are never shown, even where another policy compares them.
func TestUnmatchedShowsNobody(t *testing.T) {
	s := newService(t, policies+`  - {id: vip, match: {tenant: customer-1, team: red}, key: [team], algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: local}
`, nil)
	s.call(t, 1, "tenant", "customer-42", "username", "alice")
	s.call(t, 1, "team", "secret-team")
	text := s.get("/api/v1/unmatched").Body.String()
	require.NotContains(t, text, "customer-42")
	require.NotContains(t, text, "secret-team")
	require.NotContains(t, text, "alice")
	require.Contains(t, text, "team is …eam, must be")
	require.Contains(t, text, "tenant is absent, must be")
}

func TestUnmatchedIsBounded(t *testing.T) {
	s := newService(t, policies, nil)
	for i := range 1000 {
		s.call(t, 1, "k"+strconv.Itoa(i)+strings.Repeat("\u202e<", 200), "v")
	}
	all := s.unmatched(t)
	require.LessOrEqual(t, len(all), 32)
	calls := 0.0
	for _, u := range all {
		calls += u.Calls
		require.LessOrEqual(t, len(u.Entries[0].Key), 256)
		require.NotContains(t, u.Entries[0].Key, "\u202e")
	}
	require.Equal(t, 100.0, calls, "as many as are looked at in a second")

	many := make([]string, 0, 64)
	for i := range 32 {
		many = append(many, "key"+strconv.Itoa(i), "v")
	}
	s = newService(t, policies, nil)
	s.callDomain(t, 1, "edge", many, many, many)
	require.Len(t, s.unmatched(t), 1)
	require.Len(t, s.unmatched(t)[0].Entries, 32)
	require.Len(t, s.unmatched(t)[0].Reasons, 4)
}

func TestUnmatchedFades(t *testing.T) {
	s := newService(t, policies, nil)
	s.call(t, 1, "colour", "red")
	require.Len(t, s.unmatched(t), 1)
	for range 31 {
		s.Fade()
	}
	require.Empty(t, s.unmatched(t))
}
