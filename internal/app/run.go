package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/internal/gcpace"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// ErrForced is what Stop returns if calls under way had to be cut off.
var ErrForced = errors.New("stopped before all calls were answered")

// Run starts the service and runs it until ctx ends, SIGINT or SIGTERM comes from signals, or a server fails. A second of these
// signals ends the drain and soon cuts off the calls under way; SIGHUP reads the policies again. The error says what kept it from starting or
// serving, or is ErrForced.
func (a *App) Run(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	sorted := sortSignals(ctx, signals)
	defer sorted.done.Wait()
	defer cancel()
	if serving, err := a.startUnless(ctx, sorted.stop); !serving {
		return err
	}
	defer gcpace.Start()()
	go a.reloadOn(ctx, sorted.reload) // ends by itself, like the reading of files that it may be in
	cause := a.wait(ctx, sorted.stop)
	stopping, force := context.WithCancel(context.Background())
	defer force()
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(stopping) }()
	for {
		select {
		case err := <-stopped:
			return errors.Join(cause, err)
		case sig := <-sorted.stop:
			a.log.Warn("stopping at once", "signal", sig.String())
			force()
		}
	}
}

// startUnless starts the service unless a signal to stop comes before it serves. Reading files cannot be broken off, and must
// not keep the program when it hangs, as on a dead network disk: it is then left to end by itself.
func (a *App) startUnless(ctx context.Context, stop chan os.Signal) (serving bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- a.Start(ctx) }()
	select {
	case err := <-started:
		return err == nil, err
	case sig := <-stop:
		a.log.Info("stopping before it served", "signal", sig.String())
		cancel()
		select {
		case err := <-started:
			if err != nil {
				return false, nil
			}
			stop <- sig // it had just begun to serve after all
			return true, nil
		case <-time.After(a.opts.ForcedTimeout):
			return false, nil
		}
	}
}

// orders are signals by what they ask for. Many of one kind count as one or two, and none hides another kind.
type orders struct {
	stop   chan os.Signal
	reload chan struct{}
	done   sync.WaitGroup
}

func sortSignals(ctx context.Context, signals <-chan os.Signal) *orders {
	o := &orders{stop: make(chan os.Signal, 2), reload: make(chan struct{}, 1)}
	o.done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				o.put(sig)
			}
		}
	})
	return o
}

func (o *orders) put(sig os.Signal) {
	if sig == syscall.SIGHUP {
		select {
		case o.reload <- struct{}{}:
		default:
		}
		return
	}
	select {
	case o.stop <- sig:
	default:
	}
}

func (a *App) reloadOn(ctx context.Context, orders <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-orders:
			_ = a.Reload(ctx) // logged and counted
		}
	}
}

// wait returns when the service is to stop: nil if it was told so, else what broke.
func (a *App) wait(ctx context.Context, stop <-chan os.Signal) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.broken:
		a.log.Error("cannot serve", "error", err)
		return err
	case sig := <-stop:
		a.log.Info("stopping", "signal", sig.String(), "drain", a.opts.DrainDelay)
		return nil
	}
}

