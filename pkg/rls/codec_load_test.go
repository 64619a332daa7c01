package rls_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors/descriptorstest"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TestConcurrentCallsKeepApart runs calls that reuse each other's memory, some of which are given up half way. Under the race
// detector it also watches over when a call's memory goes back.
func TestConcurrentCallsKeepApart(t *testing.T) {
	calls := 2_000
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		calls = 1_000_000
	}
	before := heap()
	cc := serve(t, handlerFunc(echo))
	const workers = 16
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range calls / workers {
				if err := callAtRandom(t, cc, rng); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	require.Less(t, heap(), before+32<<20, "bytes that calls hold when they are over")
}

// callAtRandom sends a random request and checks the answer.
func callAtRandom(t *testing.T, cc *grpc.ClientConn, rng *rand.Rand) error {
	data := randomRequest(rng)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rng.IntN(10) == 0 {
		go cancel() // at any moment of the call
	}
	resp, err := callRaw(ctx, cc, data)
	var want descriptors.Request
	broken := want.Unmarshal(data)
	switch code := status.Code(err); {
	case code == codes.Canceled && ctx.Err() != nil:
		return nil
	case broken != nil && code == codes.Internal:
		return nil
	case err != nil:
		return fmt.Errorf("%x: %w", data, err)
	case broken != nil:
		return fmt.Errorf("%x: answered, want an error: %w", data, broken)
	case string(resp.RawBody) != descriptorstest.Text(&want):
		return fmt.Errorf("%x: got %s", data, resp.RawBody)
	}
	return nil
}

// randomRequest gives a request of random shape and bytes, or one that is broken, or mere noise.
func randomRequest(rng *rand.Rand) []byte {
	noise := func(most int) []byte {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	if rng.IntN(10) == 0 {
		return noise(40)
	}
	b := descriptorstest.Raw{}.Bytes(1, noise(8)).Varint(3, rng.Uint64()>>rng.IntN(64))
	for range rng.IntN(4) {
		d := descriptorstest.Raw{}.Bytes(3, descriptorstest.Raw{}.Varint(1, rng.Uint64())).Varint(4, uint64(rng.IntN(2)))
		for range rng.IntN(4) {
			d = d.Bytes(1, descriptorstest.Raw{}.Bytes(1, noise(8)).Bytes(2, noise(1<<rng.IntN(11))))
		}
		b = b.Bytes(2, d)
	}
	if rng.IntN(10) == 0 {
		return b[:rng.IntN(len(b))]
	}
	return b
}

// heap is how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // a pool lets go at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkCall(b *testing.B) {
	answer := allowed()
	cc := serve(b, handlerFunc(func(_ context.Context, _ *descriptors.Request, resp *rls.Response) error {
		resp.Code = answer.Code
		resp.Statuses = append(resp.Statuses, answer.Statuses...)
		resp.Headers = append(resp.Headers, answer.Headers...)
		return nil
	}))
	data := descriptorstest.Encoded(b, descriptorstest.Ordinary())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := callRaw(b.Context(), cc, data); err != nil {
			b.Fatal(err)
		}
	}
}
