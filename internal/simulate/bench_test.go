package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// BenchmarkLine is what a line of Envoy's JSON log takes under the shipped policies, of which three apply. A million of them must take less than
// ten seconds.
func BenchmarkLine(b *testing.B) {
	set, err := policy.Load("../../config/policies.yaml")
	require.NoError(b, err)
	const line = `{"start_time":%q,"method":"GET","path":"/v1/items/%d?x=1","protocol":"HTTP/1.1","response_code":200,"response_flags":"-",` +
		`"bytes_received":0,"bytes_sent":1256,"duration":12,"upstream_service_time":"11","user_agent":"curl/8.4.0",` +
		`"request_id":"3f1c2a7e-8f0c-4c1b-9a3a-0b7d5a6c9e11","authority":"api.example.com","upstream_host":"10.0.0.7:8080",` +
		`"downstream_remote_address":"203.0.113.%d:52811","plan":"free","x-api-key":"key-%d","tenant":"t%d"}` + "\n"
	var text strings.Builder
	const lines = 10_000
	for i := range lines {
		at := midnight.Add(time.Duration(i) * 4 * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		fmt.Fprintf(&text, line, at, i%97, i%251, i*i%2000, i%300)
	}
	b.ReportAllocs()
	for done := 0; done < b.N; done += lines {
		r, err := simulate.Run(b.Context(), strings.NewReader(text.String()), simulate.Options{Policies: set, Domain: "edge"})
		require.NoError(b, err)
		require.EqualValues(b, lines, r.Lines.Replayed)
	}
}
