package descriptors_test

import (
	"bytes"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors/descriptorstest"
)

func TestRequestReadsWhatTheOfficialDecoderReads(t *testing.T) {
	entry := descriptorstest.Raw{}.Bytes(1, []byte("k")).Bytes(2, []byte("v"))
	tests := map[string][]byte{
		"empty":               nil,
		"ordinary":            descriptorstest.Encoded(t, descriptorstest.Ordinary()),
		"last scalar wins":    descriptorstest.Raw{}.Bytes(1, []byte("a")).Varint(3, 7).Bytes(1, []byte("b")).Varint(3, 0),
		"hits cut to 32 bits": descriptorstest.Raw{}.Varint(3, 1<<32+5),
		"unknown fields":      descriptorstest.Raw{}.Varint(9, 1).Bytes(1, []byte("a")).Bytes(100, []byte("x")).Bytes(2, descriptorstest.Raw{}.Varint(77, 1)),
		"groups":              descriptorstest.Raw{}.Group(5, descriptorstest.Raw{}.Group(6, descriptorstest.Raw{}.Bytes(1, []byte("x")))).Bytes(1, []byte("a")),
		"known number, wrong type": descriptorstest.Raw{}.Varint(1, 4).Bytes(3, []byte("x")).Varint(2, 1).
			Bytes(2, descriptorstest.Raw{}.Varint(1, 5).Varint(3, 9).Bytes(4, nil)),
		"entry's last value wins": descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(1, append(entry, descriptorstest.Raw{}.Bytes(2, []byte("w"))...))),
		"wrapper merged, set":     descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(3, descriptorstest.Raw{}.Varint(1, 5)).Bytes(3, nil)),
		"wrapper merged, again":   descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(3, descriptorstest.Raw{}.Varint(1, 5)).Bytes(3, descriptorstest.Raw{}.Varint(1, 6))),
		"wrapper of zero":         descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(3, descriptorstest.Raw{}.Varint(1, 0))),
		"bool above one":          descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Varint(4, 1<<40)),
		"bool taken back":         descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Varint(4, 1).Varint(4, 0)),
		"64 descriptors":          descriptorstest.Encoded(t, descriptorstest.Many(64, 1)),
		"65 descriptors":          descriptorstest.Encoded(t, descriptorstest.Many(65, 1)),
		"33 entries":              descriptorstest.Encoded(t, descriptorstest.Many(2, 33)),
		"100 of 100":              descriptorstest.Encoded(t, descriptorstest.Many(100, 100)),
	}
	var reused descriptors.Request
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			var want envoyrls.RateLimitRequest
			require.NoError(t, proto.Unmarshal(data, &want))
			var got descriptors.Request
			require.NoError(t, got.Unmarshal(data))
			require.Equal(t, descriptorstest.Official(&want), descriptorstest.Text(&got))
			require.NoError(t, reused.Unmarshal(data))
			require.Equal(t, descriptorstest.Text(&got), descriptorstest.Text(&reused), "nothing is left of earlier requests")
		})
	}
}

func TestRequestRefusesBrokenMessages(t *testing.T) {
	limit := func(b []byte) []byte { return descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(2, b)) }
	tests := map[string][]byte{
		"half a tag":                {0x80},
		"half a varint":             {3<<3 | 0, 0xff},
		"varint of 11 bytes":        append([]byte{3 << 3}, bytes.Repeat([]byte{0x80}, 11)...),
		"bytes beyond the end":      {1<<3 | 2, 5, 'a'},
		"field number 0":            {0<<3 | 0, 1},
		"field number above 2^29-1": descriptorstest.Raw(protowire.AppendVarint(nil, 1<<29<<3)).Varint(1, 1),
		"wire type 7":               {1<<3 | 7, 1},
		"end of no group":           protowire.AppendTag(nil, 5, protowire.EndGroupType),
		"group without end":         protowire.AppendTag(nil, 5, protowire.StartGroupType),
		"in a descriptor":           descriptorstest.Raw{}.Bytes(2, []byte{0x80}),
		"in an entry":               descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(1, []byte{0x80})),
		"in a wrapper":              descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(3, []byte{0x80})),
		"in a limit":                limit([]byte{0x80}),
		"in a limit's multiplier":   limit(descriptorstest.Raw{}.Bytes(3, []byte{0x80})),
		"in a left out descriptor":  append(descriptorstest.Encoded(t, descriptorstest.Many(64, 1)), descriptorstest.Raw{}.Bytes(2, []byte{0x80})...),
		"in a left out entry":       descriptorstest.Raw{}.Bytes(2, append(descriptorstest.Encoded(t, descriptorstest.Many(1, 33).Descriptors[0]), descriptorstest.Raw{}.Bytes(1, []byte{0x80})...)),
		"after a good request":      append(descriptorstest.Encoded(t, descriptorstest.Ordinary()), 0x80),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			require.Error(t, proto.Unmarshal(data, &envoyrls.RateLimitRequest{}), "the official decoder")
			var r descriptors.Request
			require.Error(t, r.Unmarshal(data))
			require.NoError(t, r.Unmarshal(descriptorstest.Encoded(t, descriptorstest.Ordinary())), "fit for the next one")
			require.Equal(t, descriptorstest.Official(descriptorstest.Ordinary()), descriptorstest.Text(&r))
		})
	}
}

func TestRequestTakesBytesThatAreNotUTF8(t *testing.T) {
	value := []byte("\xff\xfe\x00\n")
	data := descriptorstest.Raw{}.Bytes(1, value).Bytes(2, descriptorstest.Raw{}.Bytes(1, descriptorstest.Raw{}.Bytes(1, value).Bytes(2, value)))
	require.Error(t, proto.Unmarshal(data, &envoyrls.RateLimitRequest{}), "the official decoder insists on UTF-8")
	var r descriptors.Request
	require.NoError(t, r.Unmarshal(data))
	require.Equal(t, value, r.Domain)
	require.Equal(t, descriptors.Entry{Key: value, Value: value}, r.Descriptors[0].Entries[0])
}

func TestRequestOwnsItsBytes(t *testing.T) {
	data := descriptorstest.Encoded(t, descriptorstest.Ordinary())
	var r descriptors.Request
	require.NoError(t, r.Unmarshal(data))
	clear(data)
	require.Equal(t, descriptorstest.Official(descriptorstest.Ordinary()), descriptorstest.Text(&r))
}

func TestRequestAllocatesNothingWhenReused(t *testing.T) {
	data := [][]byte{descriptorstest.Encoded(t, descriptorstest.Ordinary()), descriptorstest.Encoded(t, descriptorstest.Many(80, 40))}
	var r descriptors.Request
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
	data := descriptorstest.Encoded(b, &envoyrls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		descriptorstest.Descriptor("plan", "free", "api_key", "secret1"), descriptorstest.Descriptor("tenant", "acme"),
	}})
	var r descriptors.Request
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Unmarshal(data); err != nil {
			b.Fatal(err)
		}
	}
}
