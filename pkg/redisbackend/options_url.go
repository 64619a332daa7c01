package redisbackend

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is what the URLs say.
type target struct {
	endpoint
	addresses []string
}

// endpoint is what all URLs must agree in.
type endpoint struct {
	network            string // tcp or unix
	tls                bool
	username, password string
	db                 int
	master             string // Sentinel's name for the primary
	sentinelUsername   string
	sentinelPassword   string
}

// parseURLs never quotes a URL, or what is in it, in an error: any part of one that is not understood may be a password.
func parseURLs(urls []string) (target, error) {
	if len(urls) == 0 {
		return target{}, errors.New("no URL: want redis://host:port")
	}
	var t target
	for i, u := range urls {
		e, address, err := parseURL(u)
		switch {
		case err != nil:
			return target{}, fmt.Errorf("URL %d: %w", i+1, err)
		case i > 0 && e != t.endpoint:
			return target{}, fmt.Errorf("URL %d differs from the first in more than the address", i+1)
		}
		t.endpoint = e
		t.addresses = append(t.addresses, address)
	}
	return t, nil
}

func parseURL(u string) (e endpoint, address string, err error) {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return e, "", errors.New("want redis://, rediss:// or unix://")
	}
	e.network = "tcp"
	switch scheme {
	case "redis":
	case "rediss":
		e.tls = true
	case "unix":
		e.network = "unix"
	default:
		return e, "", errors.New("unknown scheme: want redis://, rediss:// or unix://")
	}
	// The last @ is the right one: a host has none, a password may.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := e.setUser(rest[:at]); err != nil {
			return e, "", err
		}
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	if e.network == "unix" {
		address = rest
		if !strings.HasPrefix(address, "/") {
			return e, "", errors.New("want an absolute path after unix://")
		}
	} else if address, err = e.setAddress(rest); err != nil {
		return e, "", err
	}
	return e, address, e.setQuery(query)
}

func (e *endpoint) setUser(info string) (err error) {
	user, password, _ := strings.Cut(info, ":")
	if e.username, err = url.PathUnescape(user); err == nil {
		e.password, err = url.PathUnescape(password)
	}
	if err != nil {
		return errors.New("a % in the user name or password that begins no escape: write it %25")
	}
	return nil
}

func (e *endpoint) setAddress(rest string) (string, error) {
	hostPort, db, _ := strings.Cut(rest, "/")
	if db != "" {
		if err := e.setDB(db); err != nil {
			return "", err
		}
	}
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil { // no port, then
		host, port = strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]"), "6379"
		if strings.Contains(host, ":") && !strings.HasPrefix(hostPort, "[") {
			return "", errors.New("want host:port, an IPv6 address in brackets")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("want a port from 1 to 65535")
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

func (e *endpoint) setDB(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("want a database number after the slash")
	}
	e.db = int(n)
	return nil
}

func (e *endpoint) setQuery(text string) error {
	query, err := url.ParseQuery(text)
	if err != nil {
		return errors.New("what stands after the question mark is not name=value&…")
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "db":
			if err := e.setDB(value); err != nil {
				return err
			}
		case "master_name":
			e.master = value
		case "sentinel_username":
			e.sentinelUsername = value
		case "sentinel_password":
			e.sentinelPassword = value
		default:
			return errors.New("unknown parameter: want db, master_name, sentinel_username or sentinel_password")
		}
	}
	return nil
}
