package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

const (
	firstToken  = "0123456789abcdef-first-token"
	secondToken = "0123456789abcdef-second-token"
)

const generous = `
domain: edge
policies:
  - {id: all, match: {apiKey: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: local}
`

// TestEverythingIsRenewedUnderLoad: the certificates of both sides, those who vouch for them, what the service shows Redis, Redis' password and the token
// of who changes things are changed while requests go through the real Envoy. No request gets another answer than its own, Envoy decides none itself,
// and nobody at the admin address is turned away.
func TestEverythingIsRenewedUnderLoad(t *testing.T) {
	l := newSecureLab(t, generous, func(*harness.Options) {})
	clients := make(chan *harness.Client, 64)
	t.Cleanup(func() {
		for len(clients) > 0 {
			(<-clients).Close()
		}
	})
	perSecond, least := 200, 500
	if long() {
		perSecond, least = 2000, 10_000
	}
	load := faults.StartLoad(faults.LoadOptions{
		PerSecond: perSecond,
		Next:      func(int) faults.Call { return faults.Call{Policy: "all", Mode: "local"} },
		Ask: func(ctx context.Context, n int, _ faults.Call) (harness.Answer, error) {
			return l.request(ctx, clients, n)
		},
	}, nil)
	t.Cleanup(func() { load.Stop() })
	stopPolling := l.pollAdmin()

	l.renewServers()
	l.renewClients()
	l.renewRedis()
	l.renewPassword()
	l.renewToken()
	l.until("enough calls", func() error {
		if n := len(load.Recent(0)); n < least {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})

	require.Empty(t, stopPolling(), "the admin address")
	for _, d := range load.Stop().Decisions {
		require.NoError(t, d.Err)
		require.True(t, d.Allowed)
	}
	unasked, err := l.Unasked(t.Context())
	require.NoError(t, err)
	require.Zero(t, unasked, "requests that Envoy decided itself")
	require.Zero(t, l.metric(`envoy_rls_tls_handshake_failures_total`))
	require.Zero(t, l.metric(`envoy_rls_certificate_reload_failing`))
	for _, use := range []string{"grpc", "admin", "redis"} {
		require.NotZero(t, l.metric(`envoy_rls_certificate_reload_total{result="success",use="`+use+`"}`), use)
	}
	t.Logf("%d requests; %v buckets decided by shares, of connections to Redis that were cut", len(load.Stop().Decisions), l.metric("envoy_rls_unanswered_buckets_total"))
}

// request sends request n through Envoy, on a connection of many.
func (l *secureLab) request(ctx context.Context, clients chan *harness.Client, n int) (harness.Answer, error) {
	var client *harness.Client
	select {
	case client = <-clients:
	default:
		client = &harness.Client{Addr: l.Options.Listen}
	}
	answer, err := client.Do(ctx, harness.Request{Method: "GET", Target: "/", Header: []string{fmt.Sprint("x-api-key: key-", n%50)}})
	select {
	case clients <- client:
	default:
		client.Close()
	}
	switch {
	case err != nil:
		return harness.Answer{}, err
	case answer.Status != 200 || answer.Header.Get("RateLimit") == "":
		return harness.Answer{}, fmt.Errorf("answered %v", answer)
	}
	return harness.Answer{Allowed: true, Policy: "all", Source: "store"}, nil
}

// renewServers: another authority, and what it signed, for the service.
func (l *secureLab) renewServers() {
	l.Helper()
	old := l.servers
	l.servers = l.authority()
	l.put(l.in("envoy", "ca.crt"), append(old.PEM, l.servers.PEM...))
	l.knows("the new authority of the service", l.servers.Serial())
	l.polled()
	l.renewServer()
	l.reconnected()
	l.put(l.in("envoy", "ca.crt"), l.servers.PEM)
	l.reconnected()
}

// renewClients: the same for Envoy.
func (l *secureLab) renewClients() {
	l.Helper()
	old := l.clients
	l.clients = l.authority()
	l.put(l.in("service", "ca.crt"), append(old.PEM, l.clients.PEM...))
	l.knows("its new certificate", l.renewClient())
	l.reconnected()
	l.put(l.in("service", "ca.crt"), l.clients.PEM)
	l.reconnected()
}

// renewRedis: another authority and certificates for both Redis and the service, and new connections. The service trusts the new authority, and Redis both.
func (l *secureLab) renewRedis() {
	l.Helper()
	require.NoError(l, l.redis.RenewCertificates(l.Context()))
	l.followRedis()
	l.do("CLIENT", "KILL", "USER", limiterUser)
	l.decided("after Redis' certificates")
}

// renewPassword: Redis takes both, then the service has the new one, then the old one is taken away.
func (l *secureLab) renewPassword() {
	l.Helper()
	l.do("ACL", "SETUSER", limiterUser, ">"+secondPassword)
	l.put(l.in("service", "password"), []byte(secondPassword))
	l.do("ACL", "SETUSER", limiterUser, "<"+firstPassword)
	l.do("CLIENT", "KILL", "USER", limiterUser)
	l.decided("after Redis' password")
}

// renewToken: both are good, then people change to the new one, then the old one is taken away.
func (l *secureLab) renewToken() {
	l.Helper()
	l.put(l.in("service", "tokens"), []byte("ops "+firstToken+"\nops "+secondToken+"\n"))
	l.polled()
	second := secondToken
	l.token.Store(&second)
	l.polled()
	l.put(l.in("service", "tokens"), []byte("ops "+secondToken+"\n"))
	for i := range l.Services {
		status, err := l.change(i, firstToken)
		require.NoError(l, err)
		require.Equal(l, http.StatusUnauthorized, status)
	}
	l.polled()
}

// decided waits until both instances have asked Redis again.
func (l *secureLab) decided(when string) {
	l.Helper()
	const answered = `envoy_rls_decisions_total{outcome="allowed",policy="all",source="store"}`
	before := l.metric(answered)
	l.until("decisions of Redis "+when, func() error {
		if now := l.metric(answered); now < before+100 {
			return fmt.Errorf("%v, %v before", now, before)
		}
		return nil
	})
}
