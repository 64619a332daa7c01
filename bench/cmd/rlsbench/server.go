package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// server is a process that answers rate limit calls.
type server struct {
	name, addr string
	cmd        *exec.Cmd
}

// pair is what is compared.
type pair struct{ floor, ours *server }

// stopTimeout is how long a server has to end when told so.
const stopTimeout = 5 * time.Second

// start builds and starts both servers. binary, if not empty, is an envoy-rls built before. The returned func stops them.
func start(ctx context.Context, binary string, stderr io.Writer) (pair, func(), error) {
	var p pair
	bench, err := moduleDir()
	if err != nil {
		return p, nil, err
	}
	tmp, err := os.MkdirTemp("", "rlsbench")
	if err != nil {
		return p, nil, err
	}
	stop := func() {
		for _, s := range []*server{p.ours, p.floor} {
			if s != nil {
				s.stop()
			}
		}
		_ = os.RemoveAll(tmp) // a leftover in the temporary folder harms nobody
	}
	if err := p.start(ctx, bench, tmp, binary, stderr); err != nil {
		stop()
		return p, nil, err
	}
	return p, stop, nil
}

func (p *pair) start(ctx context.Context, bench, tmp, binary string, stderr io.Writer) error {
	floor := filepath.Join(tmp, "floor")
	if err := build(ctx, bench, floor, "./cmd/floor", stderr); err != nil {
		return err
	}
	if binary == "" {
		binary = filepath.Join(tmp, "envoy-rls")
		if err := build(ctx, filepath.Dir(bench), binary, "./cmd/envoy-rls", stderr); err != nil {
			return err
		}
	}
	var err error
	if p.floor, err = launch("floor", stderr, floor); err != nil {
		return err
	}
	p.ours, err = launch("envoy-rls", stderr, binary, "serve", "--store", "memory", "--log-level", "warn",
		"--policies", filepath.Join(bench, "policies.yaml"),
		"--admin-addr", "127.0.0.1:0", "--debug-addr", "", "--drain-delay", "0s")
	return err
}

// moduleDir is the folder of this module, which holds this source file's folder's parent's.
func moduleDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("no path of the source is known")
	}
	dir := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(dir, "policies.yaml")); err != nil {
		return "", fmt.Errorf("run with go run from the repository: %w", err)
	}
	return dir, nil
}

func build(ctx context.Context, dir, out, pkg string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", out, pkg)
	cmd.Dir, cmd.Stderr = dir, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w", pkg, err)
	}
	return nil
}

// launch starts a server on a free port of loopback.
func launch(name string, stderr io.Writer, binary string, args ...string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, append(args, "--grpc-addr", addr)...)
	cmd.Stderr = stderr
	cmd.Env = withoutTuning(os.Environ())
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &server{name: name, addr: addr, cmd: cmd}, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// withoutTuning leaves out what would make a server run other than it does by default.
func withoutTuning(env []string) []string {
	var kept []string
	for _, e := range env {
		switch name, _, _ := strings.Cut(e, "="); {
		case name == "GOGC", name == "GOMEMLIMIT", name == "GODEBUG", strings.HasPrefix(name, "ENVOY_RLS_"):
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

// stop ends the process, in peace if it can.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	kill := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	_ = s.cmd.Wait() // ended by a signal, which is an error to Wait
}

// cpu is the CPU time that the server has spent.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of %s (Linux only): %w", s.name, err)
	}
	return parseStat(string(stat))
}
