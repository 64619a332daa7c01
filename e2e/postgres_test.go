package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/pgtest"
)

// rollout is a database of policies with instances that follow it, and somebody at a terminal. All are processes.
type rollout struct {
	t         *testing.T
	server    *pgtest.Server
	dsnFile   string
	instances []*harness.Instance
	kept      []string // the kept file of each
}

func newRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{t: t, server: pgtest.Start(t), dsnFile: filepath.Join(t.TempDir(), "dsn")}
	require.NoError(t, os.WriteFile(r.dsnFile, []byte(r.server.Database(t)), 0o600))
	return r
}

// run runs "envoy-rls policies …" and gives what it printed and its exit code.
func (r *rollout) run(args ...string) (out string, code int) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), binaries.service, append([]string{"policies"}, args...)...)
	cmd.Env = append(os.Environ(), "ENVOY_RLS_POLICY_DSN_FILE="+r.dsnFile)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	_ = cmd.Run() // the exit code says it
	require.NotContains(r.t, text.String(), pgtest.Password)
	return text.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that succeeds.
func (r *rollout) must(args ...string) string {
	r.t.Helper()
	out, code := r.run(args...)
	require.Zero(r.t, code, out)
	return out
}

// policy is a policy file whose bucket has a capacity.
func (r *rollout) policy(capacity string) string {
	return writePolicies(r.t, "domain: edge\npolicies:\n  - {id: p, key: [tenant], algorithm: token-bucket, capacity: "+capacity+", refillPerDay: 1, onStoreFailure: open}\n")
}

// start starts one more instance, with a kept file of its own unless one is given.
func (r *rollout) start(kept string) *harness.Instance {
	r.t.Helper()
	if kept == "" {
		kept = filepath.Join(r.t.TempDir(), "kept")
	}
	i, err := harness.StartInstance(r.t.Context(), binaries.service, []string{
		"serve", "--policy-source", "postgres", "--policy-dsn-file", r.dsnFile, "--policy-kept-file", kept, "--drain-delay", "0s",
	}, nil)
	require.NoError(r.t, err)
	r.t.Cleanup(i.Stop)
	r.instances, r.kept = append(r.instances, i), append(r.kept, kept)
	return i
}

// admitted is how many of n calls of a tenant an instance lets through.
func (r *rollout) admitted(i *harness.Instance, n int, tenant string) (admitted int) {
	r.t.Helper()
	for n := range n {
		answer, err := i.Ask(r.t.Context(), n, harness.Attributes("tenant", tenant))
		require.NoError(r.t, err)
		if answer.Allowed {
			admitted++
		}
	}
	return admitted
}

// TestPoliciesFromPostgres: three processes follow what one publishes from a terminal, live through the death of the database, and start without it.
func TestPoliciesFromPostgres(t *testing.T) {
	r := newRollout(t)
	require.Equal(t, "version 1 is active\n", r.must("push", r.policy("3"), "-m", "first"))
	for range 3 {
		r.start("")
	}
	out := r.must("push", r.policy("5"), "-m", "second", "--wait", "1m")
	require.Contains(t, out, "capacity: 3 -> 5  looser")
	require.Contains(t, out, "3 instances run it")
	for _, i := range r.instances {
		require.Equal(t, 5, r.admitted(i, 8, "acme"))
	}
	out = r.must("status")
	require.Equal(t, 3, strings.Count(out, "up to date"), out)

	out, code := r.run("push", r.policy("-7"), "-m", "third")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "capacity must not be negative")
	require.Contains(t, r.must("rollback", "1", "--wait", "1m"), "3 instances run it")
	for _, i := range r.instances {
		require.Equal(t, 3, r.admitted(i, 8, "after the rollback"))
	}

	r.server.Kill()
	out, code = r.run("push", r.policy("9"), "-m", "third")
	require.Equal(t, 3, code, out)
	for _, i := range r.instances {
		require.Equal(t, 3, r.admitted(i, 8, "with the database down"))
	}
	require.NoError(t, r.instances[0].Process.Signal(syscall.SIGKILL))
	again := r.start(r.kept[0])
	require.Equal(t, 3, r.admitted(again, 8, "restarted"))
	require.Contains(t, again.Log.String(), "starting with the policies that were kept here")
	require.NotContains(t, again.Log.String(), pgtest.Password)
	out = r.fails("--policy-kept-file", filepath.Join(t.TempDir(), "nothing"))
	require.Contains(t, out, "no policies have been kept")

	require.NoError(t, r.server.Start(t.Context()))
	require.NoError(t, harness.Until(t.Context(), "the instances to come back", func() error {
		if out := r.must("status"); strings.Count(out, "up to date") < 3 {
			return fmt.Errorf("got %s", out)
		}
		return nil
	}))
	r.must("push", r.policy("4"), "-m", "after all") // without --wait: the one that was killed counts for half a minute
	require.NoError(t, harness.Until(t.Context(), "the new version", func() error {
		version, err := again.Sum(t.Context(), "envoy_rls_policy_version")
		if err == nil && version != 4 {
			return fmt.Errorf("version %v is in force", version)
		}
		return err
	}))
	require.Equal(t, 4, r.admitted(again, 8, "at last"))
}

// fails starts an instance that cannot start, and gives what it says.
func (r *rollout) fails(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), binaries.service, append([]string{
		"serve", "--policy-source", "postgres", "--policy-dsn-file", r.dsnFile, "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--debug-addr", "",
	}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	require.Error(r.t, err)
	require.Equal(r.t, 3, cmd.ProcessState.ExitCode(), string(out))
	require.NotContains(r.t, string(out), pgtest.Password)
	return string(out)
}
