package lab

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const listening = "0A" // in /proc/net/tcp

// FindProcess gives the id of the process of this machine that listens at addr, host:port. Linux only; processes of other users are found by
// root alone.
func FindProcess(addr string) (int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port of %s: %w", addr, err)
	}
	if !local(host) {
		return 0, fmt.Errorf("%s is not on this machine", addr)
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6, or no Linux
		}
		for _, inode := range listeners(string(text), port) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && sockets[target] {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}
	return 0, fmt.Errorf("no process that may be looked at listens at %s", addr)
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || host == "" || ip != nil && ip.IsLoopback()
}

// listeners gives the inodes of the sockets that listen on a port, from the text of /proc/net/tcp or tcp6.
func listeners(table string, port uint64) []string {
	var inodes []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening {
			continue
		}
		_, hex, found := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); found && err == nil && n == port {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}
