//go:build linux

package compose

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"golang.org/x/sys/unix"
)

// bridge is a network of the file.
type bridge struct {
	name    string // in the file
	device  string
	subnet  netip.Prefix
	gateway netip.Addr
	open    bool // a way out leads through the gateway
	next    netip.Addr
	taken   map[netip.Addr]string // by which service
}

// host stands for the machine on which the containers run: the bridges are here, and here ports are published.
type host struct {
	*space
	namespace *os.File
	bridges   map[string]*bridge
	links     int // made so far: each needs a name
}

func newHost(networks types.Networks) (*host, error) {
	h := &host{bridges: map[string]*bridge{}}
	commands := []string{"link set lo up"}
	for i, name := range sorted(networks) {
		b, err := newBridge(name, i, networks[name])
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
		h.bridges[name] = b
		commands = append(commands,
			"link add "+b.device+" type bridge",
			fmt.Sprintf("addr add %s/%d dev %s", b.gateway, b.subnet.Bits(), b.device),
			"link set "+b.device+" up")
	}
	var err error
	h.space, err = newSpace(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("a network namespace: %w", err)
		}
		var err error
		if h.namespace, err = networkNamespace(); err != nil {
			return err
		}
		return ip(commands)
	})
	return h, err
}

// newBridge makes what there is to know of network number i. Without a subnet it gets one of its own.
func newBridge(name string, i int, n types.NetworkConfig) (*bridge, error) {
	b := &bridge{name: name, device: fmt.Sprintf("br%d", i), open: !n.Internal, taken: map[netip.Addr]string{}}
	pool := types.IPAMPool{Subnet: fmt.Sprintf("10.78.%d.0/24", i)}
	if len(n.Ipam.Config) > 1 {
		return nil, fmt.Errorf("more than one subnet")
	}
	if len(n.Ipam.Config) == 1 {
		pool = *n.Ipam.Config[0]
	}
	var err error
	if b.subnet, err = netip.ParsePrefix(pool.Subnet); err != nil {
		return nil, err
	}
	b.gateway = b.subnet.Addr().Next()
	if pool.Gateway != "" {
		if b.gateway, err = netip.ParseAddr(pool.Gateway); err != nil {
			return nil, err
		}
	}
	b.next = b.gateway
	if pool.IPRange != "" {
		free, err := netip.ParsePrefix(pool.IPRange)
		if err != nil {
			return nil, err
		}
		if !b.subnet.Overlaps(free) || free.Bits() < b.subnet.Bits() {
			return nil, fmt.Errorf("ip_range %s is not in %s", free, b.subnet)
		}
		b.next = free.Addr()
	}
	b.taken[b.gateway] = "the gateway"
	return b, nil
}

// reserve notes that a service has an address.
func (b *bridge) reserve(service, address string) (netip.Addr, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return a, err
	}
	if !b.subnet.Contains(a) {
		return a, fmt.Errorf("%s is not in %s", a, b.subnet)
	}
	if other, ok := b.taken[a]; ok {
		return a, fmt.Errorf("%s has the address %s already", other, a)
	}
	b.taken[a] = service
	return a, nil
}

// lease finds an address for a service.
func (b *bridge) lease(service string) (netip.Addr, error) {
	for b.taken[b.next] != "" {
		b.next = b.next.Next()
	}
	return b.reserve(service, b.next.String())
}

// attach makes an interface on a bridge whose other end is the interface device in the network namespace that the file describes.
func (h *host) attach(network, device string, namespace *os.File) error {
	return h.do(func() error {
		h.links++
		link := fmt.Sprintf("veth%d", h.links)
		return ip([]string{
			fmt.Sprintf("link add %s type veth peer name %s netns /proc/%d/fd/%d", link, device, os.Getpid(), namespace.Fd()),
			fmt.Sprintf("link set %s master %s up", link, h.bridges[network].device),
		})
	})
}

// join lets packets pass on a network, or none.
func (h *host) join(network string, joined bool) error {
	b, ok := h.bridges[network]
	if !ok {
		return fmt.Errorf("there is no network %s", network)
	}
	state := "down"
	if joined {
		state = "up"
	}
	return h.do(func() error { return ip([]string{"link set " + b.device + " " + state}) })
}

// dial connects from the host. It does so on a thread of its own, since it may take long. The socket is made on that as long as there is one
// address to try.
func (h *host) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	dialed := make(chan struct{})
	onOwnThread(func() {
		defer close(dialed)
		if err = unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	<-dialed
	return conn, err
}

// command runs a program on the host and returns what it prints.
func (h *host) command(name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.do(cmd.Start); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

func (h *host) close() {
	h.space.close()
	_ = h.namespace.Close()
}

// networkNamespace is the one that the calling thread is in.
func networkNamespace() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
}

// ip runs commands of ip(8) where the calling thread is.
func ip(commands []string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s(of: %s)", err, out, strings.Join(commands, "; "))
	}
	return nil
}
