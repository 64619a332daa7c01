package e2e_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// freePortsInARow finds the first of count free ports, each with a free one 10000 above it.
func freePortsInARow(t *testing.T, count int) int {
	t.Helper()
	for range 100 {
		first, err := harness.FreePort()
		require.NoError(t, err)
		free := first+count < 22_000 // so that the upper ones, too, are below those of outgoing connections
		for port := first; free && port < first+count; port++ {
			free = harness.CheckPort(port) == nil && harness.CheckPort(port+10_000) == nil
		}
		if free {
			return first
		}
	}
	t.Fatal("no ports in a row are free")
	return 0
}

// TestClusterProgram is `make cluster`: it says how to use the cluster, outlives the end of a node, and leaves nothing.
func TestClusterProgram(t *testing.T) {
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "cluster")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/cluster").CombinedOutput()
	require.NoError(t, err, "%s", out)
	first := freePortsInARow(t, 8)

	printed, printer := io.Pipe()
	p, err := harness.StartProcess("cluster", exec.Command(program, "--port", strconv.Itoa(first)), printer)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = printed.Close()
		p.Stop(patience)
	})
	d := &demo{Process: p, lines: bufio.NewScanner(printed)}
	for i := range 8 {
		d.ports = append(d.ports, first+i, first+i+10_000)
	}
	welcome := d.readUntil(t, welcomeEnd)
	require.Contains(t, welcome, " --redis-url redis://127.0.0.1:"+strconv.Itoa(first))
	require.Equal(t, 4, strings.Count(welcome, "zone a"))
	require.Equal(t, 4, strings.Count(welcome, "zone b"))

	taken, err := exec.Command(program, "--port", strconv.Itoa(first)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(taken), "taken by other programs")
	require.Contains(t, string(taken), strconv.Itoa(first)+", "+strconv.Itoa(first+10_000))

	line := regexp.MustCompile(`(127\.0\.0\.1:\d+) +zone b +pid (\d+) +slots`).FindStringSubmatch(welcome)
	require.NotNil(t, line, welcome)
	pid, err := strconv.Atoi(line[2])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	d.readUntil(t, "^node "+regexp.QuoteMeta(line[1])+" has ended$")

	require.NoError(t, p.Signal(os.Interrupt))
	d.readUntil(t, "^stopping$")
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, code, p.Obituary())
	d.requireGone(t)
}
