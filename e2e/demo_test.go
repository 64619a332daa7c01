package e2e_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// demo is a running `make run`, on ports of its own.
type demo struct {
	*harness.Process
	edge  string
	ports []int
	lines *bufio.Scanner // what it prints
}

// startDemo returns a demo that ends with the test, and the welcome that it has printed. Another program may take a port before the demo does:
// then others are tried.
func startDemo(t *testing.T, service, policies string, flags ...string) (d *demo, welcome string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	args := append([]string{"--root", "..", "--envoy", binaries.envoy, "--service", service, "--policies", policies}, flags...)
	for try := 1; ; try++ {
		d = runDemo(t, program, args)
		var found bool
		if welcome, found = d.read(welcomeEnd); found {
			return d, welcome
		}
		require.True(t, try < 3 && portTaken(d.Obituary()), "the demo ended without a welcome; %s", d.Obituary())
	}
}

// runDemo starts a demo on free ports.
func runDemo(t *testing.T, program string, args []string) *demo {
	t.Helper()
	d := &demo{}
	for _, name := range []string{
		"--port", "--envoy-admin-port", "--grpc-port", "--admin-port", "--upstream-port", "--second-grpc-port", "--second-admin-port",
	} {
		port, err := harness.FreePort()
		require.NoError(t, err)
		d.ports = append(d.ports, port)
		args = append(args, name, strconv.Itoa(port))
	}
	d.edge = "127.0.0.1:" + strconv.Itoa(d.ports[0])
	printed, printer := io.Pipe()
	d.lines = bufio.NewScanner(printed)
	var err error
	d.Process, err = harness.StartProcess("demo", exec.Command(program, args...), printer)
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() {
		<-d.Done()
		_ = printer.Close()
		close(closed)
	}()
	t.Cleanup(func() {
		_ = printed.Close()
		d.Stop(patience)
		<-closed
	})
	return d
}

// readUntil reads lines up to the first that matches pattern, and returns them; with an empty pattern, all that come.
func (d *demo) readUntil(t *testing.T, pattern string) string {
	t.Helper()
	text, found := d.read(pattern)
	require.True(t, found || pattern == "", "the demo ended without such a line; %s", d.Obituary())
	return text
}

// read reads so, and tells whether there was such a line.
func (d *demo) read(pattern string) (text string, found bool) {
	want := regexp.MustCompile(pattern)
	var lines strings.Builder
	for d.lines.Scan() {
		lines.WriteString(d.lines.Text() + "\n")
		if pattern != "" && want.MatchString(d.lines.Text()) {
			return lines.String(), true
		}
	}
	return lines.String(), false
}

// requireGone checks that the demo left nothing that listens.
func (d *demo) requireGone(t *testing.T) {
	t.Helper()
	for _, port := range d.ports {
		require.NoError(t, harness.CheckPort(port), "something still listens")
	}
}

const welcomeEnd = "Ctrl-C stops everything"

func TestDemo(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	shipped, err := os.ReadFile("../config/policies.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(policies, shipped, 0o600))
	d, welcome := startDemo(t, binaries.service, policies)
	require.Contains(t, welcome, "policies loaded", "the service's log is seen")
	for _, match := range regexp.MustCompile(`(?m)^  (http://\S+)`).FindAllStringSubmatch(welcome, -1) {
		_, err := harness.Get(t.Context(), match[1])
		require.NoError(t, err, "a page that the welcome names")
	}
	require.Equal(t, 10, strings.Count(welcome, "\n  "), "five pages and five commands to try:\n%s", welcome)

	client := harness.Client{Addr: d.edge}
	defer client.Close()
	r := harness.Request{Method: "GET", Target: "/", Header: []string{"x-api-key: k1"}}
	resp, err := client.Do(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 200, resp.Status)
	for resp.Status == 200 {
		resp, err = client.Do(t.Context(), r)
		require.NoError(t, err)
	}
	require.Equal(t, 429, resp.Status)
	denial := d.readUntil(t, "^denied")
	require.Equal(t, "denied 429 GET / policy=api-free source=store client=127.0.0.1 flags=RL\n", denial)

	require.NoError(t, os.WriteFile(policies, []byte(strings.Replace(string(shipped), "capacity: 20\n", "capcity: 20\n", 1)), 0o600))
	d.readUntil(t, "^policies not loaded; the old ones stay")
	d.readUntil(t, `policies\.yaml:\d+:\d+: .*"capcity"`)
	require.NoError(t, os.WriteFile(policies, []byte(strings.Replace(string(shipped), "capacity: 20\n", "capacity: 30\n", 1)), 0o600))
	d.readUntil(t, "^policies loaded")

	require.NoError(t, d.Signal(os.Interrupt))
	require.Contains(t, d.readUntil(t, ""), "stopping")
	code, err := d.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, code, d.Obituary())
	d.requireGone(t)
}

