package harness

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// ServiceBinary builds the service into dir and returns its path. root is the directory of the project. A binary that is already there
// (one built with -race, say) is used instead if ENVOY_RLS_E2E_BINARY names it.
func ServiceBinary(root, dir string) (string, error) {
	if path := os.Getenv("ENVOY_RLS_E2E_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "envoy-rls")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/envoy-rls")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as that of the image
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the service: %w\n%s", err, out)
	}
	return path, nil
}

// Output runs a program and returns what it prints, without the last line end.
func Output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Instance is one process of the service that is called directly, without an Envoy in front.
type Instance struct {
	Process            *Process
	GRPC, Admin, Debug string // host:port; Debug is that of profiles
	Log                *Journal

	connections []*grpc.ClientConn
	clients     []rls.RateLimitServiceClient // one for each connection
}

// connectionsEach is how many connections lead to each instance.
const connectionsEach = 6

// Journal keeps all that is written to it. Safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// String returns all that was written.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// StartInstance starts the service on free ports of loopback with these arguments and further variables of the environment, and returns when
// it is ready and connected to. Another program may take a port before the service does: then others are tried. Whoever calls it calls
// [Instance.Stop].
func StartInstance(ctx context.Context, binary string, args, env []string) (*Instance, error) {
	return StartInstanceAt(ctx, "127.0.0.1", func(args ...string) *exec.Cmd { return exec.Command(binary, args...) }, args, env)
}

// StartInstanceAt does so with the ports of another address, which has to be one where the command runs.
func StartInstanceAt(ctx context.Context, host string, command func(args ...string) *exec.Cmd, args, env []string) (*Instance, error) {
	for try := 1; ; try++ {
		i, err := startInstance(ctx, host, command, args, env)
		if err == nil || try == 3 || !strings.Contains(err.Error(), "address already in use") {
			return i, err
		}
	}
}

func startInstance(ctx context.Context, host string, command func(args ...string) *exec.Cmd, args, env []string) (*Instance, error) {
	i := &Instance{Log: &Journal{}}
	for _, address := range []*string{&i.GRPC, &i.Admin, &i.Debug} {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		*address = net.JoinHostPort(host, strconv.Itoa(port))
	}
	i.Debug = net.JoinHostPort("127.0.0.1", i.Debug[strings.LastIndex(i.Debug, ":")+1:]) // never elsewhere
	args = append(args[:len(args):len(args)], "--grpc-addr", i.GRPC, "--admin-addr", i.Admin, "--debug-addr", i.Debug)
	cmd := command(args...)
	cmd.Env = append(os.Environ(), env...)
	var err error
	if i.Process, err = StartProcess("envoy-rls", cmd, i.Log); err != nil {
		return nil, err
	}
	err = Until(ctx, "envoy-rls to be ready", func() error {
		_, err := Get(ctx, "http://"+i.Admin+"/readyz")
		return err
	}, i.Process)
	for n := 0; n < connectionsEach && err == nil; n++ {
		err = i.connect(ctx)
	}
	if err != nil {
		i.Stop()
		return nil, err
	}
	return i, nil
}

// connect opens one more connection. No policy applies to the call by which it is tried.
func (i *Instance) connect(ctx context.Context) error {
	connection, err := grpc.NewClient(i.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client := rls.NewRateLimitServiceClient(connection)
	i.connections, i.clients = append(i.connections, connection), append(i.clients, client)
	_, err = client.ShouldRateLimit(ctx, Attributes("nothing", "nothing"), grpc.WaitForReady(true))
	return err
}

// Stop ends the connections and the process, and returns when that is gone.
func (i *Instance) Stop() {
	for _, connection := range i.connections {
		_ = connection.Close() // fails only if it is closed
	}
	i.Process.Stop(time.Minute)
}

// Answer is what the service says of a request.
type Answer struct {
	Allowed        bool
	Policy, Source string // the binding policy, and who decided; empty if no policy applied
}

// Decide makes one call, over one of the connections: which one, n decides.
func (i *Instance) Decide(ctx context.Context, n int, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return i.clients[n%len(i.clients)].ShouldRateLimit(ctx, r)
}

// Ask makes one call, over one of the connections: which one, n decides.
func (i *Instance) Ask(ctx context.Context, n int, r *rls.RateLimitRequest) (Answer, error) {
	got, err := i.Decide(ctx, n, r)
	if err != nil {
		return Answer{}, err
	}
	fields := got.GetDynamicMetadata().GetFields()
	a := Answer{Policy: fields["policy"].GetStringValue(), Source: fields["source"].GetStringValue()}
	switch code := got.GetOverallCode(); code {
	case rls.RateLimitResponse_OK:
		a.Allowed = true
		return a, nil
	case rls.RateLimitResponse_OVER_LIMIT:
		return a, nil
	default:
		return a, fmt.Errorf("an answer with code %v", code)
	}
}

// Sum adds up the series of a metric that have all these labels: name="value".
func (i *Instance) Sum(ctx context.Context, metric string, labels ...string) (float64, error) {
	page, err := Get(ctx, "http://"+i.Admin+"/metrics")
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(page) {
		series, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, with, _ := strings.Cut(series, "{")
		if name != metric || !hasAll(with, labels) {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		total += value
	}
	return total, nil
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Attributes is a request of domain edge with one descriptor: key, value, key, value …
func Attributes(entries ...string) *rls.RateLimitRequest {
	d := &ratelimit.RateLimitDescriptor{}
	for n := 0; n < len(entries); n += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: entries[n], Value: entries[n+1]})
	}
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{d}}
}
