package redistest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestStandalone(t *testing.T) {
	s := redistest.StartStandalone(t)
	require.Equal(t, "redis://"+s.Addr(), s.URL())
	_, err := s.Do(t.Context(), "SET", "key", "a value\r\nof two lines")
	require.NoError(t, err)
	got, err := s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Equal(t, "a value\r\nof two lines", got)

	_, err = s.Do(t.Context(), "INCR", "key")
	require.ErrorAs(t, err, new(redistest.ReplyError))

	pid := s.Pid()
	require.NoError(t, s.Restart(t.Context()))
	require.NotEqual(t, pid, s.Pid())
	got, err = s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Nil(t, got, "a restart keeps no data")
}

func TestPause(t *testing.T) {
	s := redistest.StartStandalone(t)
	require.NoError(t, s.Pause())
	require.False(t, s.Running())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Do(ctx, "PING")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, s.Resume())
	_, err = s.Do(t.Context(), "PING")
	require.NoError(t, err)

	require.NoError(t, s.Pause())
	s.Kill() // a paused one, too
	require.Error(t, s.Resume())
}

func TestPasswordUserAndSocket(t *testing.T) {
	s := redistest.StartStandalone(t, redistest.Options{
		Password:   `p@ss :/,#%"'\word é`,
		Config:     []string{"user ann on >secret ~rl:* &* +@all", "maxmemory 10mb"},
		UnixSocket: true,
	})
	got, err := s.Do(t.Context(), "CONFIG", "GET", "maxmemory")
	require.NoError(t, err)
	require.Equal(t, []any{"maxmemory", "10485760"}, got)
	_, err = s.Do(t.Context(), "AUTH", "ann", "secret")
	require.NoError(t, err)
	requireReplyError(t, s, "WRONGPASS", "AUTH", "ann", "wrong")

	conn, err := net.Dial("unix", s.Socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = fmt.Fprint(conn, "PING\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "NOAUTH")
}

func TestTLS(t *testing.T) {
	for _, clientCerts := range []bool{false, true} {
		t.Run(fmt.Sprintf("clients need a certificate: %v", clientCerts), func(t *testing.T) {
			s := redistest.StartStandalone(t, redistest.Options{TLS: true, ClientCerts: clientCerts})
			require.Equal(t, "rediss://"+s.Addr(), s.URL())
			got, err := s.Do(t.Context(), "PING")
			require.NoError(t, err)
			require.Equal(t, "PONG", got)
			require.Equal(t, clientCerts, refusedWithoutCertificate(t, s))
		})
	}
}

func refusedWithoutCertificate(t *testing.T, s *redistest.Server) bool {
	config, err := s.Files.ClientConfig()
	require.NoError(t, err)
	config.Certificates = nil
	conn, err := tls.Dial("tcp", s.Addr(), config)
	if err != nil {
		return true
	}
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	// TLS 1.3 tells a client of its refusal only after the handshake: as an alert, or by the end of the connection.
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return true
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	return err != nil
}

func TestTLSCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Options{Primaries: 3, ReplicasEach: 1, TLS: true, ClientCerts: true})
	require.Len(t, c.Nodes, 6)
}

func TestMovingClock(t *testing.T) {
	s := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	for _, offset := range []time.Duration{0, 5 * time.Second, -time.Hour, 24 * time.Hour, 1500 * time.Millisecond, 0} {
		require.NoError(t, s.SetClock(offset))
		before := time.Now()
		got, err := s.Time(t.Context())
		require.NoError(t, err)
		require.False(t, got.Before(before.Add(offset).Truncate(time.Microsecond)), "at offset %v", offset)
		require.False(t, got.After(time.Now().Add(offset)), "at offset %v", offset)
		inScript, err := s.Do(t.Context(), "EVAL", "return redis.call('TIME')[1]", 0)
		require.NoError(t, err)
		require.Contains(t, []any{fmt.Sprint(got.Unix()), fmt.Sprint(got.Unix() + 1)}, inScript, "scripts see the same time")
	}
	require.NoError(t, s.SetClock(-time.Hour))
	require.NoError(t, s.Restart(t.Context()))
	got, err := s.Time(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(-time.Hour), got, time.Minute, "a restart keeps the offset")
}

func TestClockExpiresKeys(t *testing.T) {
	s := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	_, err := s.Do(t.Context(), "SET", "key", "value", "EX", 100)
	require.NoError(t, err)
	require.NoError(t, s.SetClock(99*time.Second))
	got, err := s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Equal(t, "value", got)
	require.NoError(t, s.SetClock(101*time.Second))
	got, err = s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Nil(t, got)

	require.Error(t, redistest.StartStandalone(t).SetClock(time.Second), "without MovingClock")
}

func TestStats(t *testing.T) {
	s := redistest.StartStandalone(t)
	require.NoError(t, s.ResetStats(t.Context()))
	for range 3 {
		_, err := s.Do(t.Context(), "EVAL", "local x = 0 for i = 1, 100000 do x = x + i end return x", 0)
		require.NoError(t, err)
	}
	stats, err := s.CommandStats(t.Context())
	require.NoError(t, err)
	eval := stats["eval"]
	require.EqualValues(t, 3, eval.Calls)
	require.Positive(t, eval.Usec)
	require.InDelta(t, float64(eval.Usec)/3, eval.UsecPerCall, 0.01)
	cpu, err := s.CPU(t.Context())
	require.NoError(t, err)
	require.Positive(t, cpu)
}

func TestStartFailures(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	taken := redistest.StartStandalone(t)
	tests := []struct {
		name string
		o    redistest.Options
		want string
	}{
		{"no directory", redistest.Options{}, "directory"},
		{"taken port", redistest.Options{Dir: t.TempDir(), Ports: []int{taken.Port}}, "in use"},
		{"bad configuration", redistest.Options{Dir: t.TempDir(), Config: []string{"no-such-setting 1"}}, "no-such-setting"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := redistest.NewStandalone(ctx, tt.o)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// childEnv makes TestServersDieWithTheirStarter the process that starts a server and waits to be killed.
const childEnv = "REDISTEST_CHILD"

func TestServersDieWithTheirStarter(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		fmt.Printf("addr %s\n", redistest.StartStandalone(t).Addr())
		select {}
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+t.TempDir()) // it is killed before it removes its own
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	addr := ""
	for addr == "" && lines.Scan() {
		addr, _ = strings.CutPrefix(lines.Text(), "addr ")
	}
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server lives on")
}
