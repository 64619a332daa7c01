package redistest

import (
	"fmt"
	"strings"
)

// config is the server's redis.conf: nothing is ever written to disk but the log and, in a cluster, what a node knows of the others.
func (s *Server) config() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("bind %s", s.Host)
	line("protected-mode no")
	line("dir %s", quote(s.dir))
	if s.o.TLS {
		line("port 0")
		line("tls-port %d", s.Port)
		s.Files.config(line)
	} else {
		line("port %d", s.Port)
	}
	if s.o.Password != "" {
		line("requirepass %s", quote(s.o.Password))
	}
	if s.sentry {
		return b.String()
	}
	line(`save ""`)
	line("appendonly no")
	line("repl-diskless-sync yes")
	line("repl-diskless-sync-delay 0")
	if s.o.Password != "" {
		line("masterauth %s", quote(s.o.Password))
	}
	if s.Socket != "" {
		line("unixsocket %s", quote(s.Socket))
		line("unixsocketperm 700")
	}
	if s.BusPort != 0 {
		s.clusterConfig(line)
	}
	for _, text := range s.o.Config {
		line("%s", text)
	}
	return b.String()
}

func (s *Server) clusterConfig(line func(string, ...any)) {
	line("cluster-enabled yes")
	line("cluster-config-file nodes.conf")
	line("cluster-port %d", s.BusPort)
	line("cluster-node-timeout %d", s.o.nodeTimeout().Milliseconds())
	line("cluster-require-full-coverage no")
	line("cluster-allow-replica-migration no") // a replica stays in its zone
	line("cluster-replica-validity-factor 0")  // a replica may always take over, however long its primary has been away
	line("cluster-announce-hostname zone-%s", s.Zone)
	if s.o.TLS {
		line("tls-cluster yes")
		line("tls-replication yes")
	}
}

// quote makes one word of text for a configuration file.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
			continue
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
}
