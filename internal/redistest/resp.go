package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ReplyError is an error that Redis replied, such as "MOVED 3999 127.0.0.1:6381".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// roundTrip sends one command on conn and reads its reply: a string, an int64, a []any or nil. Elements of an array may be a ReplyError.
func roundTrip(ctx context.Context, conn net.Conn, in *bufio.Reader, args []any) (any, error) {
	if err := conn.SetDeadline(deadline(ctx)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(encode(args)); err != nil {
		return nil, err
	}
	reply, err := readReply(in)
	if err != nil {
		return nil, err
	}
	if e, ok := reply.(ReplyError); ok {
		return nil, e
	}
	return reply, nil
}

// Conn is one connection to a server, for one caller at a time. Make one with [Server.Dial].
type Conn struct {
	net.Conn
	in *bufio.Reader
}

// Dial connects to the server, with its password if it has one.
func (s *Server) Dial(ctx context.Context) (*Conn, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn, bufio.NewReader(conn)}
	if s.o.Password != "" {
		if _, err := roundTrip(ctx, conn, c.in, []any{"AUTH", s.o.Password}); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// Pipeline sends commands at once and reads the reply to each: a string, an int64, a []any, nil or a [ReplyError]. Without a deadline in ctx it
// waits 10 s for all.
func (c *Conn) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	var all []byte
	for _, args := range commands {
		all = append(all, encode(args)...)
	}
	if err := c.SetDeadline(deadline(ctx)); err != nil {
		return nil, err
	}
	if _, err := c.Write(all); err != nil {
		return nil, err
	}
	replies := make([]any, 0, len(commands))
	for range commands {
		reply, err := readReply(c.in)
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// deadline is that of ctx, or one for a single reply.
func deadline(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(replyTimeout)
}

func encode(args []any) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		text := fmt.Sprint(arg)
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(text), text)
	}
	return b
}

func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("malformed reply %q", line)
	}
	text := line[1 : len(line)-2]
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		return readBulk(in, text)
	case '*':
		return readArray(in, text)
	}
	return nil, fmt.Errorf("malformed reply %q", line)
}

func readBulk(in *bufio.Reader, length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err // -1: nil
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(in, b)
	return string(b[:n]), err
}

func readArray(in *bufio.Reader, length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err
	}
	array := make([]any, n)
	for i := range array {
		if array[i], err = readReply(in); err != nil {
			return nil, err
		}
	}
	return array, nil
}

// replyTimeout is for one command whose caller sets no deadline.
const replyTimeout = 10 * time.Second

// pollTimeout is for an event whose waiter sets no deadline.
const pollTimeout = 30 * time.Second

// poll calls check every few milliseconds until it succeeds or ctx ends.
func poll(ctx context.Context, what string, check func() error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pollTimeout)
		defer cancel()
	}
	for {
		err := check()
		if err == nil {
			return nil
		}
		var fatal fatalError
		if errors.As(err, &fatal) {
			return fmt.Errorf("%s: %w", what, fatal.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %w", what, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// fatalError is one that waiting does not help; poll gives up at once.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }
