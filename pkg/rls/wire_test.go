package rls_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// descriptor builds a descriptor of alternating keys and values.
func descriptor(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// ordinary is a request as Envoy sends it.
func ordinary() *envoyrls.RateLimitRequest {
	return &envoyrls.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{
		descriptor("plan", "free", "api_key", "secret1"),
		{Entries: descriptor("tenant", "acme").Entries, HitsAddend: wrapperspb.UInt64(0)},
		{
			Entries: descriptor("route", "").Entries, HitsAddend: wrapperspb.UInt64(1 << 63), IsNegativeHits: true,
			Limit: &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2),
			},
		},
		{},
	}}
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// text renders a request, so that two can be compared with readable differences.
func text(r *rls.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %q hits %d truncated %t\n", r.Domain, r.HitsAddend, r.Truncated)
	for _, d := range r.Descriptors {
		fmt.Fprintf(&b, "descriptor hits %d (%t) negative %t limit %t\n", d.HitsAddend, d.HasHits, d.IsNegativeHits, d.HasLimit)
		for _, e := range d.Entries {
			fmt.Fprintf(&b, "  %q = %q\n", e.Key, e.Value)
		}
	}
	return b.String()
}

// official renders what the official types hold in the same form, as far as a Request keeps it.
func official(m *envoyrls.RateLimitRequest) string {
	r := rls.Request{Domain: []byte(m.Domain), HitsAddend: m.HitsAddend}
	for i, d := range m.Descriptors {
		r.Truncated = r.Truncated || i >= rls.MaxDescriptors || len(d.Entries) > rls.MaxEntries
		if i >= rls.MaxDescriptors {
			continue
		}
		own := rls.Descriptor{
			HasHits: d.HitsAddend != nil, HitsAddend: d.HitsAddend.GetValue(),
			IsNegativeHits: d.IsNegativeHits, HasLimit: d.Limit != nil,
		}
		for _, e := range d.Entries[:min(len(d.Entries), rls.MaxEntries)] {
			own.Entries = append(own.Entries, rls.Entry{Key: []byte(e.Key), Value: []byte(e.Value)})
		}
		r.Descriptors = append(r.Descriptors, own)
	}
	return text(&r)
}

// raw builds wire data by hand: fields that no encoder would write.
type raw []byte

func (b raw) bytes(num protowire.Number, v []byte) raw {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func (b raw) varint(num protowire.Number, v uint64) raw {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func (b raw) group(num protowire.Number, inner []byte) raw {
	b = append(protowire.AppendTag(b, num, protowire.StartGroupType), inner...)
	return protowire.AppendTag(b, num, protowire.EndGroupType)
}

func TestRequestReadsWhatTheOfficialDecoderReads(t *testing.T) {
	entry := raw{}.bytes(1, []byte("k")).bytes(2, []byte("v"))
	tests := map[string][]byte{
		"empty":               nil,
		"ordinary":            encoded(t, ordinary()),
		"last scalar wins":    raw{}.bytes(1, []byte("a")).varint(3, 7).bytes(1, []byte("b")).varint(3, 0),
		"hits cut to 32 bits": raw{}.varint(3, 1<<32+5),
		"unknown fields":      raw{}.varint(9, 1).bytes(1, []byte("a")).bytes(100, []byte("x")).bytes(2, raw{}.varint(77, 1)),
		"groups":              raw{}.group(5, raw{}.group(6, raw{}.bytes(1, []byte("x")))).bytes(1, []byte("a")),
		"known number, wrong type": raw{}.varint(1, 4).bytes(3, []byte("x")).varint(2, 1).
			bytes(2, raw{}.varint(1, 5).varint(3, 9).bytes(4, nil)),
		"entry's last value wins": raw{}.bytes(2, raw{}.bytes(1, append(entry, raw{}.bytes(2, []byte("w"))...))),
		"wrapper merged, set":     raw{}.bytes(2, raw{}.bytes(3, raw{}.varint(1, 5)).bytes(3, nil)),
		"wrapper merged, again":   raw{}.bytes(2, raw{}.bytes(3, raw{}.varint(1, 5)).bytes(3, raw{}.varint(1, 6))),
		"wrapper of zero":         raw{}.bytes(2, raw{}.bytes(3, raw{}.varint(1, 0))),
		"bool above one":          raw{}.bytes(2, raw{}.varint(4, 1<<40)),
		"bool taken back":         raw{}.bytes(2, raw{}.varint(4, 1).varint(4, 0)),
		"64 descriptors":          encoded(t, many(64, 1)),
		"65 descriptors":          encoded(t, many(65, 1)),
		"33 entries":              encoded(t, many(2, 33)),
		"100 of 100":              encoded(t, many(100, 100)),
	}
	var reused rls.Request
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			var want envoyrls.RateLimitRequest
			require.NoError(t, proto.Unmarshal(data, &want))
			var got rls.Request
			require.NoError(t, got.Unmarshal(data))
			require.Equal(t, official(&want), text(&got))
			require.NoError(t, reused.Unmarshal(data))
			require.Equal(t, text(&got), text(&reused), "nothing is left of earlier requests")
		})
	}
}

