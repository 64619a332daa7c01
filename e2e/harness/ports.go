package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a TCP port on which nothing listens. It stays below the range from which systems take the ports of outgoing connections, so that
// none of those takes it before its server does.
func FreePort() (int, error) {
	for range 200 {
		port := 15000 + rand.IntN(17000)
		if CheckPort(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between 15000 and 32000")
}

// CheckPort tells whether port can be listened on, on every address of the machine.
func CheckPort(port int) error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return l.Close()
}
