package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is a log line of the service.
type line struct {
	Msg, Admin, GRPC string
}

// TestServe runs the service as a process until it is told to stop.
func TestServe(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "serve", "--grpc-addr", "127.0.0.1:0", "--debug-addr", "", "--log-format", "json")
	cmd.Env = append(os.Environ(), asProgram+"=1", "ENVOY_RLS_POLICIES=testdata/policies.yaml",
		"ENVOY_RLS_ADMIN_ADDR=127.0.0.1:0", "ENVOY_RLS_GRPC_ADDR=not-used", "ENVOY_RLS_DRAIN_DELAY=1ms")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	log := bufio.NewScanner(stderr)
	serving := await(t, log, "serving")
	require.NotEmpty(t, serving.Admin)
	require.NotEmpty(t, serving.GRPC)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	await(t, log, "stopped")
	_, err = io.Copy(io.Discard, stderr)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "exit code 0")
}

// await reads the log up to a message.
func await(t *testing.T, log *bufio.Scanner, message string) line {
	t.Helper()
	for log.Scan() {
		var l line
		require.NoError(t, json.Unmarshal(log.Bytes(), &l), log.Text())
		if l.Msg == message {
			return l
		}
	}
	require.FailNow(t, "the log ended", "want %q, error %v", message, log.Err())
	return line{}
}
