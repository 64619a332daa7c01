package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func TestLoadDocumentExample(t *testing.T) {
	set, err := policy.Load("testdata/document.yaml")
	require.NoError(t, err)
	require.NotNil(t, set)
}