func many(descriptors, entries int) *envoyrls.RateLimitRequest {
	m := &envoyrls.RateLimitRequest{Domain: "edge"}
	for i := range descriptors {
		d := &common.RateLimitDescriptor{}
		for j := range entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: fmt.Sprint(i), Value: fmt.Sprint(j)})
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

func TestRequestRefusesBrokenMessages(t *testing.T) {
	limit := func(b []byte) []byte { return raw{}.bytes(2, raw{}.bytes(2, b)) }
	tests := map[string][]byte{
		"half a tag":                {0x80},
		"half a varint":             {3<<3 | 0, 0xff},
		"varint of 11 bytes":        append([]byte{3 << 3}, bytes.Repeat([]byte{0x80}, 11)...),
		"bytes beyond the end":      {1<<3 | 2, 5, 'a'},
		"field number 0":            {0<<3 | 0, 1},
		"field number above 2^29-1": raw(protowire.AppendVarint(nil, 1<<29<<3)).varint(1, 1),
		"wire type 7":               {1<<3 | 7, 1},
		"end of no group":           protowire.AppendTag(nil, 5, protowire.EndGroupType),
		"group without end":         protowire.AppendTag(nil, 5, protowire.StartGroupType),
		"in a descriptor":           raw{}.bytes(2, []byte{0x80}),
		"in an entry":               raw{}.bytes(2, raw{}.bytes(1, []byte{0x80})),
		"in a wrapper":              raw{}.bytes(2, raw{}.bytes(3, []byte{0x80})),
		"in a limit":                limit([]byte{0x80}),
		"in a limit's multiplier":   limit(raw{}.bytes(3, []byte{0x80})),
		"in a left out descriptor":  append(encoded(t, many(64, 1)), raw{}.bytes(2, []byte{0x80})...),
		"in a left out entry":       raw{}.bytes(2, append(encoded(t, many(1, 33).Descriptors[0]), raw{}.bytes(1, []byte{0x80})...)),
		"after a good request":      append(encoded(t, ordinary()), 0x80),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			require.Error(t, proto.Unmarshal(data, &envoyrls.RateLimitRequest{}), "the official decoder")
			var r rls.Request
			require.Error(t, r.Unmarshal(data))
			require.NoError(t, r.Unmarshal(encoded(t, ordinary())), "fit for the next one")
			require.Equal(t, official(ordinary()), text(&r))
		})
	}
}

func TestRequestTakesBytesThatAreNotUTF8(t *testing.T) {
	value := []byte("\xff\xfe\x00\n")
	data := raw{}.bytes(1, value).bytes(2, raw{}.bytes(1, raw{}.bytes(1, value).bytes(2, value)))
	require.Error(t, proto.Unmarshal(data, &envoyrls.RateLimitRequest{}), "the official decoder insists on UTF-8")
	var r rls.Request
	require.NoError(t, r.Unmarshal(data))
	require.Equal(t, value, r.Domain)
	require.Equal(t, rls.Entry{Key: value, Value: value}, r.Descriptors[0].Entries[0])
}

func TestRequestOwnsItsBytes(t *testing.T) {
	data := encoded(t, ordinary())
	var r rls.Request
	require.NoError(t, r.Unmarshal(data))
	clear(data)
	require.Equal(t, official(ordinary()), text(&r))
}

func TestRequestAllocatesNothingWhenReused(t *testing.T) {
	data := [][]byte{encoded(t, ordinary()), encoded(t, many(80, 40))}
	var r rls.Request
	read := func() {
		for _, b := range data {
			if err := r.Unmarshal(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, read))
}

func BenchmarkRequestUnmarshal(b *testing.B) {
	data := encoded(b, &envoyrls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		descriptor("plan", "free", "api_key", "secret1"), descriptor("tenant", "acme"),
	}})
	var r rls.Request
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Unmarshal(data); err != nil {
			b.Fatal(err)
		}
	}
}
