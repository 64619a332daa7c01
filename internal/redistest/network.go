package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Network has zone b of a cluster in a network namespace of its own, joined to the machine's by a bridge, so that it can be cut off. It needs
// Linux and root, and is there until [Network.Close], also if the program that made it was killed: the next one to make a network removes those
// of programs that have ended.
//
// A second link leads from here to zone b, which is never cut off: on it a test speaks with programs there. No node has an address on it.
type Network struct {
	name   string // of the bridge, the namespace and the bridge's port
	here   string // the address of the bridge: zone a
	away   string // the address in the namespace: zone b
	always string // the address in the namespace on the link that stays
}

// networkPrefix begins the names of all that networks are made of. The number of the process follows.
const networkPrefix = "erls"

// NewNetwork makes a network.
func NewNetwork(ctx context.Context) (*Network, error) {
	if err := removeOrphans(ctx); err != nil {
		return nil, err
	}
	third := rand.IntN(256)
	n := &Network{
		name:   networkPrefix + strconv.Itoa(os.Getpid()),
		here:   fmt.Sprintf("10.213.%d.1", third),
		away:   fmt.Sprintf("10.213.%d.2", third),
		always: fmt.Sprintf("10.214.%d.2", third),
	}
	port := n.port()
	for _, command := range []string{
		"link add " + n.name + " type bridge",
		"addr add " + n.here + "/24 dev " + n.name,
		"link set " + n.name + " up",
		"netns add " + n.name,
		"link add " + port + " type veth peer name eth0 netns " + n.name,
		"link set " + port + " master " + n.name + " up",
		"-n " + n.name + " addr add " + n.away + "/24 dev eth0",
		"-n " + n.name + " link set eth0 up",
		"-n " + n.name + " link set lo up",
		"link add " + n.link() + " type veth peer name eth1 netns " + n.name,
		"addr add " + strings.TrimSuffix(n.always, "2") + "1/24 dev " + n.link(),
		"link set " + n.link() + " up",
		"-n " + n.name + " addr add " + n.always + "/24 dev eth1",
		"-n " + n.name + " link set eth1 up",
	} {
		if err := ip(ctx, command); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// StartNetwork makes a network that ends with the test. Only root can: others skip the test.
func StartNetwork(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	n, err := NewNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *Network) port() string { return n.name + "b" }

func (n *Network) link() string { return n.name + "c" }

// Away is the address at which programs in zone b are reached from here, cut off or not.
func (n *Network) Away() string { return n.always }

// Command is a command that runs in a zone: a or b.
func (n *Network) Command(zone, name string, args ...string) *exec.Cmd {
	return n.command(zone, name, args)
}

// Close removes the network. Nothing of a cluster may run in it any more.
func (n *Network) Close() error { return removeNetwork(context.Background(), n.name) }

// removeNetwork removes what there is of a network.
func removeNetwork(ctx context.Context, name string) error {
	var errs []error
	for _, part := range []struct{ list, remove, name string }{
		{listPorts, "link del ", name + "b"}, // its other end goes with it
		{listPorts, "link del ", name + "c"},
		{listSpaces, "netns del ", name},
		{listBridges, "link del ", name},
	} {
		there, err := listed(ctx, part.list)
		if errs = append(errs, err); there[part.name] {
			errs = append(errs, ip(ctx, part.remove+part.name))
		}
	}
	return errors.Join(errs...)
}

// removeOrphans removes the networks of processes that have ended.
func removeOrphans(ctx context.Context) error {
	for _, list := range []string{listBridges, listSpaces} {
		names, err := listed(ctx, list)
		if err != nil {
			return err
		}
		for name := range names {
			pid, err := strconv.Atoi(strings.TrimPrefix(name, networkPrefix))
			if err != nil || !strings.HasPrefix(name, networkPrefix) || alive(pid) {
				continue
			}
			if err := removeNetwork(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

const (
	listBridges = "-br link show type bridge"
	listPorts   = "-br link show type veth"
	listSpaces  = "netns list"
)

// listed returns the names in a list of ip: each is the first word of a line, up to an @.
func listed(ctx context.Context, list string) (map[string]bool, error) {
	text, err := ipOutput(ctx, list)
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			name, _, _ := strings.Cut(words[0], "@")
			names[name] = true
		}
	}
	return names, err
}

// host is the address of a zone's nodes.
func (n *Network) host(zone string) string {
	if zone == "b" {
		return n.away
	}
	return n.here
}

// command makes a command run where a zone is.
func (n *Network) command(zone, name string, args []string) *exec.Cmd {
	if zone == "b" {
		return exec.Command("ip", append([]string{"netns", "exec", n.name, name}, args...)...)
	}
	return exec.Command(name, args...)
}

func ip(ctx context.Context, arguments string) error {
	_, err := ipOutput(ctx, arguments)
	return err
}

func ipOutput(ctx context.Context, arguments string) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(arguments)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", arguments, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// CutOff cuts zone b off from all the rest: what is sent to it, and from it, vanishes. Its nodes reach one another. The cluster needs
// [Options.Network].
func (c *Cluster) CutOff(ctx context.Context) error { return c.join(ctx, false) }

// Rejoin ends CutOff.
func (c *Cluster) Rejoin(ctx context.Context) error { return c.join(ctx, true) }

func (c *Cluster) join(ctx context.Context, joined bool) error {
	n := c.o.Network
	if n == nil {
		return errors.New("the cluster was started without Options.Network")
	}
	state := "down"
	if joined {
		state = "up"
	}
	if err := ip(ctx, "link set "+n.port()+" "+state); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		node.mu.Lock()
		node.away = !joined && node.Zone == "b"
		node.mu.Unlock()
	}
	return nil
}
