// Package descriptorstest makes rate limit requests for tests.
package descriptorstest

import (
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

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Descriptor builds a descriptor of alternating keys and values.
func Descriptor(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// Ordinary is a request as Envoy sends it.
func Ordinary() *envoyrls.RateLimitRequest {
	return &envoyrls.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{
		Descriptor("plan", "free", "api_key", "secret1"),
		{Entries: Descriptor("tenant", "acme").Entries, HitsAddend: wrapperspb.UInt64(0)},
		{
			Entries: Descriptor("route", "").Entries, HitsAddend: wrapperspb.UInt64(1 << 63), IsNegativeHits: true,
			Limit: &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2),
			},
		},
		{},
	}}
}

// Encoded is m as a protobuf message.
func Encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// Text renders a request, so that two can be compared with readable differences.
func Text(r *descriptors.Request) string {
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

// Official renders what the official types hold in the same form, as far as a Request keeps it.
func Official(m *envoyrls.RateLimitRequest) string {
	r := descriptors.Request{Domain: []byte(m.Domain), HitsAddend: m.HitsAddend}
	for i, d := range m.Descriptors {
		r.Truncated = r.Truncated || i >= descriptors.MaxDescriptors || len(d.Entries) > descriptors.MaxEntries
		if i >= descriptors.MaxDescriptors {
			continue
		}
		own := descriptors.Descriptor{
			HasHits: d.HitsAddend != nil, HitsAddend: d.HitsAddend.GetValue(),
			IsNegativeHits: d.IsNegativeHits, HasLimit: d.Limit != nil,
		}
		for _, e := range d.Entries[:min(len(d.Entries), descriptors.MaxEntries)] {
			own.Entries = append(own.Entries, descriptors.Entry{Key: []byte(e.Key), Value: []byte(e.Value)})
		}
		r.Descriptors = append(r.Descriptors, own)
	}
	return Text(&r)
}

// Raw builds wire data by hand: fields that no encoder would write.
type Raw []byte

// Bytes appends a field of bytes.
func (b Raw) Bytes(num protowire.Number, v []byte) Raw {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// Varint appends a number.
func (b Raw) Varint(num protowire.Number, v uint64) Raw {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// Group appends a group.
func (b Raw) Group(num protowire.Number, inner []byte) Raw {
	b = append(protowire.AppendTag(b, num, protowire.StartGroupType), inner...)
	return protowire.AppendTag(b, num, protowire.EndGroupType)
}

// Many makes a request of that many descriptors with that many entries each.
func Many(descriptors, entries int) *envoyrls.RateLimitRequest {
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
