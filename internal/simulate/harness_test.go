package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// tb is what testing and rapid have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// policies loads a file with these policies, one a line.
func policies(t tb, lines ...string) *policy.Set {
	t.Helper()
	text := "policies:\n"
	for _, l := range lines {
		text += "  - {" + l + "}\n"
	}
	file, err := policy.Parse("p.yaml", []byte(text))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return set
}

// perUser is a policy with a bucket for each user.
func perUser(numbers string) string {
	return "id: api, key: [user], onStoreFailure: open, " + numbers
}

const tokens = "algorithm: token-bucket, capacity: %s, refillPerMinute: %s"

// call is a line of a log in the making.
type call struct {
	at   time.Duration // since midnight
	user string
	cost int // 0: none said; noCost: 0
}

// noCost is that of a call that only looks.
const noCost = -1

var midnight = time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)

func (c call) json() string {
	cost := ""
	if c.cost != 0 {
		cost = fmt.Sprintf(`,"tokens":%d`, max(c.cost, 0))
	}
	return fmt.Sprintf(`{"start_time":%q,"user":%q%s}`, midnight.Add(c.at).Format(time.RFC3339Nano), c.user, cost)
}

func log(calls ...call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.json() + "\n")
	}
	return b.String()
}

// times gives n calls of a user, the first at from.
func times(n int, user string, from, every time.Duration) (calls []call) {
	for i := range n {
		calls = append(calls, call{at: from + time.Duration(i)*every, user: user})
	}
	return calls
}

func run(t tb, text string, o simulate.Options) *simulate.Report {
	t.Helper()
	r, err := simulate.Run(context.Background(), strings.NewReader(text), o)
	require.NoError(t, err)
	return r
}

// textOf is the report as people read it.
func textOf(t *testing.T, r *simulate.Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}
