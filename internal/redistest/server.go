package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// Server is one redis-server process. Its methods are safe for concurrent use.
type Server struct {
	Host    string // an address: 127.0.0.1, unless Options.Network says otherwise
	Port    int
	BusPort int    // of a cluster's node, else 0
	ID      string // of a cluster's node, else empty
	Zone    string // of a cluster's node: "a" or "b"
	Socket  string // path of the unix socket, with Options.UnixSocket
	Files   *Certificates

	o       Options
	dir     string
	fixed   bool // the port was asked for
	sentry  bool // runs as a sentinel
	clock   *clock
	mu      sync.Mutex
	process *childproc.Process // nil: not started
	paused  bool
	away    bool // cut off
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.Host + ":" + strconv.Itoa(s.Port) }

// URL returns the server's redis:// or rediss:// URL, with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.o.TLS {
		u.Scheme = "rediss"
	}
	if s.o.Password != "" {
		u.User = url.UserPassword("", s.o.Password)
	}
	return u.String()
}

// Do runs one command on a connection of its own and returns the reply: a string, an int64, a []any or nil. An error reply is a [ReplyError].
// Without a deadline in ctx it waits 10 s.
func (s *Server) Do(ctx context.Context, args ...any) (any, error) {
	reply, err := s.do(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("redis %s: %v: %w", s.Addr(), args[0], err)
	}
	return reply, nil
}

func (s *Server) do(ctx context.Context, args []any) (any, error) {
	conn, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return roundTrip(ctx, conn, conn.in, args)
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: replyTimeout}
	if !s.o.TLS {
		return dialer.DialContext(ctx, "tcp", s.Addr())
	}
	config, err := s.Files.ClientConfig()
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{NetDialer: &dialer, Config: config}).DialContext(ctx, "tcp", s.Addr())
}

// Running tells whether the process is there, not paused and not cut off.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil && s.process.Running() && !s.paused && !s.away
}

// Pid returns the process id, 0 if the server was never started.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Pid()
}

// Pause stops the process where it is (SIGSTOP): connections stay open, nothing answers.
func (s *Server) Pause() error { return s.signal((*childproc.Process).Pause, true) }

// Resume lets a paused process go on (SIGCONT).
func (s *Server) Resume() error { return s.signal((*childproc.Process).Resume, false) }

func (s *Server) signal(send func(*childproc.Process) error, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || !s.process.Running() {
		return fmt.Errorf("redis %s is not running", s.Addr())
	}
	if err := send(s.process); err != nil {
		return err
	}
	s.paused = paused
	return nil
}

// Kill ends the process at once (SIGKILL), and with it all data. It returns when the process is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Kill()
	}
	s.paused = false
}

// Restart kills the process if it runs and starts it again on the same port, empty. It returns when the server answers. A cluster's node
// comes back as a part of its cluster; see [Cluster.WaitReady].
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	return s.launch(ctx)
}

const logFile = "redis.log"

// Log returns the last lines of what the server logged.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.path(logFile))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// errPortTaken is a server's end because another program took its port first.
var errPortTaken = errors.New("address already in use")

// start starts the server, on free ports unless they are given. Another program may take one before the server does: then it tries others.
func (s *Server) start(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if s.clock != nil {
		if err := s.clock.set(0); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		if err := s.choosePorts(ctx); err != nil {
			return err
		}
		if err := os.WriteFile(s.path("redis.conf"), []byte(s.config()), 0o600); err != nil {
			return err
		}
		err := s.launch(ctx)
		if s.fixed || try == 5 || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

func (s *Server) choosePorts(ctx context.Context) (err error) {
	if s.fixed {
		return nil
	}
	if s.Port, err = childproc.FreePort(ctx); err != nil || s.BusPort == 0 {
		return err
	}
	s.BusPort, err = childproc.FreePort(ctx)
	return err
}

// launch starts the process and waits until it is the one that answers on the port.
func (s *Server) launch(ctx context.Context) error {
	args := []string{s.path("redis.conf")}
	if s.sentry {
		args = append(args, "--sentinel")
	}
	log, err := os.OpenFile(s.path(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(serverBinary, args...)
	if n := s.o.Network; n != nil {
		cmd = n.command(s.Zone, serverBinary, args)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if s.clock != nil {
		cmd.Env = append(os.Environ(), s.clock.environment()...)
	}
	p, err := childproc.Start(cmd)
	if err := errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", serverBinary, err)
	}
	s.mu.Lock()
	s.process, s.paused = p, false
	s.mu.Unlock()
	pid := strconv.Itoa(cmd.Process.Pid)
	err = poll(ctx, "redis "+s.Addr()+" to start", func() error {
		if !p.Running() {
			return fatalError{s.obituary(cmd)}
		}
		info, err := s.Info(ctx, "server")
		if err == nil && info["process_id"] != pid {
			return fmt.Errorf("process %s answers on the port", info["process_id"])
		}
		return err
	})
	if err != nil {
		p.Kill()
	}
	return err
}

func (s *Server) obituary(cmd *exec.Cmd) error {
	log := s.Log()
	cause := errors.New(cmd.ProcessState.String())
	if strings.Contains(strings.ToLower(log), errPortTaken.Error()) || strings.Contains(log, "Failed listening") {
		cause = errPortTaken
	}
	return fmt.Errorf("redis-server ended: %w; its last lines:\n%s", cause, log)
}

// Done is closed when the process that runs now has ended. The server must have been started.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Done()
}