func TestDemoOnRedis(t *testing.T) {
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		t.Skip(err)
	}
	t.Setenv("ENVOY_RLS_STORE_TIMEOUT", "3s") // a busy machine leaves nothing to shares
	const refill = "    refillPerMinute: 100\n"
	shipped, err := os.ReadFile("../config/policies.yaml")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(shipped), refill))
	policies := writePolicies(t, strings.Replace(string(shipped), refill, "    refillPerDay: 1\n", 1))
	d, welcome := startDemo(t, binaries.service, policies, "--store", "redis")
	_, nodes, found := strings.Cut(welcome, "(redis-cli -c -p PORT):")
	require.True(t, found, welcome)
	nodes, _, _ = strings.Cut(nodes, "\n")
	for _, port := range strings.Fields(nodes) {
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		d.ports = append(d.ports, number)
	}
	require.Len(t, d.ports, 7+8)

	passed, admitted := d.drain(t)
	require.GreaterOrEqual(t, passed, 20)
	require.LessOrEqual(t, admitted, 20, "two instances share one bucket")
	for _, admin := range []int{d.ports[3], d.ports[6]} {
		page, err := harness.Get(t.Context(), "http://127.0.0.1:"+strconv.Itoa(admin)+"/metrics")
		require.NoError(t, err)
		require.Regexp(t, `(?m)^envoy_rls_decisions_total\{.*policy="api-free".*source="store".*\} [1-9]`, page, "an instance took no part")
	}

	require.NoError(t, d.Signal(os.Interrupt))
	d.readUntil(t, "")
	code, err := d.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, code, d.Obituary())
	d.requireGone(t)
}

// drain makes calls until one is denied. It returns how many passed, and how many of them the service admitted: one that Envoy let through unasked,
// for want of an answer within 20 ms, has no RateLimit field, and may have been charged or not.
func (d *demo) drain(t *testing.T) (passed, admitted int) {
	t.Helper()
	client := harness.Client{Addr: d.edge}
	defer client.Close()
	for {
		resp, err := client.Do(t.Context(), harness.Request{Method: "GET", Target: "/", Header: []string{"x-api-key: k1"}})
		require.NoError(t, err)
		if resp.Status == 429 {
			return passed, admitted
		}
		require.Equal(t, 200, resp.Status)
		passed++
		if resp.Header.Get("RateLimit") != "" {
			admitted++
		}
	}
}

func TestDemoSaysWhichProcessDied(t *testing.T) {
	dir := t.TempDir()
	service := filepath.Join(dir, "service")
	script := "#!/bin/sh\necho $$ >'" + dir + "/pid'\nexec '" + binaries.service + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(service, []byte(script), 0o700)) //nolint:gosec // has to be executable
	d, _ := startDemo(t, service, "../config/policies.yaml")

	pid, err := os.ReadFile(dir + "/pid")
	require.NoError(t, err)
	number, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
	require.Contains(t, d.readUntil(t, ""), "envoy-rls ended: signal: killed; its last lines:")
	code, err := d.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, code)
	d.requireGone(t)
}

func TestDemoNamesTheFlagForATakenPort(t *testing.T) {
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	lab := newLab(t, setup{policies: "../config/policies.yaml"})
	_, taken, _ := strings.Cut(lab.Options.Upstream, ":")

	out, err = exec.Command(program, "--upstream-port", taken).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "port "+taken)
	require.Contains(t, string(out), "DEMO_UPSTREAM_PORT=PORT make run")
}
