package observe_test

import (
	"errors"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/accuracy/observe"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const policies = `
domain: edge
policies:
  - {id: user, key: [username], algorithm: token-bucket, capacity: 5, refillPerSecond: 1, onStoreFailure: open}
  - {id: tenant, key: [tenant], algorithm: sliding-log, limit: 9, window: 2s, onStoreFailure: open}
  - {id: both, match: {both: "yes"}, key: [tenant], algorithm: sliding-log, limit: 9, window: 2s, onStoreFailure: open}
`

func status(code rls.RateLimitResponse_Code, left uint32) *rls.RateLimitResponse_DescriptorStatus {
	return &rls.RateLimitResponse_DescriptorStatus{Code: code, LimitRemaining: left, CurrentLimit: &rls.RateLimitResponse_RateLimit{}}
}

// TestNote: what a reply says of a descriptor is noted of the one bucket that it is about, where there is one.
func TestNote(t *testing.T) {
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	denied := &rls.RateLimitResponse{
		OverallCode: over, Statuses: []*rls.RateLimitResponse_DescriptorStatus{status(over, 0), status(ok, 7)},
		ResponseHeadersToAdd: []*core.HeaderValue{{Key: "Retry-After", Value: "2"}},
	}
	for _, test := range []struct {
		name     string
		both     string
		reply    *rls.RateLimitResponse
		failed   error
		outcomes []accuracy.Outcome
		left     []float64 // -1: not told
		passed   bool
		wait     int64
	}{
		{
			name: "admitted", reply: &rls.RateLimitResponse{OverallCode: ok, Statuses: []*rls.RateLimitResponse_DescriptorStatus{status(ok, 3), status(ok, 8)}},
			outcomes: []accuracy.Outcome{accuracy.Admitted, accuracy.Admitted}, left: []float64{3, 8}, passed: true,
		},
		{name: "denied", reply: denied, outcomes: []accuracy.Outcome{accuracy.Denied, accuracy.Admitted}, left: []float64{0, 7}, wait: 2e9},
		{
			name: "two policies of one descriptor", both: "yes", reply: denied, wait: 2e9,
			outcomes: []accuracy.Outcome{accuracy.Denied, accuracy.Unasked, accuracy.Unasked}, left: []float64{0, -1, -1},
		},
		{name: "failed", failed: errors.New("gone"), outcomes: []accuracy.Outcome{accuracy.Unknown, accuracy.Unknown}, left: []float64{-1, -1}},
		{name: "fewer statuses than descriptors", reply: &rls.RateLimitResponse{}, outcomes: []accuracy.Outcome{accuracy.Unasked, accuracy.Unasked}, left: []float64{-1, -1}, passed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := policy.Parse("p.yaml", []byte(policies))
			require.NoError(t, err)
			set, err := policy.NewSet([]*policy.File{file})
			require.NoError(t, err)
			recorder := accuracy.NewRecorder(nil)
			o := observe.New(recorder, set, true)
			reply, err := proto.Marshal(test.reply)
			require.NoError(t, err)
			require.NoError(t, o.Note(o.Now(), request(t, test.both), reply, test.failed))
			r := recorder.Record()
			require.Len(t, r.Entries, len(test.outcomes))
			require.Equal(t, []string{"u:ann", "t:acme"}, []string{r.Buckets[0].Group, r.Buckets[1].Group})
			for i, e := range r.Entries {
				require.Equal(t, test.outcomes[i], e.Outcome, i)
				require.Equal(t, test.passed, e.Passed)
				require.Equal(t, uint64(2), e.Cost)
				if test.left[i] < 0 {
					require.NotEqual(t, e.Left, e.Left, "not told") // it is no number
				} else {
					require.Equal(t, test.left[i], e.Left)
				}
			}
			require.Equal(t, test.wait, r.Entries[0].Wait)
		})
	}
}

func request(t *testing.T, both string) []byte {
	entries := func(pairs ...string) *ratelimit.RateLimitDescriptor {
		d := &ratelimit.RateLimitDescriptor{}
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return d
	}
	tenant := []string{"tenant", "acme"}
	if both != "" {
		tenant = append(tenant, "both", both)
	}
	b, err := proto.Marshal(&rls.RateLimitRequest{
		Domain: "edge", HitsAddend: 2, Descriptors: []*ratelimit.RateLimitDescriptor{entries("username", "ann"), entries(tenant...)},
	})
	require.NoError(t, err)
	return b
}

// TestNoteRefusesOtherBytes: what is no request, or no reply, is an error and no entry.
func TestNoteRefusesOtherBytes(t *testing.T) {
	set, err := policy.NewSet(nil)
	require.NoError(t, err)
	recorder := accuracy.NewRecorder(nil)
	o := observe.New(recorder, set, true)
	require.Error(t, o.Note(0, []byte{0xff}, nil, nil))
	require.Error(t, o.Note(0, request(t, ""), []byte{0xff}, nil))
	require.NoError(t, o.Note(0, request(t, ""), nil, nil), "no policy applies")
	require.Empty(t, recorder.Record().Entries)
}
