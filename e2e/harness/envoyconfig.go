package harness

import (
	"fmt"
	"strings"
	"time"
)

// EnvoySettings are what a run changes in the Envoy configuration that the project ships. Zero values keep what it says.
type EnvoySettings struct {
	Listen   string   // host:port for clients
	Admin    string   // host:port of Envoy's own pages
	Upstream string   // host:port
	Services []string // host:port of each instance of envoy-rls
	Names    bool     // the hosts are names, which Envoy looks up, and not addresses
	// Timeout is how long Envoy waits for the service. On a machine that is busy with tests the shipped 20 ms would now and then mean
	// that a request is let through unasked.
	Timeout time.Duration
}

// Render returns the configuration with the settings in place. It is plain replacement of the lines below; a line that is not there as
// often as expected is an error, so that neither file can drift from the other.
func (s EnvoySettings) Render(config string) (string, error) {
	type edit struct {
		old, new string
		times    int
	}
	var edits []edit
	replace := func(times int, old, replacement string) { edits = append(edits, edit{old, replacement, times}) }

	for _, at := range []struct{ address, to string }{
		{"{address: 127.0.0.1, port_value: 9901}", s.Admin},
		{"{address: 0.0.0.0, port_value: 10000}", s.Listen},
		{"{address: 127.0.0.1, port_value: 9000}", s.Upstream},
	} {
		if at.to != "" {
			replace(1, at.address, socketAddress(at.to))
		}
	}
	if len(s.Services) > 0 {
		line := "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8081}}}\n"
		var lines strings.Builder
		for _, service := range s.Services {
			lines.WriteString(strings.Replace(line, "{address: 127.0.0.1, port_value: 8081}", socketAddress(service), 1))
		}
		replace(1, line, lines.String())
	}
	if s.Names {
		replace(2, "    type: STATIC\n", "    type: STRICT_DNS\n    dns_lookup_family: V4_ONLY\n")
	}
	if s.Timeout > 0 {
		to := fmt.Sprintf("%.3fs", s.Timeout.Seconds())
		replace(3, "timeout: 0.020s", "timeout: "+to)
		replace(1, "max_interval: 0.020s", "max_interval: "+to)
	}

	for _, e := range edits {
		if got := strings.Count(config, e.old); got != e.times {
			return "", fmt.Errorf("the Envoy configuration has %q %d times, want %d", e.old, got, e.times)
		}
		config = strings.ReplaceAll(config, e.old, e.new)
	}
	return config, nil
}

func socketAddress(hostport string) string {
	i := strings.LastIndexByte(hostport, ':')
	return fmt.Sprintf("{address: %q, port_value: %s}", hostport[:i], hostport[i+1:])
}
