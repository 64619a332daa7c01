//go:build linux

package compose_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/compose"
)

// small is a file with little in it.
const small = `
name: small
services:
  one:
    image: redis:7.2.5-bookworm
    user: "999:999"
    command: [redis-server, --save, ""]
    healthcheck: {test: [CMD, redis-cli, ping], interval: 50ms, retries: 100}
  two:
    image: redis:7.2.5-bookworm
    user: "999:999"
    command: [redis-cli, -h, one, ping]
    depends_on: {one: {condition: service_healthy}}
  three:
    image: redis:7.2.5-bookworm
    user: "999:999"
    command: [sleep, "3600"]
    depends_on: {two: {condition: service_completed_successfully}}
`

// loadSmall reads the small file after some of it was replaced.
func loadSmall(t *testing.T, replacements ...string) (*types.Project, error) {
	t.Helper()
	dir := t.TempDir()
	text := strings.NewReplacer(replacements...).Replace(small)
	if len(replacements) > 0 {
		require.NotEqual(t, small, text, "nothing was replaced")
	}
	file := filepath.Join(dir, "docker-compose.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return compose.Load(t.Context(), file, dir, nil)
}

// TestFaultsOfTheFile: what is wrong in a file, or not understood, is found before anything is started.
func TestFaultsOfTheFile(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, want string }{
		"unknown condition":       {"service_healthy", "service_well", "condition"},
		"unknown dependency":      {"depends_on: {one:", "depends_on: {on:", `depends on undefined service "on"`},
		"a circle":                {"command: [redis-server, --save, \"\"]", "depends_on: [three]", "dependency cycle"},
		"unknown key":             {"command: [sleep", "comand: [sleep", "comand"},
		"no such directory":       {"command: [sleep", "volumes: [./nowhere:/x]\n    command: [sleep", "nowhere: no such file or directory"},
		"unknown volume":          {"command: [sleep", "volumes: [nowhere:/x]\n    command: [sleep", "undefined volume nowhere"},
		"unknown network":         {"command: [sleep", "networks: [nowhere]\n    command: [sleep", "undefined network nowhere"},
		"unknown secret":          {"command: [sleep", "secrets: [nothing]\n    command: [sleep", "undefined secret nothing"},
		"no file of a secret":     {"name: small", "secrets: {s: {file: ./nowhere}}", "secret s: stat"},
		"a limit of memory":       {"command: [sleep", "mem_limit: 1g\n    command: [sleep", "service three: not understood here: mem_limit"},
		"a restart policy":        {"command: [sleep", "restart: always\n    command: [sleep", "not understood here: restart"},
		"another network mode":    {"command: [sleep", "network_mode: host\n    command: [sleep", "network_mode is not understood here"},
		"a security option":       {"command: [sleep", "security_opt: [seccomp:unconfined]\n    command: [sleep", "security_opt seccomp:unconfined is not"},
		"a setting of the kernel": {"command: [sleep", "sysctls: {kernel.shmmax: 1}\n    command: [sleep", "sysctl kernel.shmmax is not understood here"},
		"a UDP port":              {"command: [sleep", "ports: [\"53:53/udp\"]\n    command: [sleep", "port 53:53: only single published TCP ports"},
		"a health check in none":  {"test: [CMD, redis-cli, ping]", "test: [NONE]", "test has to begin with CMD"},
		"more of a dependency":    {"one: {condition: service_healthy}", "one: {condition: service_healthy, restart: true}", "not understood here: restart"},
		"an option of a network":  {"name: small", "networks: {n: {driver_opts: {com.docker.network.bridge.enable_icc: \"false\"}}}", "network n: not understood here: driver_opts"},
		"how a folder is bound":   {"command: [sleep", "volumes: [{type: bind, source: ., target: /x, bind: {propagation: shared}}]\n    command: [sleep", "not understood here: propagation"},
		"a label of a folder":     {"command: [sleep", "volumes: [\".:/x:z\"]\n    command: [sleep", "not understood here: selinux"},
		"how a volume is made":    {"command: [sleep", "volumes: [{type: volume, target: /x, volume: {nocopy: true}}]\n    command: [sleep", "not understood here: nocopy"},
		"addresses of others":     {"name: small", "networks: {n: {ipam: {config: [{subnet: 10.9.0.0/24, aux_addresses: {h: 10.9.0.9}}]}}}", "network n: not understood here: aux_addresses"},
		"a network of a driver":   {"name: small", "networks: {n: {driver: overlay}}", "network n: not understood here: driver"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadSmall(t, tt.old, tt.new)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestFaultsOfTheStart: what goes wrong when services are started is told with the service and the reason.
func TestFaultsOfTheStart(t *testing.T) {
	needsRoot(t)
	for name, tt := range map[string]struct{ old, new, want string }{
		"a wrong flag":        {"--save, \"\"", "--no-such-flag, \"1\"", "service one: one ended: exit status 1"},
		"an unhealthy one":    {"[CMD, redis-cli, ping], interval: 50ms, retries: 100", "[CMD, redis-cli, -p, \"1\", ping], interval: 50ms, retries: 2", "service one: is not healthy: exit status 1: Could not connect"},
		"a hanging check":     {"[CMD, redis-cli, ping], interval: 50ms, retries: 100", "[CMD, sleep, \"9\"], interval: 50ms, retries: 1, timeout: 100ms", "is not healthy: context deadline exceeded"},
		"a job that fails":    {"-h, one, ping", "-h, one, -e, nonsense", "service two: two ended: exit status 1"},
		"no such host":        {"-h, one, ping", "-h, won, ping", "Could not connect to Redis at won:6379"},
		"no such program":     {"[sleep, \"3600\"]", "[slip]", "service three: slip: no such program in the image"},
		"root":                {"user: \"999:999\"\n    command: [sleep", "command: [sleep", "service three: runs as root"},
		"a user by name":      {"user: \"999:999\"\n    command: [sleep", "user: redis\n    command: [sleep", "user redis: only numbers"},
		"no version":          {"redis:7.2.5-bookworm\n    user: \"999:999\"\n    command: [sleep", "redis\n    user: \"999:999\"\n    command: [sleep", "image redis: no version is pinned"},
		"an unknown image":    {"redis:7.2.5-bookworm\n    user: \"999:999\"\n    command: [sleep", "mysql:8\n    user: \"999:999\"\n    command: [sleep", "image mysql:8: nothing stands for it here"},
		"an internal network": {"command: [sleep", "ports: [\"81:81\"]\n    networks: [n]\n    command: [sleep", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replacements := []string{tt.old, tt.new}
			if tt.want == "" {
				replacements = append(replacements, "name: small", "networks: {n: {internal: true}}")
				tt.want = "service three: port 81: the service is on internal networks only"
			}
			p, err := loadSmall(t, replacements...)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = compose.Start(ctx, p, compose.Options{Dir: t.TempDir()})
			require.ErrorContains(t, err, tt.want)
		})
	}
	t.Run("too slow", func(t *testing.T) {
		t.Parallel()
		p, err := loadSmall(t, "[redis-cli, -h, one, ping]", "[sleep, \"3600\"]")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = compose.Start(ctx, p, compose.Options{Dir: t.TempDir()})
		require.ErrorContains(t, err, "context deadline exceeded; not ready:")
		require.ErrorContains(t, err, "two")
	})
}

func TestAddressesOfTwo(t *testing.T) {
	needsRoot(t)
	const network = "networks: {default: {ipam: {config: [{subnet: 10.9.0.0/24}]}}}"
	for address, want := range map[string]string{
		"10.9.0.1": "the gateway has the address 10.9.0.1 already",
		"10.8.0.9": "10.8.0.9 is not in 10.9.0.0/24",
	} {
		p, err := loadSmall(t, "name: small", network, "command: [sleep", "networks: {default: {ipv4_address: "+address+"}}\n    command: [sleep")
		require.NoError(t, err)
		_, err = compose.Start(t.Context(), p, compose.Options{Dir: t.TempDir()})
		require.ErrorContains(t, err, want)
	}
}

// TestAChangedPortMovesTheTest: where the edge is, the file alone decides.
func TestAChangedPortMovesTheTest(t *testing.T) {
	needsRoot(t)
	d := start(t, shipped(t, `ports: ["10000:10000"]`, `ports: ["10007:10000"]`), "envoy")
	_, err := d.Host("curl", "-s", edge)
	require.Error(t, err, "nothing listens at the old port")
	out, err := d.Host("curl", "-s", "-i", "http://127.0.0.1:10007/")
	require.NoError(t, err, out)
	require.Contains(t, out, "server: envoy")

	d = start(t, shipped(t, `target: upstream`, `target: upstream`+"\n    command: [--addr, \":9001\"]"), "upstream")
	until(t, "the upstream to listen where the file says", func() error {
		conn, err := d.Dial(t.Context(), "tcp", "10.77.0.2:9001")
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// TestNetworksAreApart: a service reaches only those that share a network with it.
func TestNetworksAreApart(t *testing.T) {
	needsRoot(t)
	p, err := loadSmall(t, "name: small", "networks: {a: , b: }",
		"command: [redis-server", "networks: {a: {ipv4_address: 10.78.0.9}}\n    command: [redis-server",
		"command: [redis-cli", "networks: [a, b]\n    command: [redis-cli",
		"command: [sleep", "networks: [b]\n    command: [sleep")
	require.NoError(t, err)
	p.Networks["a"] = types.NetworkConfig{Ipam: types.IPAMConfig{Config: []*types.IPAMPool{{Subnet: "10.78.0.0/24"}}}}
	d := start(t, p)
	hosts, err := d.Exec(t.Context(), "three", "cat", "/etc/hosts")
	require.NoError(t, err)
	require.Contains(t, hosts, " two")
	require.NotContains(t, hosts, " one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	out, err := d.Exec(ctx, "three", "redis-cli", "-h", "10.78.0.9", "ping")
	require.Error(t, err, out)

	require.NoError(t, d.Cut("a"))
	out, err = d.Exec(t.Context(), "one", "redis-cli", "ping")
	require.NoError(t, err, out)
	require.Error(t, d.Cut("c"), "there is no such network")
}

const orphanEnv = "ENVOY_RLS_COMPOSE_ORPHAN" // the directory that the child works in

// orphan is the child of TestNothingOutlivesTheProcess: it starts the small file, says the number of a process, and waits to be killed.
func orphan() int {
	dir := os.Getenv(orphanEnv)
	p, err := compose.Load(context.Background(), dir+"/docker-compose.yml", dir, nil)
	if err != nil {
		return 1
	}
	d, err := compose.Start(context.Background(), p, compose.Options{Dir: dir})
	if err != nil {
		return 1
	}
	fmt.Println(d.Process("one").PID())
	select {}
}

func TestNothingOutlivesTheProcess(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/docker-compose.yml", []byte(small), 0o600))
	before, err := exec.Command("ip", "-brief", "link").Output()
	require.NoError(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), orphanEnv+"="+dir)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var line [32]byte
	n, err := out.Read(line[:])
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // killed: always an error
	until(t, "the service to be gone", func() error {
		if syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
	after, err := exec.Command("ip", "-brief", "link").Output()
	require.NoError(t, err)
	require.Equal(t, strings.Count(string(before), "br0"), strings.Count(string(after), "br0"))
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), dir)
}
