package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const policies = `domain: edge
policies:
  - {id: api-free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny, algorithm: token-bucket, capacity: 20, refillPerMinute: 1, onStoreFailure: local}
  - {id: tenant-ceiling, key: [tenant], onMissingKey: skip, algorithm: token-bucket, capacity: 20000, refillPerMinute: 20000, expose: onReject, onStoreFailure: open}
  - {id: login, match: {route: "POST /auth/login"}, key: [ip, username], onMissingKey: skip, algorithm: sliding-log, limit: 5, window: 60s, expose: never, onStoreFailure: closed}
  - {id: search-trial, match: {route: "GET /v1/search*"}, key: [tenant], onMissingKey: skip, mode: shadow, algorithm: token-bucket, capacity: 5, refillPerSecond: 1, onStoreFailure: open}
`

func TestDrainedKey(t *testing.T) { newLab(t, policies).browse("drained") }

func TestHostileValues(t *testing.T) { newLab(t, policies).browse("hostile") }

func TestChanges(t *testing.T) { newLab(t, policies).browse("changes") }

func TestWhatIsWrong(t *testing.T) { newLab(t, policies).browse("wrong") }

func TestWithoutScripts(t *testing.T) { newLab(t, policies).browse("scriptless") }

func TestWithinReach(t *testing.T) { newLab(t, policies).browse("reach") }

// TestScreenshots makes the pictures of docs/page.md anew if ENVOY_RLS_SCREENSHOTS=1.
func TestScreenshots(t *testing.T) {
	if os.Getenv("ENVOY_RLS_SCREENSHOTS") != "1" {
		t.Skip("only with ENVOY_RLS_SCREENSHOTS=1")
	}
	to, err := filepath.Abs("../../docs/img")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(to, 0o755))
	newLab(t, policies).browse("screenshots", "PAGE_SCREENSHOTS="+to)
}
