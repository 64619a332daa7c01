package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const everything = `attributes: {x-customer: tenant}
policies:
  - {id: p, key: [ip, apiKey, username, tenant, plan, route, authority], onStoreFailure: open, algorithm: sliding-log, limit: 1, window: 1s}
`

func view(t testing.TB) *policy.View {
	t.Helper()
	file, err := policy.Parse("p.yaml", []byte(everything))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return set.View(nil)
}

// facts parses a line and gives what policies see of it, in order.
func facts(t *testing.T, line string, given ...Field) string {
	t.Helper()
	v := view(t)
	f := newFields(v, given)
	var r record
	r.reset(1)
	if err := f.parse([]byte(line), &r); err != nil {
		return err.Error()
	}
	var a policy.Attributes
	a.Reset(v)
	for _, value := range r.values {
		if e := f.targets[value.target].entry; e != nil {
			a.Add(0, e, r.bytes(value))
		}
	}
	var list []string
	for _, fact := range a.Facts() {
		list = append(list, fact.Attribute+"="+fact.Value)
	}
	if r.denied {
		list = append(list, "denied")
	}
	if r.hasCost {
		list = append(list, fmt.Sprint("cost=", r.cost))
	}
	return strings.Join(list, " ")
}

func TestJSON(t *testing.T) {
	const at = `"start_time":"2026-01-31T00:00:00.123Z",`
	tests := []struct {
		name  string
		line  string
		given []Field
		want  string
	}{
		{
			"as Envoy writes it",
			`{` + at + `"method":"GET","path":"//a/./b?x=1","authority":"h","downstream_remote_address":"203.0.113.7:5000","response_code":429,"x-api-key":"secret1"}`,
			nil, "ip=203.0.113.7 apiKey=ak_5b11618c2e440278 route=GET /a/b authority=h method=GET path=/a/b denied",
		},
		{"pseudo headers", `{` + at + `":method":"GET",":path":"/a",":authority":"h"}`, nil, "route=GET /a authority=h method=GET path=/a"},
		{"entry and attribute names", `{` + at + `"x-customer":"acme","plan":"free"}`, nil, "tenant=acme plan=free"},
		{"absent", `{` + at + `"plan":null,"tenant":"-","username":""}`, nil, "username="},
		{"numbers and escapes", `{` + at + `"plan":5,"tenant":"\u00e9\"\n"}`, nil, "tenant=é\"\n plan=5"},
		{"nested", `{` + at + `"req":{"x":{"plan":"free"}}}`, []Field{{"plan", "req.x.plan"}}, "plan=free"},
		{"with dots in its name", `{` + at + `"req.x.plan":"free"}`, []Field{{"plan", "req.x.plan"}}, "plan=free"},
		{"lists are no values", `{` + at + `"plan":["free"],"tenant":{}}`, nil, ""},
		{"what is given goes first", `{` + at + `"plan":"a","x":"b"}`, []Field{{"plan", "x"}}, "plan=b"},
		{"what is given need not be there", `{` + at + `"plan":"a"}`, []Field{{"plan", "x"}}, "plan=a"},
		{"other names", `{"t":1769817600.5,"code":"429","n":"7"}`, []Field{{"time", "t"}, {"status", "code"}, {"cost", "n"}}, "denied cost=7"},
		{"one field, two uses", `{` + at + `"u":"a"}`, []Field{{"username", "u"}, {"tenant", "u"}}, "username=a tenant=a"},
		{"not an object", `["a"]`, nil, errNotCLF.Error()},
		{"cut off", `{` + at + `"plan":"fr`, nil, errNotJSON.Error()},
		{"more than an object", `{` + at + `"plan":"a"} {}`, nil, errNotJSON.Error()},
		{"no cost", `{` + at + `"n":"1.5"}`, []Field{{"cost", "n"}}, errBadCost.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, facts(t, tt.line, tt.given...)) })
	}
}

