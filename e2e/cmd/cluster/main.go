// Command cluster runs a Redis Cluster on this machine: four primaries and four replicas in two zones, until Ctrl-C. `make cluster` builds and
// starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

const (
	primaries = 4
	replicas  = 4

	busOffset = 10_000 // a node listens for the others this far above its port
)

func run() error {
	first, err := parse()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	ports, err := choosePorts(ctx, first)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envoy-rls-cluster-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	fmt.Println("starting", primaries, "primaries and", replicas, "replicas ...")
	ready, cancelReady := context.WithTimeout(ctx, time.Minute)
	defer cancelReady()
	c, err := redistest.NewCluster(ready, redistest.Options{Primaries: primaries, ReplicasEach: replicas / primaries, Ports: ports, Dir: dir})
	if ctx.Err() != nil {
		return nil // Ctrl-C while starting
	}
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Print(welcome(c))
	watch(ctx, c)
	fmt.Println("\nstopping")
	return nil
}

func parse() (first int, err error) {
	first = 7001
	if set := os.Getenv("CLUSTER_PORT"); set != "" {
		if first, err = strconv.Atoi(set); err != nil {
			return 0, fmt.Errorf("CLUSTER_PORT=%s is not a port", set)
		}
	}
	flag.IntVar(&first, "port", first, "the first of eight ports in a row; each node also listens 10000 above its own (also CLUSTER_PORT)")
	flag.Parse()
	if flag.NArg() > 0 {
		return 0, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if last := first + primaries + replicas - 1; first < 1 || last+busOffset > 65535 {
		return 0, fmt.Errorf("--port %d: ports have to be from 1 to %d", first, 65535-busOffset-primaries-replicas+1)
	}
	return first, nil
}

// choosePorts gives the ports of the nodes, or says which are taken.
func choosePorts(ctx context.Context, first int) ([]int, error) {
	var ports []int
	var taken []string
	for port := first; port < first+primaries+replicas; port++ {
		ports = append(ports, port)
		for _, needed := range []int{port, port + busOffset} {
			if childproc.CheckPort(ctx, needed) != nil {
				taken = append(taken, strconv.Itoa(needed))
			}
		}
	}
	if len(taken) > 0 {
		return nil, errors.New("taken by other programs (another `make cluster`?): port " + strings.Join(taken, ", ") +
			"\n  take others with CLUSTER_PORT=PORT or --port PORT: the first of eight in a row")
	}
	return ports, nil
}

func welcome(c *redistest.Cluster) string {
	var nodes, urls strings.Builder
	for i, node := range c.Nodes {
		role := fmt.Sprintf("slots %5d-%d", i*16384/primaries, (i+1)*16384/primaries-1)
		if i >= primaries {
			role = fmt.Sprintf("replica of %d", c.Nodes[i%primaries].Port)
		}
		fmt.Fprintf(&nodes, "  %s   zone %s   pid %-7d %s\n", node.Addr(), node.Zone, node.Pid(), role)
		if i < primaries {
			fmt.Fprintf(&urls, " --redis-url %s", node.URL())
		}
	}
	return fmt.Sprintf(`
Ready: a Redis Cluster in two zones; nothing is kept on disk.
%s
The service on it:
  bin/envoy-rls serve --store redis --redis-mode cluster%s
The demo on it (service twice, and Envoy):
  make run STORE=redis REDIS_URL=%s
A look inside:
  redis-cli -c -p %d

kill -9 PID of a primary: its replica takes over in two seconds. Ctrl-C stops everything.
`, &nodes, &urls, c.Nodes[0].URL(), c.Nodes[0].Port)
}

// watch tells of each node that ends, until Ctrl-C.
func watch(ctx context.Context, c *redistest.Cluster) {
	ended := make(chan *redistest.Server)
	for _, node := range c.Nodes {
		go func() {
			select {
			case <-node.Done():
			case <-ctx.Done():
				return
			}
			select {
			case ended <- node:
			case <-ctx.Done():
			}
		}()
	}
	for {
		select {
		case node := <-ended:
			fmt.Println("node", node.Addr(), "has ended")
		case <-ctx.Done():
			return
		}
	}
}
