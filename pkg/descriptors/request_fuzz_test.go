package descriptors_test

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors/descriptorstest"
)

// FuzzRequest compares the decoder with two official ones: that of Envoy's own types, and one for the same types with
// bytes in place of strings, which differs only in that it takes any bytes. Ours accepts exactly what the second accepts.
func FuzzRequest(f *testing.F) {
	f.Add(descriptorstest.Encoded(f, descriptorstest.Ordinary()))
	f.Add(descriptorstest.Encoded(f, descriptorstest.Many(65, 2)))
	f.Add(descriptorstest.Encoded(f, descriptorstest.Many(2, 33)))
	f.Add([]byte(descriptorstest.Raw{}.Group(5, descriptorstest.Raw{}.Bytes(1, []byte("x"))).Bytes(1, []byte("\xff"))))
	f.Add([]byte(descriptorstest.Raw{}.Bytes(2, descriptorstest.Raw{}.Bytes(3, descriptorstest.Raw{}.Varint(1, 5)).Bytes(3, nil).Varint(4, 2))))
	bytesType := withBytesForStrings(f)
	var r descriptors.Request
	f.Fuzz(func(t *testing.T, data []byte) {
		err := r.Unmarshal(data)
		anyBytes := dynamicpb.NewMessage(bytesType)
		if want := proto.Unmarshal(data, anyBytes); (want == nil) != (err == nil) {
			t.Fatalf("got error %v, want %v", err, want)
		}
		if err != nil {
			require.Error(t, proto.Unmarshal(data, &envoyrls.RateLimitRequest{}), "ours: %v", err)
			return
		}
		require.Equal(t, descriptorstest.Official(fromBytes(anyBytes)), descriptorstest.Text(&r))
		var m envoyrls.RateLimitRequest
		if proto.Unmarshal(data, &m) == nil {
			require.Equal(t, descriptorstest.Official(&m), descriptorstest.Text(&r))
		}
	})
}

// withBytesForStrings gives RateLimitRequest's definition with every string field made a bytes field.
func withBytesForStrings(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	request := (&envoyrls.RateLimitRequest{}).ProtoReflect().Descriptor()
	add(request.ParentFile())
	for _, file := range set.File {
		switch file.GetName() {
		case request.ParentFile().Path(), common.File_envoy_extensions_common_ratelimit_v3_ratelimit_proto.Path():
			stringsToBytes(file.MessageType)
		}
	}
	files, err := protodesc.NewFiles(&set)
	require.NoError(t, err)
	d, err := files.FindDescriptorByName(request.FullName())
	require.NoError(t, err)
	return d.(protoreflect.MessageDescriptor)
}

func stringsToBytes(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		for _, f := range m.Field {
			if f.GetType() == descriptorpb.FieldDescriptorProto_TYPE_STRING {
				f.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
			}
		}
		stringsToBytes(m.NestedType)
	}
}

// fromBytes copies a message of the changed type into Envoy's own, whose strings then hold any bytes.
func fromBytes(m protoreflect.Message) *envoyrls.RateLimitRequest {
	out := &envoyrls.RateLimitRequest{}
	copyFields(m, out.ProtoReflect())
	return out
}

func copyFields(from, to protoreflect.Message) {
	from.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		field := to.Descriptor().Fields().ByNumber(fd.Number())
		switch {
		case fd.IsList():
			list := to.Mutable(field).List()
			for i := range v.List().Len() {
				copyFields(v.List().Get(i).Message(), list.AppendMutable().Message())
			}
		case fd.Kind() == protoreflect.MessageKind:
			copyFields(v.Message(), to.Mutable(field).Message())
		case fd.Kind() == protoreflect.BytesKind:
			to.Set(field, protoreflect.ValueOfString(string(v.Bytes())))
		default:
			to.Set(field, v)
		}
		return true
	})
}
