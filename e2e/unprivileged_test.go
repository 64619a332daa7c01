package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// jail runs a program as an orchestrator does that is strict: nothing but the program and its files, all of it read-only, nobody's user, no
// capabilities. The policies are mounted, as a ConfigMap is. Its arguments: the directory, that of the policies, and what the program gets.
const jail = `
set -eu
jail=$1 policies=$2
shift 2
mount -o bind "$jail" "$jail"
mkdir -p "$jail/policies"
mount -o bind "$policies" "$jail/policies"
mount -o remount,bind,ro,nosuid,nodev "$jail/policies"
mount -o remount,bind,ro,nosuid,nodev "$jail"
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid chroot --userspec=65532:65532 "$jail" /envoy-rls "$@"
`

// TestUnprivileged: the service needs no privileges and writes nothing. It starts, answers, follows its files and stops.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to take all privileges away")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("needs the privilege to mount: %v: %s", err, out)
	}
	if os.Getenv("ENVOY_RLS_E2E_BINARY") != "" {
		t.Skip("needs a binary that is linked statically, as that of the image is")
	}
	const policies = `
domain: edge
policies:
  - {id: tenants, match: {tenant: "*"}, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
`
	dir, mounted := t.TempDir(), filepath.Dir(writePolicies(t, policies))
	program, err := os.ReadFile(binaries.service)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "envoy-rls"), program, 0o500))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte("ops "+firstToken), 0o400))
	for path := range map[string]bool{"envoy-rls": true, "tokens": true} {
		require.NoError(t, os.Chown(filepath.Join(dir, path), 65532, 65532))
	}
	for _, path := range []string{dir, mounted} {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(mounted, "policies.yaml"), 0o644))

	i, err := harness.StartInstance(t.Context(), "unshare", []string{
		"--mount", "sh", "-c", jail, "sh", dir, mounted,
		"serve", "--policies", "/policies/policies.yaml", "--admin-token-file", "/tokens", "--drain-delay", "0s",
	}, nil)
	require.NoError(t, err)
	defer i.Stop()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.Process.PID()))
	require.NoError(t, err)
	for _, line := range []string{"Name:\tenvoy-rls\n", "Uid:\t65532\t65532\t65532\t65532\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		require.Contains(t, string(status), line)
	}

	for n, want := range []bool{true, false} {
		got, err := i.Ask(t.Context(), n, harness.Attributes("tenant", "acme"))
		require.NoError(t, err)
		require.Equal(t, want, got.Allowed)
	}
	next := filepath.Join(mounted, ".next")
	require.NoError(t, os.WriteFile(next, []byte(strings.ReplaceAll(policies, "tenants", "others")), 0o600))
	require.NoError(t, os.Chmod(next, 0o644))
	require.NoError(t, os.Rename(next, filepath.Join(mounted, "policies.yaml")))
	require.NoError(t, harness.Until(t.Context(), "the policies to be loaded anew", func() error {
		loads, err := i.Sum(t.Context(), "envoy_rls_reload_total", `result="success"`)
		if err == nil && loads < 2 {
			err = fmt.Errorf("%v loads; %s", loads, i.Log)
		}
		return err
	}, i.Process))
	require.NotContains(t, i.Log.String(), "read-only")
	require.NotContains(t, i.Log.String(), "can be read by every user")
}
