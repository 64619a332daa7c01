package simulate_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

var update = flag.Bool("update", false, "write the plot of the documents anew")

// hour is an hour's traffic of 40 clients: the most ask now and then, four in bursts of 30, and one never stops.
func hour() (calls []call) {
	rng := rand.New(rand.NewPCG(1, 2))
	for client := range 40 {
		user := fmt.Sprint("user-", client)
		switch {
		case client == 0:
			calls = append(calls, times(2400, user, 20*time.Minute, time.Second)...)
		case client < 5:
			for at := rng.Int64N(int64(5 * time.Minute)); at < int64(time.Hour); at += int64(6*time.Minute) + rng.Int64N(int64(2*time.Minute)) {
				calls = append(calls, times(30, user, time.Duration(at), 50*time.Millisecond)...)
			}
		default:
			for at := rng.Int64N(int64(time.Minute)); at < int64(time.Hour); at += rng.Int64N(int64(20 * time.Second)) {
				calls = append(calls, call{at: time.Duration(at), user: user})
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return int(a.at - b.at) })
	return calls
}

// The plot of the documents is what comes out of the code.
func TestPlotOfTheDocuments(t *testing.T) {
	r := run(t, log(hour()...), simulate.Options{
		DenyShare: 0.01,
		Policies: policies(t, "id: api-free, key: [user], onStoreFailure: local, "+bucketOf(20, 30),
			"id: everybody, key: [], onStoreFailure: open, algorithm: sliding-log, limit: 400, window: 60s"),
	})
	var got bytes.Buffer
	require.NoError(t, r.WriteSVG(&got))
	const file = "../../docs/img/simulate.svg"
	if *update {
		require.NoError(t, os.WriteFile(file, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

func wellFormed(t *testing.T, r *simulate.Report) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.WriteSVG(&out))
	require.NotContains(t, out.String(), "NaN")
	require.NotContains(t, out.String(), "Inf")
	d := xml.NewDecoder(strings.NewReader(out.String()))
	for {
		if _, err := d.Token(); err != nil {
			require.ErrorIs(t, err, io.EOF)
			return out.String()
		}
	}
}

// Whatever a log and the policies are, the plot is well-formed XML.
func TestPlotIsWellFormed(t *testing.T) {
	one := log(call{user: "a"})
	numbers := bucketOf(20, 30)
	set := policies(t, `id: "<a & \"b\">", key: [user], onStoreFailure: open, `+numbers)
	r := run(t, one, simulate.Options{Policies: set})
	require.Contains(t, wellFormed(t, r), "&lt;a &amp; &#34;b&#34;&gt;")
	wellFormed(t, run(t, one, simulate.Options{Policies: policies(t, perUser("algorithm: sliding-log, limit: 0, window: 1s"))}))
	wellFormed(t, run(t, one, simulate.Options{Policies: policies(t, perUser(bucketOf(0, 30)))}))
	wellFormed(t, run(t, log(call{}, call{at: 90000 * time.Hour}), simulate.Options{Policies: policies(t, perUser(numbers))}))
	nobody := run(t, one, simulate.Options{Policies: policies(t, "id: t, key: [tenant], onStoreFailure: open, "+numbers)})
	require.Contains(t, wellFormed(t, nobody), "No policy applied to any request.")

	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("id: p%d, key: [user], onStoreFailure: open, %s", i, numbers))
	}
	many[29] = strings.Replace(many[29], "capacity: 20", "capacity: 0", 1)
	text := wellFormed(t, run(t, one, simulate.Options{Policies: policies(t, many...)}))
	require.Equal(t, 20, strings.Count(text, `class="name"`))
	require.Contains(t, text, ">p29<", "it denies")
	require.NotContains(t, text, ">p28<")
}

func TestPlotTellsOfFailure(t *testing.T) {
	full := errors.New("full")
	r := run(t, log(call{user: "a"}), simulate.Options{Policies: policies(t, perUser(bucketOf(1, 1)))})
	require.ErrorIs(t, r.WriteSVG(failing{full}), full)
	require.ErrorIs(t, r.WriteText(failing{full}), full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The override that lets somebody through ends by the log's time.
func TestOverridesEndByTheLogsTime(t *testing.T) {
	set := policies(t, perUser(bucketOf(1, 1)+", overrides: [{match: {user: a}, capacity: 10, until: 2026-01-31T00:00:10Z, comment: c}]"))
	r := run(t, log(append(times(3, "a", 0, 0), times(3, "a", 20*time.Second, 0)...)...), simulate.Options{Policies: set})
	require.EqualValues(t, 3, r.Policies[0].Overridden)
	require.EqualValues(t, 2, r.Denied, "of the later three, one finds a token")
}
