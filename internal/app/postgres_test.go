package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	tests := map[string]func(*testing.T, *shelf){
		"a push is active on all": pushIsActiveOnAll, "a notice is lost": noticeIsLost, "a version is planted": versionIsPlanted,
		"as the documented role": asDocumentedRole, "who runs what": whoRunsWhat, "nothing to start with": nothingToStartWith,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, newShelf(t, server)) })
	}
}

// pushIsActiveOnAll: as soon as they are told; in the long form within 500 ms, as the median of 20.
func pushIsActiveOnAll(t *testing.T, s *shelf) {
	s.push(capacity(100))
	fleet := []*instance{s.start(), s.start(), s.start()}
	awaitQuota(t, "100", fleet)
	require.Eventually(t, func() bool { return listeners(t, s) == len(fleet) }, patience, 10*time.Millisecond)
	var took []time.Duration
	for n := range 20 {
		s.push(capacity(101 + n))
		took = append(took, awaitQuota(t, fmt.Sprint(101+n), fleet))
		require.Less(t, took[n], 20*time.Second, "they were not told, but polled")
	}
	slices.Sort(took)
	t.Logf("active on three instances after %v (median), %v (longest)", took[len(took)/2], took[len(took)-1])
	require.True(t, took[len(took)/2] < 500*time.Millisecond || !long(), "median %v", took[len(took)/2])
	for _, i := range fleet {
		require.Equal(t, "21", i.metric("envoy_rls_policy_version"))
		require.Equal(t, "1", i.metric("envoy_rls_policy_source_up"))
		require.Equal(t, "0", i.metric("envoy_rls_policy_version_kept"))
		require.Equal(t, "0", i.metric("envoy_rls_reload_failing"))
		require.Contains(t, i.log.String(), `msg="policies loaded" number=21`)
		got := i.status().Policies
		require.Equal(t, "postgres", got.Source)
		require.Empty(t, got.Path)
		_, policies := i.page("/api/v1/policies")
		require.Contains(t, policies, `"file": "version 21: edge.yaml"`)
		require.NotContains(t, i.log.String(), "level=WARN")
	}
}

// listeners is how many connections wait for notices.
func listeners(t *testing.T, s *shelf) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'envoy-rls' AND query LIKE 'LISTEN%'").Scan(&n)
	require.NoError(t, err)
	return n
}

// noticeIsLost: a poll finds what no notice told of, within 35 s by default.
func noticeIsLost(t *testing.T, s *shelf) {
	interval, limit := 500*time.Millisecond, patience
	if long() {
		interval, limit = 0, 35*time.Second
	}
	s.push(capacity(100))
	s.exec("ALTER TABLE envoy_rls.versions DISABLE TRIGGER versions_tell")
	poll := func(o *app.Options) { o.PollInterval = interval }
	fleet := []*instance{s.start(poll), s.start(poll), s.start(poll)}
	require.Eventually(t, func() bool { return listeners(t, s) == len(fleet) }, patience, 10*time.Millisecond)
	awaitQuota(t, "100", fleet)
	s.push(capacity(200))
	took := awaitQuota(t, "200", fleet)
	t.Logf("active on three instances after %v", took)
	require.Less(t, took, limit)
}

// versionIsPlanted: what cannot be loaded leaves the old set in force everywhere, and everybody says why; a restart takes the old one, too.
func versionIsPlanted(t *testing.T, s *shelf) {
	s.push(capacity(5))
	keptFile := filepath.Join(t.TempDir(), "kept")
	keep := func(o *app.Options) { o.PolicyKeptFile = keptFile }
	fleet := []*instance{s.start(), s.start(), s.start(keep)}
	plant := `WITH old AS (UPDATE envoy_rls.versions SET state = 'superseded' WHERE state = 'active')
		INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment) VALUES ($1, 'superseded', $2::text::jsonb, sha256($3::text::bytea), 'mallory', 'by hand')`
	for number, planted := range map[int64]struct{ files, sum, want string }{
		2: {`[{"name": "edge.yaml", "content": "polices: 7\n"}]`, `edge.yaml\000polices: 7\012\000`, `version 2: edge.yaml:1:1: a policy file has no field "polices" (did you mean "policies"?)`},
		3: {`[{"name": "edge.yaml", "content": "policies: []\n"}]`, "other", "version 3: damaged: the files have SHA-256 "},
	} {
		s.exec(plant, number, planted.files, planted.sum)
		s.exec("UPDATE envoy_rls.versions SET state = 'active' WHERE number = $1", number)
		for _, i := range fleet {
			require.Eventually(t, func() bool { return strings.Contains(i.status().Policies.Error, planted.want) }, patience, 10*time.Millisecond)
			require.EqualValues(t, 1, i.version())
			require.Equal(t, "5", i.quota())
			require.Equal(t, "1", i.metric("envoy_rls_reload_failing"))
			require.NotEqual(t, "0", i.metric(`envoy_rls_reload_total{result="failure"}`))
			require.Contains(t, i.log.String(), "policies not loaded; the old ones stay")
			code, _ := i.page("/readyz")
			require.Equal(t, 200, code)
		}
		require.Eventually(t, func() bool {
			list, err := s.Instances(t.Context())
			require.NoError(t, err)
			return len(list) == 3 && !slices.ContainsFunc(list, func(i policydb.Instance) bool { return !strings.Contains(i.Error, planted.want) })
		}, patience, 10*time.Millisecond)
	}
	restarted := s.start(keep)
	require.Equal(t, "5", restarted.quota())
	require.Contains(t, restarted.log.String(), "starting with the policies that were kept here")
	require.NotEmpty(t, restarted.status().Policies.Error)
	require.True(t, restarted.status().Policies.Kept)
	require.ErrorContains(t, s.instance().Start(t.Context()), "no policies have been kept in ", "without a kept set there is nothing to start with")

	s.push(capacity(7))
	awaitQuota(t, "7", append(fleet, restarted))
	for _, i := range fleet {
		require.Equal(t, "0", i.metric("envoy_rls_reload_failing"))
	}
}