// Start loads the policies and begins to serve. It returns once every listener is open, or with what is wrong (every fault of the
// policy files) and nothing left running.
func (a *App) Start(ctx context.Context) error {
	a.started = time.Now()
	if err := a.checkPolicies(); err != nil {
		return err
	}
	if _, err := a.source.Load(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	a.warnOfSecrets()
	// In the order in which they are stopped last.
	for _, start := range []func() error{a.startAdmin, a.startPage, a.startDebug, a.startTracing, a.startStore, a.startGRPC, a.startSource} {
		if err := start(); err != nil {
			return errors.Join(err, a.closers.close(ctx))
		}
	}
	a.serving.Store(true)
	a.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	a.health.SetServingStatus(rls.ServiceName, healthpb.HealthCheckResponse_SERVING)
	a.log.Info("serving", "grpc", a.grpcAddr.String(), "admin", a.adminAddr.String(), "version", a.opts.Version)
	return nil
}

// Reload reads the policy files, or asks the database, now, without waiting for an event. An error says why the old policies stay.
func (a *App) Reload(ctx context.Context) error {
	_, err := a.source.Load(ctx)
	return err
}

// Stop says NOT_SERVING, goes on answering for the drain delay, then ends: calls under way are answered if they take no longer
// than the stop timeout, or the forced timeout once ctx has ended, and cut off (ErrForced) after that. The admin pages stay until the end.
func (a *App) Stop(ctx context.Context) error {
	a.serving.Store(false)
	a.health.Shutdown()
	delay := time.NewTimer(a.opts.DrainDelay)
	defer delay.Stop()
	select {
	case <-ctx.Done():
	case <-delay.C:
	}
	err := a.closers.close(ctx)
	a.log.Info("stopped")
	return err
}

func (a *App) startGRPC() error {
	withTLS, err := a.grpcTLS()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", a.opts.GRPCAddr)
	if err != nil {
		return fmt.Errorf("grpc-addr: %w", err)
	}
	a.grpcAddr = listener.Addr()
	server := grpc.NewServer(append(rls.ServerOptions(), withTLS...)...)
	rls.Register(server, a.handler())
	healthpb.RegisterHealthServer(server, a.health)
	reflection.Register(server)
	done := a.serve("grpc", func() error { return server.Serve(listener) })
	a.closers.push(func(ctx context.Context) error {
		defer func() { <-done }()
		return a.stopGRPC(ctx, server)
	})
	return nil
}

// stopGRPC lets calls under way finish for at most the stop timeout; once ctx has ended, for the forced timeout.
func (a *App) stopGRPC(ctx context.Context, server *grpc.Server) error {
	graceful := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(graceful)
	}()
	patience := time.NewTimer(a.opts.StopTimeout)
	defer patience.Stop()
	forced := ctx.Done()
	for {
		select {
		case <-graceful:
			return nil
		case <-forced:
			forced = nil
			patience.Reset(min(a.opts.ForcedTimeout, a.opts.StopTimeout))
		case <-patience.C:
			server.Stop() // ends GracefulStop too
			<-graceful
			return ErrForced
		}
	}
}

func (a *App) startAdmin() error {
	gate, err := a.openGate()
	if err != nil {
		return err
	}
	o := admin.Options{
		Ready: a.notReady, Set: a.source.Set, Status: a.status, Metrics: a.metrics.Handler(), Authorize: gate.Authorize,
		Explain: explain.Handler(a.source.Set, a.store), Instances: a.instances,
		Home: a.page.Home(), Routes: a.page.Routes(), ResolveKey: a.resolveKey,
	}
	o.Buckets = a.bucketPages(&o)
	server := admin.Server(a.guard(admin.Handler(o)), 30*time.Second)
	if server.TLSConfig, err = a.adminTLS(); err != nil {
		return err
	}
	a.adminAddr, err = a.startHTTP("admin-addr", a.opts.AdminAddr, server)
	return err
}

func (a *App) startDebug() error {
	if a.opts.DebugAddr == "" {
		return nil
	}
	var err error
	a.debugAddr, err = a.startHTTP("debug-addr", a.opts.DebugAddr, admin.Server(admin.DebugHandler(), 0))
	return err
}

func (a *App) startHTTP(name, addr string, server *http.Server) (net.Addr, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	server.ErrorLog = a.httpLog(useAdmin)
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	done := a.serve(name, func() error {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	a.closers.push(func(ctx context.Context) error {
		defer func() { <-done }()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if server.Shutdown(ctx) == nil {
			return nil
		}
		return server.Close() // a profile or a slow reader: not worth waiting for
	})
	return listener.Addr(), nil
}

// serve runs a server. The channel is closed when it has ended.
func (a *App) serve(name string, run func() error) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(); err != nil {
			a.broken <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	return done
}
