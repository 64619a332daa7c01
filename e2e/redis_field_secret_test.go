package e2e_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// The passwords have what ends a user, a host or a path in a URL.
const (
	firstPassword  = "f1rst@:/,#%secret"
	secondPassword = "sec0nd@:/,#%secret"
)

// requireSilent checks that nothing that the service tells has a password in it, as it is or escaped, or the part after a character that ends
// something in a URL.
func requireSilent(t *testing.T, f *fleet) {
	t.Helper()
	for _, i := range f.instances {
		told := i.Log.String()
		for _, page := range []string{"/metrics", "/api/v1/status"} {
			text, err := harness.Get(t.Context(), "http://"+i.Admin+page)
			require.NoError(t, err)
			told += text
		}
		for _, secret := range []string{firstPassword, secondPassword, url.QueryEscape(firstPassword), "f1rst", "sec0nd", "secret"} {
			require.NotContains(t, told, secret)
		}
	}
}

// fails waits until the failure mode decides for a reason, of which the log tells.
func (f *fleet) fails(t *testing.T, reason, told string) {
	t.Helper()
	f.await(t, "failures for "+reason, func() bool {
		_, err := f.call(0, harness.Attributes("mode", "closed", "tenant", "acme"))
		return err == nil && f.sum(t, "envoy_rls_unanswered_buckets_total", `reason="`+reason+`"`) > 0 && strings.Contains(f.instances[0].Log.String(), told)
	})
}

func TestField_Passwords(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	do := func(args ...any) {
		t.Helper()
		_, err := server.Do(context.Background(), args...)
		require.NoError(t, err)
	}
	do("ACL", "SETUSER", "app", "on", ">"+firstPassword, "~rl:*", "&*", "+@all")
	start := func(t *testing.T, url string, args ...string) *fleet {
		return startFleet(t, fleetSetup{policies: failing, urls: []string{url}, timeout: 2 * time.Second, args: args})
	}
	t.Run("odd, in the URL", func(t *testing.T) {
		for _, written := range []string{strings.ReplaceAll(firstPassword, "%", "%25"), url.QueryEscape(firstPassword)} {
			f := start(t, "redis://app:"+written+"@"+server.Addr())
			f.admits(t, "acme")
			require.Zero(t, f.unanswered(t))
			requireSilent(t, f)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		f := start(t, "redis://app:"+url.QueryEscape(secondPassword)+"@"+server.Addr(), "--redis-mode", "standalone")
		f.fails(t, "noauth", "WRONGPASS")
		requireSilent(t, f)
	})
	t.Run("in a URL that is none", func(t *testing.T) {
		i, err := harness.StartInstance(t.Context(), binaries.service, []string{
			"serve", "--policies", writePolicies(t, failing), "--store", "redis", "--redis-url", "redis://app:" + firstPassword + "@" + server.Addr(),
		}, nil)
		require.Nil(t, i)
		require.ErrorContains(t, err, "write it %25")
		require.NotContains(t, err.Error(), "secret")
	})
	t.Run("changed while serving", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte(firstPassword+"\n"), 0o600))
		f := start(t, "redis://app@"+server.Addr(), "--redis-password-file", file)
		f.admits(t, "acme")
		require.Zero(t, f.unanswered(t))
		// As one should: the new one is let in first, then told, then the old one is taken away.
		do("ACL", "SETUSER", "app", ">"+secondPassword)
		require.NoError(t, os.WriteFile(file, []byte(secondPassword+"\n"), 0o600))
		do("ACL", "SETUSER", "app", "<"+firstPassword)
		do("CLIENT", "KILL", "USER", "app")
		f.admits(t, "acme")
		require.NotContains(t, f.instances[0].Log.String(), "WRONGPASS")
		// As it happens: the old one is taken away first.
		do("ACL", "SETUSER", "app", ">"+firstPassword, "<"+secondPassword)
		do("CLIENT", "KILL", "USER", "app")
		f.fails(t, "noauth", "WRONGPASS")
		require.NoError(t, os.WriteFile(file, []byte(firstPassword), 0o600))
		f.admits(t, "acme")
		requireSilent(t, f)
	})
}

// TestField_WrongCA: a server whose certificate nobody vouches for gets no call and no password, and the log says what is wrong.
func TestField_WrongCA(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t, redistest.Options{TLS: true, Password: firstPassword})
	other := redistest.StartStandalone(t, redistest.Options{TLS: true})
	for ca, told := range map[string]string{other.Files.CA: "certificate signed by unknown authority", server.Files.CA: ""} {
		f := startFleet(t, fleetSetup{policies: failing, urls: []string{server.URL()}, timeout: 2 * time.Second, args: []string{"--redis-ca-file", ca}})
		if told == "" {
			f.admits(t, "acme")
			require.Zero(t, f.unanswered(t))
		} else {
			f.fails(t, "no-node", told)
		}
		requireSilent(t, f)
	}
}
