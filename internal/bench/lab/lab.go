// Package lab runs what a benchmark compares: the service, a server that decides nothing, and Redis, each a process of its own; and it measures what
// they use. It also measures servers that somebody else runs, as far as this machine can tell.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// Service says how to start an envoy-rls.
type Service struct {
	Name     string // of the side
	Binary   string
	Policies string   // path
	Args     []string // further flags of serve
	Redis    *Redis   // nil: buckets in memory
	Dir      string   // for its log
}

// startTimeout is how long a server may take to come up.
const startTimeout = 60 * time.Second

// Start starts the service and returns when it is ready. With a Redis its deadline is 1 s, so that no call ends by the failure mode, which would
// look cheap; later flags in Args win. Another program may take a port before the service does: then others are tried.
func (s Service) Start(ctx context.Context) (*Side, error) {
	for try := 1; ; try++ {
		side, err := s.start(ctx)
		if err == nil || try == 3 || !strings.Contains(err.Error(), "address already in use") {
			return side, err
		}
	}
}

func (s Service) start(ctx context.Context) (*Side, error) {
	side := &Side{Name: s.Name, Redis: s.Redis}
	for _, addr := range []*string{&side.Addr, &side.Admin, &side.Debug} {
		port, err := childproc.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		*addr = "127.0.0.1:" + strconv.Itoa(port)
	}
	args := []string{
		"serve", "--log-level", "warn", "--policies", s.Policies, "--drain-delay", "0s",
		"--grpc-addr", side.Addr, "--admin-addr", side.Admin, "--debug-addr", side.Debug,
	}
	if s.Redis == nil {
		args = append(args, "--store", "memory")
	} else {
		args = append(args, "--store", "redis", "--store-timeout", "1s")
		for _, u := range s.Redis.URLs() {
			args = append(args, "--redis-url", u)
		}
	}
	return side, side.start(ctx, s.Dir, s.Binary, append(args, s.Args...), "http://"+side.Admin+"/readyz")
}

// StartFloor starts the server that decides nothing: a program that takes --grpc-addr after args.
func StartFloor(ctx context.Context, dir, binary string, args ...string) (*Side, error) {
	port, err := childproc.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	side := &Side{Name: "floor", Addr: "127.0.0.1:" + strconv.Itoa(port)}
	return side, side.start(ctx, dir, binary, append(args, "--grpc-addr", side.Addr), "")
}

// start starts the process. ready is a page that says 200 once it is; empty: whoever dials it waits.
func (s *Side) start(ctx context.Context, dir, binary string, args []string, ready string) error {
	s.log = filepath.Join(dir, strings.ReplaceAll(s.Name, " ", "-")+"-"+strings.ReplaceAll(s.Addr, ":", "-")+".log")
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = WithoutTuning(os.Environ()), log, log
	s.process, err = childproc.Start(cmd)
	if err := errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	s.Pid = s.process.Pid()
	if ready == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if page, err := get(ctx, ready); err == nil {
			return page.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing tells that it has come up
		case <-s.process.Done():
			return fmt.Errorf("%s has ended; its last lines:\n%s", s.Name, s.lastLines())
		case <-ctx.Done():
			s.Stop()
			return fmt.Errorf("%s does not come up: %w; its last lines:\n%s", s.Name, ctx.Err(), s.lastLines())
		}
	}
}

func (s *Side) lastLines() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-10):], "\n")
}

// WithoutTuning leaves out of an environment what would make a server run other than it does by default.
func WithoutTuning(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "GOGC" || name == "GOMEMLIMIT" || name == "GODEBUG" || strings.HasPrefix(name, "ENVOY_RLS_")
	})
}

func sortedByAddr(nodes []NodeUse) []NodeUse {
	slices.SortFunc(nodes, func(a, b NodeUse) int { return cmp.Compare(a.Addr, b.Addr) })
	return nodes
}