// asDocumentedRole: a service needs no more rights than the documentation gives it, and its password is no secret that is told.
func asDocumentedRole(t *testing.T, s *shelf) {
	text, err := os.ReadFile("../../docs/rollout.md")
	require.NoError(t, err)
	grants := regexp.MustCompile("(?s)```sql\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, grants)
	s.push(capacity(5))
	s.exec(string(grants[1]))
	name, err := pgx.ParseConfig(s.dsn)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.file, []byte(s.server.DSNFor("limiter", "secret", name.Database)), 0o600))
	i := s.start()
	require.Eventually(t, func() bool {
		list, err := s.Instances(t.Context())
		return err == nil && len(list) == 1 && list[0].Version == 1
	}, patience, 10*time.Millisecond)
	require.NotContains(t, i.log.String(), "level=WARN")
	require.NotContains(t, i.log.String(), "secret")
	_, err = s.Publish(t.Context(), policydb.Draft{Files: []policy.Text{{Path: "x"}}, Author: "x", Comment: "x", Base: 1})
	require.ErrorContains(t, err, "permission denied")
}

// whoRunsWhat: an instance says what it runs at once, and takes leave when it stops.
func whoRunsWhat(t *testing.T, s *shelf) {
	s.push(capacity(5))
	one, two := s.instance(), s.instance()
	require.NoError(t, one.Start(t.Context()))
	require.NoError(t, two.Start(t.Context()))
	running := func(n int, version int64) func() bool {
		return func() bool {
			list, err := s.Instances(t.Context())
			require.NoError(t, err)
			return len(list) == n && !slices.ContainsFunc(list, func(i policydb.Instance) bool { return i.Version != version })
		}
	}
	require.Eventually(t, running(2, 1), patience, 10*time.Millisecond)
	s.push(capacity(6))
	require.Eventually(t, running(2, 2), patience, 10*time.Millisecond)
	list, err := s.Instances(t.Context())
	require.NoError(t, err)
	require.Equal(t, "v-test", list[0].Build)
	require.Equal(t, one.status().Policies.Version, list[0].Policies)
	require.NoError(t, one.Stop(t.Context()))
	require.True(t, running(1, 2)())
	require.NoError(t, two.Stop(t.Context()))
	require.True(t, running(0, 2)())
}

func nothingToStartWith(t *testing.T, s *shelf) {
	err := s.instance().Start(t.Context())
	require.ErrorContains(t, err, "no policies have been published")
	require.NoError(t, os.WriteFile(s.file, []byte("postgres://x:s3cret@/%zz"), 0o600))
	err = s.instance().Start(t.Context())
	require.ErrorIs(t, err, policydb.ErrDSN)
	require.ErrorContains(t, err, "policy-dsn-file: ")
	require.NotContains(t, err.Error(), "s3cret")
}

// TestPostgresDown: serving goes on, a restart works from what was kept unless that is damaged, and all is well when the database is back.
func TestPostgresDown(t *testing.T) {
	s := newShelf(t, pgtest.Start(t))
	s.push(capacity(5))
	keptFile := filepath.Join(t.TempDir(), "kept")
	keep := func(o *app.Options) { o.PolicyKeptFile, o.PollInterval = keptFile, 100*time.Millisecond }
	i := s.start(keep)
	s.server.Kill()
	require.Eventually(t, func() bool { return i.metric("envoy_rls_policy_source_up") == "0" }, patience, 10*time.Millisecond)
	require.Equal(t, 5, i.admitted(10, "ip", "203.0.113.8"))
	require.Contains(t, i.log.String(), `msg="the policies in force stay"`)
	require.NotContains(t, i.log.String(), pgtest.Password)
	require.Contains(t, i.status().Policies.Unreachable, "the policy database cannot be reached: ")
	require.Equal(t, "0", i.metric("envoy_rls_reload_failing"), "nothing is wrong with the policies")
	require.ErrorContains(t, i.Reload(t.Context()), "cannot be reached")

	restarted := s.start(keep)
	require.Equal(t, 5, restarted.admitted(10, "ip", hostname))
	require.Equal(t, "1", restarted.metric("envoy_rls_policy_version_kept"))
	require.Equal(t, "1", restarted.metric("envoy_rls_policy_version"))
	require.Contains(t, restarted.log.String(), "starting with the policies that were kept here")

	good, err := os.ReadFile(keptFile)
	require.NoError(t, err)
	damaged := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(damaged, []byte(strings.Replace(string(good), "capacity: 5", "capacity: 6", 1)), 0o600))
	err = s.instance(func(o *app.Options) { o.PolicyKeptFile = damaged }).Start(t.Context())
	require.ErrorContains(t, err, "the policies kept in "+damaged+" cannot be used: it is damaged")
	require.NotContains(t, err.Error(), pgtest.Password)

	require.NoError(t, s.server.Start(t.Context()))
	require.Eventually(t, func() bool { return restarted.metric("envoy_rls_policy_version_kept") == "0" }, patience, 10*time.Millisecond)
	require.Contains(t, restarted.log.String(), "the policies in force are the active version")
	s.push(capacity(9))
	awaitQuota(t, "9", []*instance{i, restarted})
	require.Contains(t, i.log.String(), "the policy database answers again")
}
