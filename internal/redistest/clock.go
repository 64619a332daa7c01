package redistest

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed shim/clock.c
var shimSource []byte

// clock is how a server's time is moved: a library that is loaded before all others adds what stands in a file to the time of day.
type clock struct{ shim, file string }

func (c *clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.shim, "REDISTEST_CLOCK=" + c.file}
}

// set writes in place: the server has the file mapped.
func (c *clock) set(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return errors.Join(err, f.Close())
}

// SetClock makes the server's time of day differ by offset from the machine's, from now on. It needs [Options.MovingClock]. A restart keeps it.
func (s *Server) SetClock(offset time.Duration) error {
	if s.clock == nil {
		return errors.New("the server was started without Options.MovingClock")
	}
	return s.clock.set(offset)
}

// buildShim compiles the library into dir.
func buildShim(ctx context.Context, dir string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("a moving clock needs Linux")
	}
	source, library := filepath.Join(dir, "shim.c"), filepath.Join(dir, "shim.so")
	if err := os.WriteFile(source, shimSource, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the moving clock: gcc: %w\n%s", err, out)
	}
	return library, nil
}
