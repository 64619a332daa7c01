package rls_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// allowed is an answer with all that an allowed call may carry.
func allowed() *rls.Response {
	return &rls.Response{
		Code: rls.OK,
		Statuses: []rls.Status{
			{Code: rls.OK, HasLimit: true, RequestsPerUnit: 100, Unit: rls.Minute, Name: "free", Remaining: 19, ResetSeconds: 12},
			{Code: rls.OK},
		},
		Headers: []rls.Header{
			{Name: "ratelimit-policy", Value: []byte(`"free";q=20;w=12`)},
			{Name: "ratelimit", Value: []byte(`"free";r=19;t=12`)},
		},
		Policy: "api-free", Source: "store",
	}
}

// clean is text as a client of Envoy gets to see it.
func clean(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c != '\t' && (c < 0x20 || c > 0x7e) {
			b[i] = '?'
		}
	}
	return string(b)
}

// withOfficialTypes builds the message that r stands for.
func withOfficialTypes(r *rls.Response) *envoyrls.RateLimitResponse {
	m := &envoyrls.RateLimitResponse{OverallCode: envoyrls.RateLimitResponse_Code(r.Code)}
	for _, s := range r.Statuses {
		status := &envoyrls.RateLimitResponse_DescriptorStatus{Code: envoyrls.RateLimitResponse_Code(s.Code)}
		if s.HasLimit {
			status.CurrentLimit = &envoyrls.RateLimitResponse_RateLimit{
				Name: clean(s.Name), RequestsPerUnit: s.RequestsPerUnit,
				Unit: envoyrls.RateLimitResponse_RateLimit_Unit(s.Unit),
			}
			status.LimitRemaining = s.Remaining
			status.DurationUntilReset = &durationpb.Duration{Seconds: s.ResetSeconds}
		}
		m.Statuses = append(m.Statuses, status)
	}
	for _, h := range r.Headers {
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &core.HeaderValue{Key: clean(h.Name), Value: clean(string(h.Value))})
	}
	m.RawBody = r.Body
	for name, value := range map[string]string{"policy": r.Policy, "source": r.Source} {
		if value == "" {
			continue
		}
		if m.DynamicMetadata == nil {
			m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		m.DynamicMetadata.Fields[name] = structpb.NewStringValue(clean(value))
	}
	return m
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func requireSameMessage(t fataler, want *envoyrls.RateLimitResponse, data []byte) {
	t.Helper()
	var got envoyrls.RateLimitResponse
	if err := proto.Unmarshal(data, &got); err != nil {
		t.Fatalf("the official decoder: %v", err)
	}
	if !proto.Equal(want, &got) {
		t.Fatalf("got  %s\nwant %s", prototext.Format(&got), prototext.Format(want))
	}
}

func TestResponseIsWhatTheOfficialTypesHold(t *testing.T) {
	long := strings.Repeat("long ", 1000)
	tests := map[string]*rls.Response{
		"empty":   {},
		"code":    {Code: rls.OverLimit},
		"allowed": allowed(),
		"denied": {
			Code:     rls.OverLimit,
			Statuses: []rls.Status{{Code: rls.OverLimit, HasLimit: true}},
			Headers:  []rls.Header{{Name: "retry-after", Value: []byte("1")}},
			Body:     []byte("{\"status\":429}\r\n\x00\xff"), Source: "closed",
		},
		"extremes": {Code: rls.OK, Statuses: []rls.Status{
			{Code: rls.OK, HasLimit: true, RequestsPerUnit: math.MaxUint32, Unit: rls.Day, Remaining: math.MaxUint32, ResetSeconds: math.MaxInt64},
			{Code: rls.OK, HasLimit: true, Unit: rls.Second, ResetSeconds: -1},
		}},
		"127 and 128 bytes": {Code: rls.OK, Headers: []rls.Header{
			{Name: "a", Value: []byte(long[:122])}, {Name: "a", Value: []byte(long[:123])}, {Name: "a", Value: []byte(long[:124])},
		}},
		"long": {
			Code: rls.OK, Statuses: []rls.Status{{Code: rls.OK, HasLimit: true, Name: long}},
			Headers: []rls.Header{{Name: "a", Value: bytes.Repeat([]byte(long), 10)}}, Body: []byte(long), Policy: long, Source: long,
		},
		"unfit bytes": {
			Code: rls.OK, Statuses: []rls.Status{{Code: rls.OK, HasLimit: true, Name: "é\n"}},
			Headers: []rls.Header{{Name: "a", Value: []byte("b\r\nset-cookie: c\x00\x7f\xff\ttab")}}, Policy: "\xff", Source: "ü",
		},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			want := withOfficialTypes(r)
			requireSameMessage(t, want, r.Append(nil))
			prefix := []byte("before")
			got := r.Append(prefix)
			require.Equal(t, "before", string(got[:len(prefix)]))
			requireSameMessage(t, want, got[len(prefix):])
		})
	}
}

