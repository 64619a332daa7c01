package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
)

// lineup is the programs and servers that are compared. What a row does not need is not built, nor started.
type lineup struct {
	options
	limits map[string]limits
	stderr io.Writer

	module   string            // folder of this module
	tmp      string            // for what is built and written
	binaries map[string]string // paths, by name of the program or variant
	floor    *lab.Side
	stores   map[string]*lab.Redis
}

func newLineup(o options, stderr io.Writer) (*lineup, error) {
	l := &lineup{options: o, stderr: stderr, binaries: map[string]string{}, stores: map[string]*lab.Redis{}}
	var err error
	if l.limits, err = readBars(barsFile); err != nil {
		return nil, err
	}
	if l.module, err = moduleDir(); err != nil {
		return nil, err
	}
	if o.server != "" {
		l.binaries[envoyRLS] = o.server
	}
	l.tmp, err = os.MkdirTemp("", "rlsbench")
	return l, err
}

func (l *lineup) close() {
	if l.floor != nil {
		l.floor.Stop()
	}
	for _, r := range l.stores {
		r.Close()
	}
	_ = os.RemoveAll(l.tmp) // a leftover in the temporary folder harms nobody
}

// moduleDir is the folder of this module, which holds this source file's folder's parent's.
func moduleDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("no path of the source is known")
	}
	dir := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("run with go run from the repository: %w", err)
	}
	return dir, nil
}

// The programs, beside the variants.
const (
	envoyRLS     = "envoy-rls"
	floorProgram = "floor"
)

// binary builds a program or variant once.
func (l *lineup) binary(ctx context.Context, name string) (string, error) {
	if path, built := l.binaries[name]; built {
		return path, nil
	}
	dir, pkg, overlay := filepath.Dir(l.module), "./cmd/envoy-rls", ""
	switch name {
	case floorProgram:
		dir, pkg = l.module, "./cmd/floor"
	case envoyRLS:
	default:
		var err error
		if overlay, err = variants()[name].overlay(dir, l.tmp); err != nil {
			return "", fmt.Errorf("variant %s: %w", name, err)
		}
	}
	path := filepath.Join(l.tmp, strings.ReplaceAll(name, " ", "-"))
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-overlay", overlay, "-o", path, pkg)
	cmd.Dir, cmd.Stderr = dir, l.stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build has it
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build %s: %w", name, err)
	}
	l.binaries[name] = path
	return path, nil
}

// startFloor starts the server that decides nothing, once.
func (l *lineup) startFloor(ctx context.Context) error {
	if l.floor != nil {
		return nil
	}
	binary, err := l.binary(ctx, floorProgram)
	if err != nil {
		return err
	}
	l.floor, err = lab.StartFloor(ctx, l.tmp, binary)
	return err
}

// redis gives the servers of a store, started once, without any key; nil for buckets in memory.
func (l *lineup) redis(ctx context.Context, store string) (*lab.Redis, error) {
	if store == storeMemory {
		return nil, nil
	}
	if l.stores[store] == nil {
		dir := filepath.Join(l.tmp, store)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		r, err := lab.StartRedis(ctx, dir, store == storeCluster)
		if err != nil {
			return nil, err
		}
		l.stores[store] = r
	}
	return l.stores[store], l.stores[store].Empty(ctx)
}

// start starts envoy-rls or a variant with a scenario's policies and no buckets.
func (l *lineup) start(ctx context.Context, name, store string, s *bench.Scenario) (*lab.Side, error) {
	binary, err := l.binary(ctx, name)
	if err != nil {
		return nil, err
	}
	redis, err := l.redis(ctx, store)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(l.tmp, "policies-*.yaml")
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteString(s.Policies); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	service := lab.Service{Name: name, Binary: binary, Policies: file.Name(), Args: variants()[name].args, Redis: redis, Dir: l.tmp}
	return service.Start(ctx)
}

// dial connects to a server as the options say.
func (l *lineup) dial(ctx context.Context, s *lab.Side) (*bench.Client, error) {
	c, err := bench.Dial(ctx, bench.Target{Addr: s.Addr, Connections: l.connections})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return c, nil
}
