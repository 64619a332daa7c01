//go:build linux

package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// image is what a container is made of.
type image struct {
	files      string            // directory with the files that are copied into it; empty: none
	tools      bool              // it has the programs of this machine, too
	programs   map[string]string // further files of this machine, by their path in the image
	absent     string            // why containers of it are not started here; empty: they are
	entrypoint []string
	command    []string
	user       string
	env        map[string]string
	dir        string            // in which its process starts
	volumes    map[string]string // directories that are volumes even if the file names none, with their owner
	stop       syscall.Signal    // asks its process to end; 0: SIGTERM
	setup      string            // shell script that stands for what the image's own entrypoint does
}

const toolPath = "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// publicImages are the images that are not built here, and what stands for them. A program that is missing is found out when it is started.
func publicImages(envoy string) map[string]image {
	return map[string]image{
		"redis": {
			tools:   true,
			command: []string{"redis-server"},
			volumes: map[string]string{"/data": "999:999"},
			dir:     "/data",
		},
		"postgres": {
			tools:   true,
			command: []string{"postgres"},
			env:     map[string]string{"PGDATA": "/var/lib/postgresql/data"},
			volumes: map[string]string{"/var/lib/postgresql/data": "999:999"},
			stop:    syscall.SIGINT,
			setup:   postgresSetup,
		},
		"envoyproxy/envoy": {
			tools:    true,
			programs: map[string]string{"/opt/bin/envoy": envoy},
			command:  []string{"envoy", "-c", "/etc/envoy/envoy.yaml"},
		},
		"prom/prometheus": {
			tools:      true,
			entrypoint: []string{"prometheus"}, // the image's is /bin/prometheus
			command:    []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"},
			volumes:    map[string]string{"/prometheus": "65534:65534"},
			dir:        "/prometheus",
		},
		"grafana/grafana": {absent: "no package of Grafana is installed here"},
	}
}

// postgresSetup is what the image's docker-entrypoint.sh does before it starts the server.
const postgresSetup = `
set -eu
for bin in /usr/lib/postgresql/*/bin; do PATH=$bin:$PATH; done
export PATH
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	initdb --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" --auth-host scram-sha-256 --auth-local trust --no-sync >/dev/null
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
	echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
	echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -j postgres >/dev/null
fi
exec "$@"
`

// publicImage is the image of a reference NAME:TAG.
func publicImage(reference, envoy string) (*image, error) {
	name, tag, _ := strings.Cut(reference, ":")
	if tag == "" || tag == "latest" {
		return nil, fmt.Errorf("image %s: no version is pinned", reference)
	}
	known := publicImages(envoy)
	i, ok := known[name]
	if !ok {
		return nil, fmt.Errorf("image %s: nothing stands for it here; known: %s", reference, strings.Join(sorted(known), ", "))
	}
	return &i, nil
}

// baseImage is what a stage of a Dockerfile begins with.
func baseImage(reference string) (*image, error) {
	name, tag, _ := strings.Cut(reference, ":")
	switch {
	case name == "scratch":
		return &image{}, nil
	case name == "golang" && tag != "" && tag != "latest":
		return &image{tools: true, env: map[string]string{"GOPATH": "/go"}}, nil
	}
	return nil, fmt.Errorf("FROM %s: nothing stands for it here", reference)
}

// sorted are the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
