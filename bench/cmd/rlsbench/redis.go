package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// usage is what a Redis has done since it was started.
type usage struct {
	cpu     time.Duration
	scripts int // runs
	reads   int // from its connections
}

func (u usage) since(before usage) usage {
	return usage{u.cpu - before.cpu, u.scripts - before.scripts, u.reads - before.reads}
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis(ctx context.Context, dir string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	s := &server{name: "redis-server", addr: addr, cmd: exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port,
		"--save", "", "--appendonly", "no", "--dir", dir, "--loglevel", "warning")}
	var log bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		if _, err = s.redisUsage(ctx); err == nil {
			return s, nil
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing tells that it has come up
		case <-ctx.Done():
			s.stop()
			return nil, fmt.Errorf("%w; it says: %s", err, log.String())
		}
	}
}

// redisUsage asks a Redis what it has done.
func (s *server) redisUsage(ctx context.Context) (usage, error) {
	info, err := s.info(ctx)
	if err != nil {
		return usage{}, fmt.Errorf("redis-server: %w", err)
	}
	u, err := parseInfo(info)
	if err != nil {
		return usage{}, err
	}
	u.cpu, err = s.cpu()
	return u, err
}

// info asks for the sections stats and commandstats.
func (s *server) info(ctx context.Context) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // all is read
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "INFO stats commandstats\r\n"); err != nil {
		return "", err
	}
	reply := bufio.NewReader(conn)
	head, err := reply.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return "", fmt.Errorf("reply %q to INFO", head)
	}
	body := make([]byte, size)
	_, err = io.ReadFull(reply, body)
	return string(body), err
}

// parseInfo finds the counters in the text of INFO. A server that has run no script yet does not list them.
func parseInfo(info string) (u usage, err error) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "total_reads_processed":
			u.reads, err = strconv.Atoi(value)
		case "cmdstat_evalsha":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			u.scripts, err = strconv.Atoi(calls)
		}
		if err != nil {
			return u, fmt.Errorf("%s in Redis's INFO: %w", name, err)
		}
	}
	return u, nil
}
