package idempotency_test

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	escaped := strings.Repeat(`\"`, 255)
	tests := []struct {
		name  string
		lines []string
		want  string // empty: refused
	}{
		{"a UUID", []string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}, "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{"spaces around", []string{`  "k"  `}, "k"},
		{"a space", []string{`" "`}, " "},
		{"escapes", []string{`"a\"b\\c"`}, `a"b\c`},
		{"parameters", []string{`"k";a=1;b="x"`}, "k"},
		{"the longest", []string{`"` + long + `"`}, long},
		{"the longest, escaped", []string{`"` + escaped + `"`}, strings.Repeat(`"`, 255)},
		{"too long", []string{`"k` + long + `"`}, ""},
		{"too long by its parameters", []string{`"k"` + strings.Repeat(";a=1", 300)}, ""},
		{"empty", []string{`""`}, ""},
		{"nothing", []string{""}, ""},
		{"without quotes", []string{"k"}, ""},
		{"a UUID without quotes", []string{"8e03978e-40d5-43dd-bc93-6894a57f9324"}, ""},
		{"a number", []string{"42"}, ""},
		{"bytes", []string{":aGVsbG8=:"}, ""},
		{"a boolean", []string{"?1"}, ""},
		{"a date", []string{"@1659578233"}, ""},
		{"a display string", []string{`%"k"`}, ""},
		{"an inner list", []string{`("k")`}, ""},
		{"a list", []string{`"k", "l"`}, ""},
		{"two lines", []string{`"k"`, `"k"`}, ""},
		{"two halves of a string", []string{`"k`, `l"`}, ""},
		{"no lines", nil, ""},
		{"no end", []string{`"k`}, ""},
		{"a bad escape", []string{`"\k"`}, ""},
		{"something behind", []string{`"k"x`}, ""},
		{"a control character", []string{"\"k\x00\""}, ""},
		{"DEL", []string{"\"k\x7f\""}, ""},
		{"a tab", []string{"\"k\t\""}, ""},
		{"not ASCII", []string{`"ké"`}, ""},
		{"not UTF-8", []string{"\"k\xff\""}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := idempotency.ParseKey(tt.lines)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want == "", err != nil)
		})
	}
}

// FuzzParseKey: what is taken is a string that a client could have meant, and its own form is taken for the same.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`"k"`, `"a\"b\\c";x=?0`, `""`, "k", "\"\x7f\"", `"k`, strings.Repeat(`"`, 300), `"` + strings.Repeat("k", 255) + `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, err := idempotency.ParseKey([]string{line})
		if err != nil {
			require.Empty(t, key)
			bare := strings.NewReplacer(`"`, "", `\`, "").Replace(line)
			printable := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) < 0
			if bare == line && printable && len(line) >= 1 && len(line) <= 255 {
				_, err := idempotency.ParseKey([]string{`"` + line + `"`})
				require.NoError(t, err, "in quotes it is one")
			}
			return
		}
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), 255)
		own, err := httpsfv.Marshal(httpsfv.NewItem(key))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(strings.TrimLeft(line, " "), own), "%q was taken for %q", line, key)
		again, err := idempotency.ParseKey([]string{own})
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}
