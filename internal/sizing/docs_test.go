package sizing_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/sizing"
)

var update = flag.Bool("update", false, "write the tables of docs/sizing.md anew")

const (
	page     = "../../docs/sizing.md"
	keys     = 2_000_000
	cores    = 2
	mebibyte = 1 << 20
)

// What stands in docs/sizing.md is what the package says.
func TestTablesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	want, filled := string(text), 0
	for name, table := range map[string]string{"figures": figures(), "table": table(), "worked": worked()} {
		marks := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
		filled += len(marks.FindAllString(want, -1))
		want = marks.ReplaceAllString(want, "${1}\n"+table+"\n${2}")
	}
	require.Equal(t, 3, filled, "the document lacks a mark")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "renew it: go test ./internal/sizing -update")
}

func figures() string {
	var b strings.Builder
	b.WriteString("| a decision costs | service CPU | Redis CPU |\n|---|---|---|\n")
	row := func(what string, service, redis time.Duration) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", what, micros(service), micros(redis))
	}
	row("an empty gRPC handler, for comparison", sizing.FloorCPU, 0)
	row("buckets in memory, one policy", sizing.EmbeddedCPU, 0)
	row("Redis, one policy, calls share batches", sizing.BatchedCPU, sizing.BatchedRedis)
	row("Redis, two policies in one slot, calls share batches", sizing.BatchedCPU2, sizing.BatchedRedis2)
	row("Redis, one policy, each call alone", sizing.SingleCPU, sizing.SingleRedis)
	row("Redis, two policies in one slot, each call alone", sizing.SingleCPU2, sizing.SingleRedis2)
	fmt.Fprintf(&b, "\nA bucket takes %d bytes in the memory of an instance, and %d in Redis with its key.\n", sizing.BucketBytes, sizing.KeyBytes)
	return b.String()
}

func micros(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f us", float64(d)/float64(time.Microsecond))
}

func table() string {
	var b strings.Builder
	b.WriteString("| decisions a second | in memory: instances, memory of each | Redis, one policy: instances, primaries, memory of each primary | Redis, two policies: instances, primaries, memory of each primary |\n|---|---|---|---|\n")
	for _, rate := range []float64{1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6} {
		l := sizing.Load{Rate: rate, Keys: keys, Policies: 1, Cores: cores}
		embedded, one := sizing.Embedded(l), sizing.Redis(l)
		l.Policies = 2
		two := sizing.Redis(l)
		fmt.Fprintf(&b, "| %s | %d, %s | %s | %s |\n", count(rate), embedded.Instances, memory(embedded.InstanceMemory), onRedis(one), onRedis(two))
	}
	return b.String()
}

func onRedis(p sizing.Plan) string {
	return fmt.Sprintf("%d, %d, %s", p.Instances, p.Shards, memory(p.ShardMemory))
}

func worked() string {
	var b strings.Builder
	b.WriteString("| checks a second | instances | primaries | an instance decides | CPU of an instance | a primary answers | CPU of a primary | memory of a primary |\n|---|---|---|---|---|---|---|---|\n")
	row := func(l sizing.Load, p sizing.Plan) {
		fmt.Fprintf(&b, "| %s | %d | %d | %s/s | %.0f %% of %d cores | %s/s | %.0f %% of one core | %s |\n", count(l.Rate), p.Instances, p.Shards,
			count(l.Rate/float64(p.Instances)), 100*p.InstanceBusy, l.Cores, count(l.Rate/float64(p.Shards)), 100*p.ShardBusy, memory(p.ShardMemory))
	}
	for _, rate := range []float64{75_000, 750_000} {
		l := sizing.Load{Rate: rate, Keys: keys, Policies: 2, Cores: cores}
		row(l, sizing.OnRedis(l, 50, 4))
		row(l, sizing.Redis(l))
	}
	return b.String()
}

// count writes a number with commas.
func count(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func memory(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/mebibyte) }
