package redistest

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// Connect gives a server that somebody else runs, by its address (host:port) or URL (redis://:password@host:port). It can be asked; to stop or
// restart it is not possible. Nothing is called yet.
func Connect(address string) (*Server, error) {
	s := &Server{}
	if u, err := url.Parse(address); err == nil && u.Scheme == "redis" {
		address = u.Host
		s.o.Password, _ = u.User.Password()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s is neither host:port nor redis://host:port", redacted(address))
	}
	if s.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port %q of a Redis: want a number", port)
	}
	s.Host = host
	return s, nil
}

// redacted hides the password of what may be a URL.
func redacted(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "what was given"
}
