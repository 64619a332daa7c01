package doctest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// demoPorts are those that documents name, with the variable that moves each: a test takes free ones.
var demoPorts = map[string]string{
	"10000": "DEMO_PORT",
	"9901":  "DEMO_ENVOY_ADMIN_PORT",
	"8081":  "DEMO_GRPC_PORT",
	"8080":  "DEMO_ADMIN_PORT",
	"9000":  "DEMO_UPSTREAM_PORT",
}

// demoToken is that of somebody who may change things, $TOKEN in documents.
const demoToken = "0123456789abcdef0123456789abcdef"

// startDemo does what `make run` does, with every bucket full, until the test ends. It gives a sandbox whose commands talk to it.
func startDemo(t *testing.T, c *checker) *sandbox {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("alice "+demoToken+"\n"), 0o600))
	env := append(os.Environ(), "ENVOY_RLS_ADMIN_TOKEN_FILE="+tokens)
	var ports []string
	for documented, variable := range demoPorts {
		free, err := childproc.FreePort(t.Context())
		require.NoError(t, err)
		port := strconv.Itoa(free)
		env = append(env, variable+"="+port)
		ports = append(ports, "localhost:"+documented, "localhost:"+port)
	}
	cmd := exec.Command("bash", filepath.Join(c.root, "scripts/run.sh"))
	cmd.Dir, cmd.Env, cmd.Stderr = c.root, env, os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { stopDemo(t, cmd) })

	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		lines := bufio.NewScanner(out)
		for lines.Scan() { // to the end, so that the demo never waits for a reader
			if strings.HasPrefix(lines.Text(), "Ready:") {
				ready <- lines.Text()
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	select {
	case line := <-ready:
		require.NotEmpty(t, line, "the demo ended before it was ready")
	case <-ctx.Done():
		require.Fail(t, "the demo did not become ready")
	}
	box := *c.box
	box.env = append(slices.Clone(box.env), "TOKEN="+demoToken)
	box.rewrite = strings.NewReplacer(ports...)
	return &box
}

// stopDemo does what Ctrl-C does.
func stopDemo(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	require.NoError(t, cmd.Wait(), "the demo did not end well after Ctrl-C")
}
