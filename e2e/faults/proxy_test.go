package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// proxyHost is the address at which clients find the nodes of a cluster behind proxies.
const proxyHost = "127.0.0.2"

// behindProxies starts a cluster each of whose nodes has a proxy, on the same port of another address. Clients are told that address; nodes speak
// with each other directly.
func behindProxies(t *testing.T) (*redistest.Cluster, map[*redistest.Server]*redistest.Proxy) {
	t.Helper()
	cluster := redistest.StartCluster(t, redistest.Options{Config: []string{
		"cluster-announce-hostname " + proxyHost, "cluster-preferred-endpoint-type hostname",
	}})
	proxies := map[*redistest.Server]*redistest.Proxy{}
	for _, node := range cluster.Nodes {
		p, err := redistest.NewProxy(t.Context(), fmt.Sprint(proxyHost, ":", node.Port), node.Addr())
		require.NoError(t, err)
		t.Cleanup(p.Close)
		proxies[node] = p
	}
	return cluster, proxies
}

// spoil is a way in which what a node says can be wrong while the server itself is well.
type spoil struct {
	name    string
	reasons string // in the metric, one of which has to be there; others may be
	do      func(*redistest.Proxy)
}

// spoils are all of them.
func spoils() []spoil {
	say := func(reply string) func(*redistest.Proxy) { return func(p *redistest.Proxy) { p.Say(reply) } }
	return []spoil{
		{"replies 20 ms late", "timeout", func(p *redistest.Proxy) { p.Delay(20 * time.Millisecond) }},
		{"replies lost after delivery", "timeout", (*redistest.Proxy).Lose},
		// The first call on each connection meets this, if its caller waits so long. From then on none can be made.
		{"replies cut in the middle", "connection dial", (*redistest.Proxy).Halve},
		{"connections cut and refused", "dial", func(p *redistest.Proxy) { p.Refuse(); p.Cut() }},
		{"garbage", "connection dial", say("!garbage")},
		{"replies of another type", "reply", say("$3\r\nabc")},
		{"OOM", "oom", say("-OOM command not allowed when used memory > 'maxmemory'.")},
		{"LOADING", "loading", say("-LOADING Redis is loading the dataset in memory")},
		{"READONLY", "readonly", say("-READONLY You can't write against a read only replica.")},
		{"CLUSTERDOWN", "clusterdown", say("-CLUSTERDOWN The cluster is down")},
		{"MASTERDOWN", "masterdown", say("-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")},
		{"BUSY", "busy", say("-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")},
		{"max clients", "maxclients", say("-ERR max number of clients reached")},
		{"NOAUTH", "noauth", say("-NOAUTH Authentication required.")},
		{"NOPERM", "noperm", say("-NOPERM this user has no permissions to run the 'evalsha' command")},
		{"MISCONF", "misconf", say("-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.")},
		{"WRONGTYPE", "wrongtype", say("-WRONGTYPE Operation against a key holding the wrong kind of value")},
	}
}

// labBehindProxies is a lab that reaches its nodes through proxies. The one returned is that of the victim.
func labBehindProxies(t *testing.T) (*lab, *redistest.Proxy) {
	t.Helper()
	cluster, proxies := behindProxies(t)
	var urls []string
	for _, p := range proxies {
		urls = append(urls, p.URL())
	}
	l := newLab(t, labSetup{cluster: cluster, urls: urls})
	return l, proxies[l.primary(victim)]
}

// TestConnectionsSpoilt: what one primary says is late, lost, cut short, nonsense or an error, while the server itself is well. Each time its keys are
// answered by the failure modes, and by the store again afterwards.
func TestConnectionsSpoilt(t *testing.T) {
	l, p := labBehindProxies(t)
	l.warm()
	tests := spoils()
	lasts, rest := 200*time.Millisecond, 700*time.Millisecond
	if long() {
		lasts, rest = 3*time.Second, 2*time.Second
	}
	load := l.start(l.mix)
	time.Sleep(before)
	var spans []faults.Span
	for _, test := range tests {
		counted := l.unanswered(test.reasons)
		s := faults.Span{From: load.Mark(test.name)}
		test.do(p)
		time.Sleep(lasts)
		// Of a short fault, timeouts may be all that a busy machine sees, until a probe meets it.
		for l.unanswered(test.reasons) == counted {
			require.Less(t, load.Now()-s.From, patience, "no metric tells of %s", test.name)
			time.Sleep(20 * time.Millisecond)
		}
		p.Heal()
		s.To = load.Mark("healed")
		spans = append(spans, s)
		time.Sleep(rest)
	}
	r := load.Stop()
	l.show(r)
	l.require(r.CheckAnswered(), r.CheckModes())
	l.requireInTime(r, r.CheckInTime(storeTimeout))
	for n, s := range spans {
		part := r.Between(faults.Span{From: s.From - rest/2, To: s.To + rest})
		trouble := faults.Span{From: rest / 2, To: rest/2 + s.To - s.From}
		t.Logf("%s: the store decides again %v after it can", tests[n].name, part.Again(trouble.To, victim))
		l.require(part.CheckTrace(trouble, victim), part.CheckAgain(trouble.To, victim, rest-200*time.Millisecond))
		l.requireInTime(part, part.CheckAlone(trouble.To, victim, rest-100*time.Millisecond), part.CheckUntouched(trouble, others(victim)...))
	}
	for shard := range shards {
		l.requireBound(fmt.Sprint("scarce bucket on shard ", shard), admitted(r, shard, "scarce"), scarcity)
	}
}

// unanswered is how many buckets the store did not answer for any of these reasons.
func (l *lab) unanswered(reasons string) float64 {
	l.Helper()
	total := 0.0
	for _, reason := range strings.Fields(reasons) {
		total += l.sum("envoy_rls_unanswered_buckets_total", `reason="`+reason+`"`)
	}
	return total
}

// sum adds up the series of a metric over all instances.
func (l *lab) sum(metric string, labels ...string) float64 {
	l.Helper()
	total := 0.0
	for _, i := range l.fleet {
		n, err := i.Sum(context.Background(), metric, labels...)
		require.NoError(l, err)
		total += n
	}
	return total
}
