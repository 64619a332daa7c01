package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Request is one HTTP/1.1 request, written as it is: no cleaning of the target, no check of the header values.
type Request struct {
	Method, Target string
	Header         []string // lines of "name: value"
	Body           string
}

// Response is the answer to a Request.
type Response struct {
	Status int
	Header http.Header
	Fields []string // the header lines as received, without their line ends
	Body   string
}

// Field returns the lines of the header field name as they were received, without regard to case.
func (r *Response) Field(name string) []string {
	var lines []string
	for _, line := range r.Fields {
		if n, _, _ := strings.Cut(line, ":"); strings.EqualFold(n, name) {
			lines = append(lines, line)
		}
	}
	return lines
}

// String gives the response as a script reads it: status line, header lines with lower-case names, an empty line, the body.
func (r *Response) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", r.Status, http.StatusText(r.Status))
	for _, line := range r.Fields {
		name, value, _ := strings.Cut(line, ":")
		fmt.Fprintf(&b, "%s:%s\n", strings.ToLower(name), value)
	}
	fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(r.Body, "\n"))
	return b.String()
}

// Client is a client on one connection, which it opens when it needs one. It is not safe for concurrent use.
type Client struct {
	Addr string // host:port
	From string // the client's own address; empty: any

	conn net.Conn
	in   *bufio.Reader
	raw  bytes.Buffer // what was read since the request was written
}

// responseTimeout is for one request. A machine that is busy with other tests takes its time.
const responseTimeout = 30 * time.Second

// Do sends one request and reads its answer. After an error the next call opens a new connection.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	resp, err := c.do(ctx, r)
	if err != nil {
		c.Close()
	}
	return resp, err
}

// Close closes the connection, if there is one.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *Client) do(ctx context.Context, r Request) (*Response, error) {
	if err := c.dial(ctx); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(responseTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c.raw.Reset()
	if _, err := c.conn.Write(r.bytes()); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, &http.Request{Method: r.Method})
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if resp.Close {
		c.Close()
	}
	head, _, _ := strings.Cut(c.raw.String(), "\r\n\r\n")
	return &Response{Status: resp.StatusCode, Header: resp.Header, Fields: strings.Split(head, "\r\n")[1:], Body: string(body)}, nil
}

func (c *Client) dial(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	var dialer net.Dialer
	if c.From != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.From)}
	}
	conn, err := dialer.DialContext(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	c.conn = conn
	c.in = bufio.NewReader(io.TeeReader(conn, &c.raw))
	return nil
}

func (r Request) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nhost: edge.test\r\n", r.Method, r.Target)
	for _, line := range r.Header {
		b.WriteString(line + "\r\n")
	}
	if r.Body != "" || r.Method == http.MethodPost {
		b.WriteString("content-length: " + strconv.Itoa(len(r.Body)) + "\r\n")
	}
	b.WriteString("\r\n" + r.Body)
	return b.Bytes()
}