func TestCommonLogFormat(t *testing.T) {
	const common = `203.0.113.7 - alice [31/Jan/2026:01:02:03 +0100] "POST /auth/login?x=1 HTTP/1.1" 429 12`
	const parsed = "ip=203.0.113.7 username=alice route=POST /auth/login method=POST path=/auth/login denied"
	tests := []struct {
		name  string
		line  string
		given []Field
		want  string
	}{
		{"common", common, nil, parsed},
		{"combined", common + ` "-" "curl/8 (x; \"y\")"`, []Field{{"plan", "user_agent"}}, strings.Replace(parsed, "alice", `alice plan=curl/8 (x; "y")`, 1)},
		{"more behind it", common + ` "-" "-" "free" acme`, []Field{{"plan", "extra1"}, {"tenant", "extra2"}}, strings.Replace(parsed, "alice", "alice tenant=acme plan=free", 1)},
		{"nothing known", `- - - [31/Jan/2026:01:02:03 +0100] "-" 400 -`, nil, ""},
		{"a path with spaces", `::1 - - [31/Jan/2026:01:02:03 +0100] "GET /a b HTTP/1.1" 200 1`, nil, "ip=::/64 route=GET /a b method=GET path=/a b"},
		{"no time", strings.Replace(common, "[31/Jan/2026:01:02:03 +0100]", "-", 1), nil, errNoTime.Error()},
		{"no date", strings.Replace(common, "31/Jan", "31/Foo", 1), nil, errBadTime.Error()},
		{"no end", `a b c [31/Jan/2026:01:02:03 +0100] "GET / HTTP/1.1`, nil, errNotCLF.Error()},
		{"too short", `a b c`, nil, errNotCLF.Error()},
		{"no request", `a b c [31/Jan/2026:01:02:03 +0100] "\x16\x03" 400 0`, nil, errNotCLF.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, facts(t, tt.line, tt.given...)) })
	}
}

func TestTime(t *testing.T) {
	want := time.Date(2026, 1, 31, 0, 0, 0, 123_456_000, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-01-31T00:00:00.123456Z":      want,
		"2026-01-31T01:00:00.123456+01:00": want,
		"1769817600.123456":                want,
		"1769817600123.456":                want,
		"1769817600123456":                 want,
		"1769817600123456000":              want,
		"31/Jan/2026:01:00:00 +0100":       want.Truncate(time.Second),
		"31/Jan/2026:01:00:00.123 +0100":   want.Truncate(time.Millisecond),
		"1769817600":                       want.Truncate(time.Second),
		"0":                                time.Unix(0, 0),
		"9999-12-31T23:59:59Z":             time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		got, err := parseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want.UTC(), time.UnixMicro(got).UTC(), text)
	}
	for _, text := range []string{"", ".", "1.2.3", "-1", "yesterday", "1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "9999999999999999999999", "1e9", "31/Jan/1969:00:00:00 +0000"} {
		_, err := parseTime(text)
		require.Error(t, err, text)
	}
}

func TestParseField(t *testing.T) {
	f, err := ParseField("plan=req.x=y")
	require.NoError(t, err)
	require.Equal(t, Field{"plan", "req.x=y"}, f)
	for _, bad := range []string{"", "plan", "plan=", "=x"} {
		_, err := ParseField(bad)
		require.EqualError(t, err, "must be NAME=SOURCE")
	}
}

func TestAFewValuesOfALineAreKept(t *testing.T) {
	line := `{"start_time":"2026-01-31T00:00:00Z"` + strings.Repeat(`,"plan":"a"`, 100) + `}`
	require.Equal(t, "plan=a", facts(t, line))
	var r record
	require.NoError(t, newFields(view(t), nil).parse([]byte(line), &r))
	require.Len(t, r.values, maxValues)
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"start_time":"2026-01-31T00:00:00.123Z","method":"GET","path":"/a","x":{"plan":"b"},"plan":[{}]}`))
	f.Add([]byte(`203.0.113.7 - alice [31/Jan/2026:01:02:03 +0100] "POST /auth\"/login HTTP/1.1" 429 12 "-" "curl\\" "a"`))
	f.Add([]byte(`{"start_time":"176981760012.3","plan":"\ud800","tenant":"-","x":null}`))
	f.Add([]byte(`[ "" " `))
	fields := newFields(view(f), []Field{{"plan", "x.plan"}, {"tenant", "extra1"}, {"cost", "bytes_sent"}})
	f.Fuzz(func(t *testing.T, line []byte) {
		var r record
		r.reset(1)
		if fields.parse(line, &r) != nil {
			return
		}
		if r.at < 0 || len(r.values) > maxValues {
			t.Fatalf("at %d, %d values", r.at, len(r.values))
		}
		for i, v := range r.values {
			_ = r.bytes(v)
			if i > 0 && v.target < r.values[i-1].target {
				t.Fatal("values are not in the order of their ranks")
			}
		}
	})
}
