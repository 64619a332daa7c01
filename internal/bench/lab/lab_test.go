package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/floor"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCPUOfAProcessThatHasEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	_, err := CPU(cmd.Process.Pid)
	require.EqualError(t, err, fmt.Sprintf("process %d has ended", cmd.Process.Pid))
}

func TestCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; { // busy
	}
	after, err := CPU(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, after-before, time.Millisecond)
	for _, pid := range []int{-1, 0, 1 << 22, 1 << 29} {
		_, err = CPU(pid)
		require.Error(t, err, pid)
	}
}

func TestFindProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	pid, err := FindProcess(l.Addr().String())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), pid)
	require.NoError(t, l.Close())
	_, err = FindProcess(l.Addr().String())
	require.ErrorContains(t, err, "no process")
	_, err = FindProcess("192.0.2.1:80")
	require.ErrorContains(t, err, "not on this machine")
	for _, addr := range []string{"", "host", "localhost:http"} {
		_, err := FindProcess(addr)
		require.Error(t, err, addr)
	}
}

func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0
   1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0
   2: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 333 1 0
   3: 0100007F:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 444 1 0
   4: short
`
	require.Equal(t, []string{"111", "333"}, listeners(table, 8081))
}

func TestWithoutTuning(t *testing.T) {
	got := WithoutTuning([]string{"PATH=/bin", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=x=1", "ENVOY_RLS_STORE=redis", "GOMAXPROCS=2"})
	require.Equal(t, []string{"PATH=/bin", "GOMAXPROCS=2"}, got)
}

func TestMedian(t *testing.T) {
	is := func(v float64) float64 { return v }
	require.Zero(t, Median(nil, is))
	require.Equal(t, 2.0, Median([]float64{9, 1, 2}, is))
	require.Equal(t, 2.5, Median([]float64{9, 1, 2, 3}, is))
}

// startFloor runs the floor in this process.
func startFloor(t *testing.T) *Side {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- floor.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-served) })
	return &Side{Name: "floor", Addr: l.Addr().String(), Pid: os.Getpid()}
}

// A server of which nothing is known but its address is measured, too.
func TestRunOnAnyServer(t *testing.T) {
	s, err := bench.Open("one-policy")
	require.NoError(t, err)
	s.Load = bench.Shape{Workers: 4, Connections: 2, Rates: []bench.Rate{{Share: 0.5}, {}}, Duration: 100 * time.Millisecond, Faults: []bench.Fault{bench.Healthy}}
	floor := startFloor(t)
	var told []string
	p := Plan{Scenario: s, Service: &Side{Name: "service", Addr: floor.Addr}, Floor: floor, Peak: 1000, Rounds: 2, Progress: func(what string, _ float64) {
		if len(told) == 0 || told[len(told)-1] != what {
			told = append(told, what)
		}
	}}
	rows, err := p.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, []string{
		"one-policy, 50%, floor", "one-policy, 50%, service", "one-policy, 50%, floor", "one-policy, 50%, service",
		"one-policy, closed, floor", "one-policy, closed, service", "one-policy, closed, floor", "one-policy, closed, service",
	}, told)
	for i, server := range []string{"floor", "service", "floor", "service"} {
		require.Equal(t, server, rows[i].Server)
		require.Empty(t, rows[i].Invalid)
		require.Positive(t, rows[i].P50)
		require.Nil(t, rows[i].StoreShare)
		require.Equal(t, server == "floor" && runtime.GOOS == "linux", rows[i].CPU != nil, "of %s", server)
	}
	require.EqualValues(t, 100, rows[1].Calls, "two rounds at 500/s")

	peak, err := p.MeasurePeak(t.Context(), p.Service)
	require.NoError(t, err)
	require.Positive(t, peak)

	s.Load.Faults = []bench.Fault{bench.ShardKilled}
	_, err = p.Run(t.Context())
	require.ErrorContains(t, err, "needs a cluster")
	p.Service.Addr = "127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = p.Run(ctx)
	require.ErrorContains(t, err, "service: call 127.0.0.1:1")
}

func scenario(t *testing.T, changes func(*bench.Scenario)) *bench.Scenario {
	t.Helper()
	s, err := bench.Open("one-policy")
	require.NoError(t, err)
	changes(s)
	return s
}

func TestCheck(t *testing.T) {
	s := scenario(t, func(s *bench.Scenario) { s.Calls[0].Policies = 2 })
	good := func() *Sample {
		return &Sample{Result: &bench.Result{Allowed: 90, Denied: 10, Made: []uint64{100}}, Decisions: map[string]int64{"store": 200}}
	}
	require.Empty(t, good().Check(s))
	tests := map[string]struct {
		spoil func(*Sample)
		want  string
	}{
		"failed calls":    {func(s *Sample) { s.Errors = map[string]int64{"Unavailable": 5} }, "5 of 105 calls failed: Unavailable"},
		"no call":         {func(s *Sample) { s.Allowed, s.Denied, s.Made[0], s.Decisions = 0, 0, 0, nil }, "no call was made"},
		"wrong keys":      {func(s *Sample) { s.Deviation = 6 }, "6.0 standard deviations"},
		"others decided":  {func(s *Sample) { s.Decisions = map[string]int64{"store": 199, "local": 1} }, "not all was decided by [store]"},
		"nobody decided":  {func(s *Sample) { s.Decisions = map[string]int64{} }, "no policy decided: the service needs the policies of the scenario"},
		"policies missed": {func(s *Sample) { s.Decisions["store"] = 150 }, "policies decided 150 times, want 200"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bad := good()
			test.spoil(bad)
			require.Contains(t, join(bad.Check(s)), test.want)
		})
	}
}

func join(texts []string) (all string) {
	for _, text := range texts {
		all += text + "\n"
	}
	return all
}

// binary builds the service once for the tests of this package.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy-rls")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "../../../cmd/envoy-rls")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// The whole of it on a real service with a real Redis: what was decided, how often scripts were run, what buckets take.
func TestRunOnTheService(t *testing.T) {
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		t.Skip(err)
	}
	dir := t.TempDir()
	redis, err := StartRedis(t.Context(), dir, false)
	require.NoError(t, err)
	defer redis.Close()
	s := scenario(t, func(s *bench.Scenario) {
		s.Keys.Count, s.Fill = 2000, true
		s.Load = bench.Shape{Workers: 8, Connections: 2, Rates: []bench.Rate{{PerSecond: 500}}, Duration: 400 * time.Millisecond, Faults: []bench.Fault{bench.Healthy}}
	})
	path := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(path, []byte(s.Policies), 0o600))
	program := binary(t)
	for name, store := range map[string]*Redis{"memory": nil, "redis": redis} {
		t.Run(name, func(t *testing.T) {
			side, err := Service{Name: name, Binary: program, Policies: path, Dir: dir, Redis: store}.Start(t.Context())
			require.NoError(t, err)
			defer side.Stop()
			rows, err := Plan{Scenario: s, Service: side}.Run(t.Context())
			require.NoError(t, err)
			require.Len(t, rows, 1)
			row := rows[0]
			require.Empty(t, row.Invalid)
			require.EqualValues(t, 200, row.Allowed)
			require.Equal(t, 1.0, *row.StoreShare)
			require.Positive(t, *row.CPU)
			require.InDelta(t, 150, *row.BytesPerKey, 140)
			if store == nil {
				require.Nil(t, row.ScriptsPerCall)
				return
			}
			require.InDelta(t, 1, *row.ScriptsPerCall, 0.05, "with a heartbeat now and then")
			require.Positive(t, *row.RedisCPU)
			require.Positive(t, *row.EmptyCPU)
			require.Len(t, row.ScriptsPerSecond, 1)
		})
	}
	t.Run("policies with a fault", func(t *testing.T) {
		bad := filepath.Join(t.TempDir(), "bad.yaml")
		require.NoError(t, os.WriteFile(bad, []byte("policy: []\n"), 0o600))
		_, err := Service{Name: "bad", Binary: program, Policies: bad, Dir: dir}.Start(t.Context())
		require.ErrorContains(t, err, `no field "policy"`)
	})
	_, err = Service{Name: "missing", Binary: filepath.Join(dir, "missing"), Dir: dir}.Start(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}
