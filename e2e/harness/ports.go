package harness

import (
	"context"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// FreePort finds a TCP port on which nothing listens.
func FreePort() (int, error) { return childproc.FreePort(context.Background()) }

// CheckPort tells whether port can be listened on, on every address of the machine.
func CheckPort(port int) error { return childproc.CheckPort(context.Background(), port) }
