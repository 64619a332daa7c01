//go:build linux

package compose

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"golang.org/x/sys/unix"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// container is a service of the file and what it runs in.
type container struct {
	service   types.ServiceConfig
	image     *image
	addresses map[string]netip.Addr // by network
	hosts     string                // what /etc/hosts says
	dir       string                // on this machine
	demo      *Demo

	space     *space
	root      root
	namespace *os.File // of the network
	process   *harness.Process

	started, healthy, ended chan struct{} // closed when that has happened for the first time
}

// create makes the namespaces in which the processes run, and joins them to the networks.
func (c *container) create() error {
	if err := c.makeRoot(); err != nil {
		return err
	}
	var err error
	c.space, err = newSpace(c.enter)
	if err != nil {
		return err
	}
	commands := []string{"link set lo up"}
	for i, network := range sorted(c.addresses) {
		device := fmt.Sprintf("eth%d", i)
		if err := c.demo.host.attach(network, device, c.namespace); err != nil {
			return err
		}
		b := c.demo.host.bridges[network]
		commands = append(commands,
			fmt.Sprintf("addr add %s/%d dev %s", c.addresses[network], b.subnet.Bits(), device),
			"link set "+device+" up")
		if b.open && len(commands) < 4 {
			commands = append(commands, "route add default via "+b.gateway.String())
		}
	}
	return c.space.do(func() error { return errors.Join(ip(commands), c.sysctl()) })
}

// sysctl makes the settings of the network that the file asks for.
func (c *container) sysctl() error {
	for name, value := range c.service.Sysctls {
		// Seen from a thread, these are the settings of its own namespace.
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// enter moves the calling thread into namespaces of its own.
func (c *container) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if err := unix.Sethostname([]byte(c.hostname())); err != nil {
		return err
	}
	var err error
	if c.namespace, err = networkNamespace(); err != nil {
		return err
	}
	if err := c.root.enter(); err != nil {
		return err
	}
	// What the processes inherit: they never get more rights than they have.
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func (c *container) hostname() string { return cmp.Or(c.service.Hostname, c.service.Name) }

func (c *container) user() string { return cmp.Or(c.service.User, c.image.user) }

// line is the command line of the container: what the file says, else what the image does.
func (c *container) line() []string {
	entrypoint, command := c.image.entrypoint, c.image.command
	if c.service.Entrypoint != nil {
		entrypoint, command = c.service.Entrypoint, nil
	}
	if c.service.Command != nil {
		command = c.service.Command
	}
	line := append(entrypoint[:len(entrypoint):len(entrypoint)], command...)
	if c.image.setup != "" && c.service.Entrypoint == nil {
		line = append([]string{"sh", "-c", c.image.setup, "entrypoint"}, line...)
	}
	return line
}

// command makes a command that runs in the container. It has to be started on the container's thread.
func (c *container) command(line []string) (*exec.Cmd, error) {
	uid, gid, err := owner(c.user())
	if err != nil {
		return nil, err
	}
	if len(line) == 0 {
		return nil, errors.New("neither the file nor the image says what to run")
	}
	path := cmp.Or(c.image.env["PATH"], toolPath)
	program, err := c.root.find(line[0], path)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: line, Env: []string{"PATH=" + path, "HOME=/", "HOSTNAME=" + c.hostname()}}
	for _, name := range sorted(c.image.env) {
		cmd.Env = append(cmd.Env, name+"="+c.image.env[name])
	}
	for _, name := range sorted(c.service.Environment) {
		if value := c.service.Environment[name]; value != nil {
			cmd.Env = append(cmd.Env, name+"="+*value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}} //nolint:gosec // checked numbers
	c.root.confine(cmd, cmp.Or(c.service.WorkingDir, c.image.dir))
	return cmd, nil
}

// start starts the process of the container.
func (c *container) start() error {
	return c.space.do(func() error {
		cmd, err := c.command(c.line())
		if err != nil {
			return err
		}
		c.process, err = harness.StartProcess(c.service.Name, cmd, c.demo.logs)
		return err
	})
}

// run runs a command in the container and returns what it prints. It ends with ctx.
func (c *container) run(ctx context.Context, line []string) (string, error) {
	var out bytes.Buffer
	var cmd *exec.Cmd
	err := c.space.do(func() (err error) {
		if cmd, err = c.command(line); err != nil {
			return err
		}
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
		return cmd.Start()
	})
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	err = cmd.Wait()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return strings.TrimSpace(out.String()), err
}

// stop asks the process to end, and ends it by force after the grace period.
func (c *container) stop() {
	grace := 10 * time.Second
	if c.service.StopGracePeriod != nil {
		grace = time.Duration(*c.service.StopGracePeriod)
	}
	if c.image.stop != 0 {
		_ = c.process.Signal(c.image.stop) // fails only if it has ended
	}
	c.process.Stop(grace)
}

// remove takes down what create made, and with the thread all that runs on it. A process that needs to end in order is given the time.
func (c *container) remove() {
	if c.process != nil {
		if c.image.stop != 0 {
			c.stop()
		}
		_ = c.process.Signal(syscall.SIGKILL) // fails only if it has ended
		<-c.process.Done()
	}
	if c.space != nil {
		c.space.close()
	}
	if c.namespace != nil {
		_ = c.namespace.Close()
	}
}
