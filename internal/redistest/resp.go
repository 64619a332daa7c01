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
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(replyTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
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
