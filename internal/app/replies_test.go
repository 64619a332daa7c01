package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestField_ErrorReplies: whatever a server says instead of an answer, the policy's mode decides, with status OK and the reason in a metric; and
// its breaker opens if others would be told the same.
func TestField_ErrorReplies(t *testing.T) {
	server := redistest.StartStandalone(t)
	for name, tt := range map[string]struct {
		reply string
		opens bool
	}{
		"oom":         {"-OOM command not allowed when used memory > 'maxmemory'.", true},
		"loading":     {"-LOADING Redis is loading the dataset in memory", true},
		"readonly":    {"-READONLY You can't write against a read only replica.", true},
		"clusterdown": {"-CLUSTERDOWN The cluster is down", true},
		"masterdown":  {"-MASTERDOWN Link with MASTER is down", true},
		"busy":        {"-BUSY Redis is busy running a script.", true},
		"maxclients":  {"-ERR max number of clients reached", true},
		"noauth":      {"-NOAUTH Authentication required.", true},
		"noperm":      {"-NOPERM this user has no permissions to run the 'evalsha' command", true},
		"misconf":     {"-MISCONF Redis is configured to save RDB snapshots", true},
		"noreplicas":  {"-NOREPLICAS Not enough good replicas to write.", true},
		"connection":  {"!garbage", true},
		"wrongtype":   {"-WRONGTYPE Operation against a key holding the wrong kind of value", false},
		"error":       {"-ERR anything", false},
		"reply":       {"$3\r\nabc", false},
		"redirects":   {"-MOVED 1 ", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.StartProxy(t, server)
			opts, log := options(t, modes)
			opts.Store, opts.StoreTimeout = "redis", 5*time.Second // there is always a reply
			opts.Redis.URLs, opts.Redis.Mode = []string{p.URL()}, "standalone"
			i := launch(t, opts, log)
			p.Say(tt.reply)
			for range 10 {
				require.Equal(t, "open", source(i.call("remote_address", "203.0.113.1", "mode", "open")))
				require.Equal(t, "closed", source(i.call("remote_address", "203.0.113.1", "mode", "closed")))
			}
			told := i.status().Store.Redis.Nodes[0]
			require.Equal(t, tt.opens, told.Breaker != "closed", told.Breaker)
			require.NotEmpty(t, i.metric(`envoy_rls_store_calls_total{node="`+p.Addr()+`",result="`+name+`"}`))
			if tt.opens {
				require.Contains(t, []string{name, "dial"}, told.Reason, "once a connection is lost there may be none")
			}

			p.Heal()
			began := time.Now()
			require.Eventually(t, func() bool {
				return source(i.call("remote_address", name+".test", "mode", "closed")) == "store"
			}, patience, 5*time.Millisecond)
			took := time.Since(began)
			require.True(t, took < time.Second+late() || !long(), "%v", took)
		})
	}
}
