package rls_test

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func TestRequestSmoke(t *testing.T) {
	b, err := proto.Marshal(&envoyrls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "plan", Value: "free"}},
	}}})
	require.NoError(t, err)
	var r rls.Request
	require.NoError(t, r.Unmarshal(b))
	require.Equal(t, "free", string(r.Descriptors[0].Entries[0].Value))
}
