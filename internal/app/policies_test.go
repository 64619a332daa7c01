package app_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// BenchmarkPolicies makes each decision by another one of many policies, which is then cold to the processor.
func BenchmarkPolicies(b *testing.B) {
	const keys = 100_000
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("domain: edge\npolicies:\n")
			for i := range n {
				fmt.Fprintf(&text, "  - {id: p%d, match: {route: GET /r%05d}, key: [apiKey], algorithm: token-bucket, capacity: 1000, refillPerSecond: 1000000, onStoreFailure: local}\n", i, i)
			}
			opts, _ := options(b, text.String())
			opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
			a, err := app.New(opts)
			require.NoError(b, err)
			_, watched, err := app.BareAndWatched(b.Context(), a)
			require.NoError(b, err)
			entries := []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "route", Value: "GET /r00000"}, {Key: "api_key", Value: "k00000"}}
			wire, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: entries}}})
			require.NoError(b, err)
			route, key := strings.Index(string(wire), "/r00000")+2, strings.Index(string(wire), "k00000")+1
			c := &caller{wire: wire}
			call := func(i int) {
				writeDigits(wire[route:route+5], i%n)
				writeDigits(wire[key:key+5], i)
				c.call(b.Context(), watched)
			}
			for i := range keys {
				call(i)
			}
			b.ReportAllocs()
			for b.Loop() {
				call(rand.IntN(keys))
			}
			require.Equal(b, rls.OK, c.resp.Code)
			require.NotEmpty(b, c.resp.Policy)
		})
	}
}

func writeDigits(dst []byte, n int) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}
