package childproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	firstPort = 15_000
	portCount = 17_000
)

var (
	givenMu sync.Mutex
	given   = map[int]bool{}
)

// FreePort finds a TCP port on which nothing listens, another one each time: what asked for one does not listen on it yet. It is below the
// range from which systems take the ports of outgoing connections, so that none of those takes it before its server does, or while its
// server is being restarted.
func FreePort(ctx context.Context) (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(portCount)
		if give(port) && CheckPort(ctx, port) == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port between 15000 and 32000")
}

// give returns whether a port was not given before.
func give(port int) bool {
	givenMu.Lock()
	defer givenMu.Unlock()
	if given[port] {
		return false
	}
	given[port] = true
	return true
}

// CheckPort tells whether a port can be listened on, on every address of the machine.
func CheckPort(ctx context.Context, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return l.Close()
}
