package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestField_TenThousandPolicies: of ten thousand policies a request asks as many as of ten: those that can match.
func TestField_TenThousandPolicies(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		var b strings.Builder
		b.WriteString("policies:\n")
		for i := range n {
			match := []string{"{tenant: t%d}", "{tenant: t%d, plan: free}", `{path: "/t%d/*"}`, "{plan: [p%d, free]}"}[i%4]
			if i%4 == 3 && i > 10 {
				match = "{plan: [p%d, gold]}"
			}
			fmt.Fprintf(&b, "  - {id: p%d, match: %s, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", i, fmt.Sprintf(match, i))
		}
		f, err := Parse("policies.yaml", []byte(b.String()))
		require.NoError(t, err)
		s, err := NewSet([]*File{f})
		require.NoError(t, err)
		var a Attributes
		a.Reset(s.View(nil))
		a.Add(0, []byte("tenant"), []byte("t4"))
		a.Add(0, []byte("plan"), []byte("free"))
		a.Add(0, []byte("path"), []byte("/t2/x"))
		candidates, found := a.candidates()
		require.True(t, found)
		require.Len(t, candidates, 4, "%d policies", n) // p2, p3, p4, p7
		require.Len(t, a.Match(nil), 4, "%d policies", n)
	}
}

// TestIndexChangesNothing compares what Match finds with what it finds when it asks every policy for every condition.
func TestIndexChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{"a", "b", "ab", "abc", "c"})
		match := rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				return "absent"
			case 1:
				return `"*"`
			case 2:
				return `"` + value.Draw(t, "prefix") + `*"`
			case 3:
				return fmt.Sprintf("[%s, %s]", value.Draw(t, "value"), value.Draw(t, "other"))
			}
			return value.Draw(t, "value")
		})
		attributes := []string{"tenant", "plan", "team", "org"}
		texts := map[string]string{} // by domain
		for i := range rapid.IntRange(1, 12).Draw(t, "policies") {
			var b strings.Builder
			domain := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "domain")
			fmt.Fprintf(&b, "  - {id: p%d, match: {", i)
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(attributes), 0, 3, rapid.ID).Draw(t, "conditions") {
				fmt.Fprintf(&b, "%s: %s, ", name, match.Draw(t, "match"))
			}
			key := rapid.SliceOfNDistinct(rapid.SampledFrom(attributes), 0, 2, rapid.ID).Draw(t, "key")
			normalize := rapid.SampledFrom([]string{"", ", normalize: lower"}).Draw(t, "normalize")
			fmt.Fprintf(&b, "}, key: [%s]%s, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", strings.Join(key, ", "), normalize)
			texts[domain] += b.String()
		}
		var files []*File
		for domain, text := range texts {
			text = "policies:\n" + text
			if domain != "" {
				text = "domain: " + domain + "\n" + text
			}
			f, err := Parse(domain+".yaml", []byte(text))
			require.NoError(t, err, text)
			files = append(files, f)
		}
		s, err := NewSet(files)
		require.NoError(t, err, texts)
		view := s.View([]byte(rapid.SampledFrom([]string{"x", "y", "other"}).Draw(t, "view")))
		asking := *view
		asking.index = index{}

		facts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]string {
			return [2]string{rapid.SampledFrom(attributes).Draw(t, "attribute"), value.Draw(t, "value")}
		}), 0, 8).Draw(t, "facts")
		groups := rapid.SliceOfN(rapid.IntRange(0, 3), len(facts), len(facts)).Draw(t, "groups")
		found := func(view *View) (list []string) {
			var a Attributes
			a.Reset(view)
			for i, fact := range facts {
				a.Add(groups[i], []byte(fact[0]), []byte(fact[1]))
			}
			for _, h := range a.Match(nil) {
				list = append(list, fmt.Sprintf("%s %s %s %b %b", h.Policy.ID, h.Key, h.Missing, h.Groups, h.Tagging))
			}
			return list
		}
		require.Equal(t, found(&asking), found(view), texts)
	})
}

// TestDecisionReadsTwoLines: of ten thousand policies each is cold to the processor. What decisions read of one begins with a line of its cache and ends
// with the next, in the block of a large set.
func TestDecisionReadsTwoLines(t *testing.T) {
	p := reflect.TypeFor[Policy]()
	require.Zero(t, p.Size()%cacheLine)
	last, _ := p.FieldByName("compiled")
	require.LessOrEqual(t, last.Offset+last.Type.Size(), uintptr(2*cacheLine))
	for i := range p.NumField() {
		if f := p.Field(i); f.Offset > last.Offset {
			require.Contains(t, []string{"rest", "Name", "Domain", "Pos", "Match", "Key", "HashTag", "Overrides", "keyPos", "tagPos", "_"}, f.Name)
		}
	}
}

// TestTextsOfOnePolicyAreOneLine: the texts of a policy stand one behind the other, and what has room in a line of the cache is not spread over two.
func TestTextsOfOnePolicyAreOneLine(t *testing.T) {
	var b strings.Builder
	b.WriteString("policies:\n")
	for i := range 300 {
		fmt.Fprintf(&b, "  - {id: p%d, match: {tenant: %s}, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", i, strings.Repeat("t", 1+i))
	}
	f, err := Parse("policies.yaml", []byte(b.String()))
	require.NoError(t, err)
	s, err := NewSet([]*File{f})
	require.NoError(t, err)
	end := 0
	for i, p := range s.Policies() {
		want := fmt.Sprintf(":p%d%sp%dp%d", i, strings.Repeat("t", 1+i), i, i)
		at := int(p.compiled.texts)
		require.GreaterOrEqual(t, at, end)
		end = at + len(want)
		require.Equal(t, want, s.texts[at:end])
		require.Equal(t, fmt.Sprintf(":p%d", i), s.texts[at:][:p.compiled.prefix])
		require.True(t, len(want) > cacheLine || at/cacheLine == (end-1)/cacheLine, "%s at %d", want, at)
	}
}

// TestListedByTheDomainsOwn: what tells the policies of one domain apart is not what does so in another one's file.
func TestListedByTheDomainsOwn(t *testing.T) {
	const n = 500
	file := func(domain, match string) *File {
		var b strings.Builder
		if domain != "" {
			fmt.Fprintf(&b, "domain: %s\n", domain)
		}
		b.WriteString("policies:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {id: %sp%d, match: %s, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", domain, i, fmt.Sprintf(match, i))
		}
		f, err := Parse(domain+".yaml", []byte(b.String()))
		require.NoError(t, err)
		return f
	}
	s, err := NewSet([]*File{
		file("tenants", "{route: GET /pay, tenant: t%d}"),
		file("routes", "{route: GET /r%d, tenant: acme}"),
		file("", "{route: GET /pay, tenant: acme, plan: free%d}"),
	})
	require.NoError(t, err)
	for domain, facts := range map[string][]string{
		"tenants": {"route", "GET /pay", "tenant", "t7", "plan", "free7"},
		"routes":  {"route", "GET /r7", "tenant", "acme", "plan", "free7"},
		"other":   {"route", "GET /pay", "tenant", "acme", "plan", "free7"},
	} {
		var a Attributes
		a.Reset(s.View([]byte(domain)))
		for i := 0; i < len(facts); i += 2 {
			a.Add(0, []byte(facts[i]), []byte(facts[i+1]))
		}
		candidates, found := a.candidates()
		require.True(t, found)
		require.LessOrEqual(t, len(candidates), 2, domain)
		require.Len(t, a.Match(nil), 1, domain)
	}
}
