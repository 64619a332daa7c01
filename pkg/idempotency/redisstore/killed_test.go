package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// doomedEnv makes the test binary an instance that is killed at the end of its first request, and names its Redis.
const doomedEnv = "ENVOY_RLS_TEST_DOOMED"

// doomedStore has the process killed instead of storing an answer.
type doomedStore struct{ idempotency.Store }

func (doomedStore) Complete(context.Context, idempotency.Claim, idempotency.Answer) error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Kill(); err != nil {
		return err
	}
	select {} // until it is carried out
}

// pay is a handler that notes on Redis that it ran.
func pay(i **instance) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := (*i).client.Incr(r.Context(), "runs").Result()
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", n)
	}
}

// serveDoomed is the instance. It tells its address on standard output.
func serveDoomed(url string) error {
	var i *instance
	i, err := newInstance([]string{url}, func(s idempotency.Store) idempotency.Store { return doomedStore{s} }, pay(&i))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := http.Server{Handler: i, ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// TestKilled: an instance is killed between the end of the handler and the storing of the answer. The retry waits for the lease, and is then
// carried out and charged; the one after that is free.
func TestKilled(t *testing.T) {
	url := redistest.StartStandalone(t).URL()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), doomedEnv+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	process, err := childproc.Start(cmd)
	require.NoError(t, err)
	defer process.Kill()
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+strings.TrimSpace(address)+"/payments", strings.NewReader("{}"))
	require.NoError(t, err)
	r.Header.Set("Account", "ann")
	r.Header.Set(idempotency.FieldKey, `"k"`)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err, "the answer was lost")
	<-process.Done()

	var other *instance
	other = start(t, []string{url}, func(w http.ResponseWriter, r *http.Request) { pay(&other)(w, r) })
	requireRuns(t, other, "1")
	requireCharged(t, other, 1)
	require.Equal(t, http.StatusConflict, other.post().Code, "the lease goes on")
	requireCharged(t, other, 2)

	require.NoError(t, other.client.Eval(t.Context(), pass, nil, "idem:", lease.Milliseconds()).Err())
	for range 2 {
		rec := other.post()
		require.Equal(t, http.StatusCreated, rec.Code)
		require.Equal(t, "payment 2", rec.Body.String())
		requireRuns(t, other, "2")
		requireCharged(t, other, 3)
	}
}

func requireRuns(t *testing.T, i *instance, want string) {
	t.Helper()
	got, err := i.client.Get(t.Context(), "runs").Result()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
