package childproc

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a TCP port of loopback on which nothing listens. It is below the range from which systems take the ports of outgoing
// connections, so that none of those takes it before its server does, or while its server is being restarted.
func FreePort(ctx context.Context) (int, error) {
	const first, count = 15_000, 17_000
	for range 200 {
		port := first + rand.IntN(count)
		if CheckPort(ctx, port) == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port between 15000 and 32000")
}

// CheckPort tells whether port of loopback can be listened on.
func CheckPort(ctx context.Context, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	return l.Close()
}
