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

// server is a process that answers rate limit calls, or a Redis.
type server struct {
	name, addr string
	cmd        *exec.Cmd
	redis      *server // where it keeps its buckets, if not in its own memory
	variant    bool    // of envoy-rls
}

// stopTimeout is how long a server has to end when told so.
const stopTimeout = 5 * time.Second

// start builds and starts the floor, envoy-rls and, with store redis, a Redis and the variants of envoy-rls: in this order, without
// the Redis. binary, if not empty, is an envoy-rls built before. The returned func stops them all.
func start(ctx context.Context, store, binary string, stderr io.Writer) ([]*server, func(), error) {
	bench, err := moduleDir()
	if err != nil {
		return nil, nil, err
	}
	tmp, err := os.MkdirTemp("", "rlsbench")
	if err != nil {
		return nil, nil, err
	}
	f := &fleet{bench: bench, tmp: tmp, stderr: stderr}
	if err := f.start(ctx, store, binary); err != nil {
		f.stop()
		return nil, nil, err
	}
	return f.servers, f.stop, nil
}

// fleet is the servers that are compared.
type fleet struct {
	bench, tmp string // folders: of this module, and for what is built
	stderr     io.Writer

	servers []*server
	redis   *server
}

func (f *fleet) stop() {
	for _, s := range f.servers {
		s.stop()
	}
	if f.redis != nil {
		f.redis.stop()
	}
	_ = os.RemoveAll(f.tmp) // a leftover in the temporary folder harms nobody
}

func (f *fleet) start(ctx context.Context, store, binary string) error {
	floor := filepath.Join(f.tmp, "floor")
	if err := build(ctx, f.bench, floor, "./cmd/floor", "", f.stderr); err != nil {
		return err
	}
	if err := f.launch("floor", floor); err != nil {
		return err
	}
	if binary == "" {
		binary = filepath.Join(f.tmp, "envoy-rls")
		if err := build(ctx, filepath.Dir(f.bench), binary, "./cmd/envoy-rls", "", f.stderr); err != nil {
			return err
		}
	}
	if store == storeMemory {
		return f.launch("envoy-rls", binary, f.serve("--store", "memory")...)
	}
	var err error
	if f.redis, err = startRedis(ctx, f.tmp); err != nil {
		return err
	}
	if err := f.launch("envoy-rls", binary, f.serve(f.onRedis()...)...); err != nil {
		return err
	}
	return f.startVariants(ctx)
}

func (f *fleet) startVariants(ctx context.Context) error {
	root := filepath.Dir(f.bench)
	for i, v := range variants() {
		overlay, err := v.overlay(root, f.tmp)
		if err != nil {
			return fmt.Errorf("variant %s: %w", v.name, err)
		}
		binary := filepath.Join(f.tmp, fmt.Sprintf("variant-%d", i))
		if err := build(ctx, root, binary, "./cmd/envoy-rls", overlay, f.stderr); err != nil {
			return fmt.Errorf("variant %s: %w", v.name, err)
		}
		if err := f.launch(v.name, binary, f.serve(append(f.onRedis(), v.args...)...)...); err != nil {
			return err
		}
		f.servers[len(f.servers)-1].variant = true
	}
	return nil
}

// onRedis are the flags for the store. No call may end by the failure mode, which would look cheap.
func (f *fleet) onRedis() []string {
	return []string{"--store", "redis", "--redis-url", "redis://" + f.redis.addr, "--store-timeout", "1s"}
}

func (f *fleet) serve(store ...string) []string {
	return append([]string{
		"serve", "--log-level", "warn", "--policies", filepath.Join(f.bench, "policies.yaml"),
		"--admin-addr", "127.0.0.1:0", "--debug-addr", "", "--drain-delay", "0s",
	}, store...)
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

func build(ctx context.Context, dir, out, pkg, overlay string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", out, pkg)
	cmd.Dir, cmd.Stderr = dir, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w", pkg, err)
	}
	return nil
}

// launch starts a server on a free port of loopback.
func (f *fleet) launch(name, binary string, args ...string) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, append(args, "--grpc-addr", addr)...)
	cmd.Stderr = f.stderr
	cmd.Env = withoutTuning(os.Environ())
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s := &server{name: name, addr: addr, cmd: cmd}
	if name != "floor" {
		s.redis = f.redis
	}
	f.servers = append(f.servers, s)
	return nil
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

// usage is the CPU time that the server has spent, and what its Redis has done, if it has one.
func (s *server) usage(ctx context.Context) (cpu time.Duration, store usage, err error) {
	if cpu, err = s.cpu(); err != nil || s.redis == nil {
		return cpu, usage{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	store, err = s.redis.redisUsage(ctx)
	return cpu, store, err
}

// cpu is the CPU time that the server has spent.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of %s (Linux only): %w", s.name, err)
	}
	return parseStat(string(stat))
}