func TestResponseTextsAreSafeToEmit(t *testing.T) {
	var every []byte
	for c := range 256 {
		every = append(every, byte(c))
	}
	r := &rls.Response{Code: rls.OK, Headers: []rls.Header{{Name: "a", Value: every}}}
	var got envoyrls.RateLimitResponse
	require.NoError(t, proto.Unmarshal(r.Append(nil), &got))
	value := got.ResponseHeadersToAdd[0].Value
	require.Len(t, value, 256)
	require.True(t, utf8.ValidString(value))
	require.NotContains(t, value, "\r")
	require.NotContains(t, value, "\n")
	require.NotContains(t, value, "\x00")
	require.Contains(t, value, string(every[' ':0x7f]), "printable ASCII stays")
	require.Equal(t, byte(255), every[255], "the caller's bytes are left alone")
}

func TestResponsePropertyAnyAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringN(0, 300, 600), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		code := rapid.SampledFrom([]rls.Code{0, rls.OK, rls.OverLimit})
		r := &rls.Response{
			Code: code.Draw(t, "code"), Body: []byte(text.Draw(t, "body")),
			Policy: text.Draw(t, "policy"), Source: text.Draw(t, "source"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "statuses") {
			r.Statuses = append(r.Statuses, rls.Status{
				Code: code.Draw(t, "status"), HasLimit: rapid.Bool().Draw(t, "limit"), Name: text.Draw(t, "name"),
				RequestsPerUnit: rapid.Uint32().Draw(t, "per unit"), Unit: rls.Unit(rapid.IntRange(0, 4).Draw(t, "unit")),
				Remaining: rapid.Uint32().Draw(t, "left"), ResetSeconds: rapid.Int64().Draw(t, "reset"),
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			r.Headers = append(r.Headers, rls.Header{Name: text.Draw(t, "key"), Value: []byte(text.Draw(t, "value"))})
		}
		requireSameMessage(t, withOfficialTypes(r), r.Append(nil))
	})
}

func FuzzResponse(f *testing.F) {
	f.Add("free", []byte("v"), []byte("body"), "store", uint32(7), int64(3))
	f.Add(strings.Repeat("x", 130), []byte("\r\n"), []byte(nil), "", uint32(0), int64(-1))
	f.Fuzz(func(t *testing.T, name string, value, body []byte, source string, n uint32, reset int64) {
		r := &rls.Response{
			Code:     rls.OK,
			Statuses: []rls.Status{{Code: rls.OverLimit, HasLimit: true, Name: name, Remaining: n, ResetSeconds: reset}},
			Headers:  []rls.Header{{Name: name, Value: value}}, Body: body, Policy: name, Source: source,
		}
		requireSameMessage(t, withOfficialTypes(r), r.Append(nil))
	})
}

func TestResponseReset(t *testing.T) {
	r := allowed()
	r.Body = []byte("x")
	r.Reset()
	require.Empty(t, r.Append(nil))
	require.NotZero(t, cap(r.Statuses))
	require.NotZero(t, cap(r.Headers))
}

func TestResponseAllocatesNothingWhenReused(t *testing.T) {
	r := allowed()
	dst := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { dst = r.Append(dst[:0]) }))
}

func BenchmarkResponseAppend(b *testing.B) {
	r := allowed()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = r.Append(dst[:0])
	}
}
