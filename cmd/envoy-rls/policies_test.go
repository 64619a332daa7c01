package main

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

// desk is somebody who works on policies, with an empty database and a directory.
type desk struct {
	t         *testing.T
	dsn, file string
	dir       string
}

func newDesk(t *testing.T, server *pgtest.Server) *desk {
	d := &desk{t: t, dsn: server.Database(t), dir: t.TempDir()}
	d.file = filepath.Join(d.dir, "dsn")
	require.NoError(t, os.WriteFile(d.file, []byte(d.dsn), 0o600))
	t.Setenv("ENVOY_RLS_POLICY_DSN_FILE", d.file)
	return d
}

// write writes a policy file with one policy of a capacity.
func (d *desk) write(name, capacity string) string {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	require.NoError(d.t, os.WriteFile(path, []byte("domain: edge\npolicies:\n  - {id: api, key: [ip], algorithm: token-bucket, capacity: "+
		capacity+", refillPerMinute: 100, onStoreFailure: open}\n"), 0o600))
	return path
}

// run runs "envoy-rls policies …", which must succeed.
func (d *desk) run(args ...string) string {
	d.t.Helper()
	got := envoyRLS("", append([]string{"policies"}, args...)...)
	require.Equal(d.t, exitOK, got.code, got)
	require.Empty(d.t, got.errout)
	return got.out
}

// fails runs "envoy-rls policies …", which must not.
func (d *desk) fails(code int, args ...string) string {
	d.t.Helper()
	got := envoyRLS("", append([]string{"policies"}, args...)...)
	require.Equal(d.t, code, got.code, got)
	require.Empty(d.t, got.out)
	require.NotContains(d.t, got.errout, pgtest.Password)
	return got.errout
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

// masked is text without what differs from run to run.
func masked(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`).ReplaceAllString(text, "2030-01-31 12:00:00 UTC")
	return regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(text, strings.Repeat("0123456789abcdef", 4))
}

// TestPolicies are stories of people who publish policies. They share a server.
func TestPolicies(t *testing.T) {
	server := pgtest.Start(t)
	stories := map[string]func(*desk){
		"publish, look, go back": publishLookGoBack, "refused": refusedPush, "two people": twoPeople, "two at once": twoAtOnce,
		"who runs what": whoRunsWhat, "planted": planted, "planted states": plantedStates, "told before the wait": toldBeforeTheWait, "a publisher's rights": publishersRights,
		"validated against what is active": validatedAgainstActive, "several files": severalFiles,
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) { story(newDesk(t, server)) })
	}
	server.Kill()
	t.Run("database down", func(t *testing.T) {
		d := &desk{t: t, dir: t.TempDir()}
		file := filepath.Join(d.dir, "dsn")
		require.NoError(t, os.WriteFile(file, []byte(server.DSN("x")), 0o600))
		for _, args := range [][]string{{"push", d.write("p.yaml", "1"), "-m", "x"}, {"list"}, {"show", "1"}, {"diff", "1", "2"}, {"rollback", "1"}, {"status"}} {
			require.Contains(t, d.fails(exitFailed, append(args, "--policy-dsn-file", file)...), "refused", args)
		}
	})
}

func publishLookGoBack(d *desk) {
	require.Equal(d.t, "no policies have been published\n", d.run("list"))
	require.Equal(d.t, "no policies have been published\nno instance has been heard of\n", d.run("status"))
	require.Equal(d.t, "[]\n", d.run("list", "--format", "json"))
	require.Contains(d.t, d.fails(exitFaults, "show", "active"), "no policies have been published")

	file := d.write("edge.yaml", "20")
	require.Equal(d.t, "version 1 is active\n", d.run("push", file, "-m", "first", "--author", "ann"))
	d.write("edge.yaml", "40")
	require.Equal(d.t, `version 2 is active

1 changed: 1 looser

~ api  changed, looser
    capacity: 20 -> 40  looser  # buckets get no more at once
`, d.run("push", file, "-m", "more for api", "--author", "bob"))
	require.Contains(d.t, d.run("push", file, "-m", "again"), "nothing published: version 2 by bob at ")
	golden(d.t, "policies-list", masked(d.run("list")))
	golden(d.t, "policies-show", masked(d.run("show", "1")))
	require.Equal(d.t, d.run("show", "2"), d.run("show", "active"))
	text, err := os.ReadFile(file)
	require.NoError(d.t, err)
	require.Equal(d.t, string(text), d.run("show", "2", "--file", "edge.yaml"))
	require.Contains(d.t, d.fails(exitFaults, "show", "2", "--file", "x.yaml"), "version 2 has no file x.yaml; it has edge.yaml")

	want := "1 changed: 1 stricter\n\n~ api  changed, stricter\n    capacity: 40 -> 20  stricter  # buckets that hold more are cut at their next call\n"
	require.Equal(d.t, want, d.run("diff", "2", "1"))
	require.Equal(d.t, want, d.run("diff", file, "1"))
	require.Equal(d.t, "no policy differs\n", d.run("diff", "active", file))
	require.Equal(d.t, "version 3 is active\n\n"+want, d.run("rollback", "1", "--author", "ann"))
	require.Contains(d.t, d.run("list", "--limit", "1"), "rollback to version 1")
	require.NotContains(d.t, d.run("list", "--limit", "1"), "more for api")
	require.Contains(d.t, d.run("show", "3"), "based on   2\nrestores   1\n")

	var shown struct {
		Number, BasedOn, Restores int64
		State                     string
		Files                     []struct{ Name, Content string }
	}
	require.NoError(d.t, json.Unmarshal([]byte(d.run("show", "3", "--format", "json")), &shown))
	require.EqualValues(d.t, 1, shown.Restores)
	require.Equal(d.t, "active", shown.State)
	require.Contains(d.t, shown.Files[0].Content, "capacity: 20")
	var diff struct {
		Policies []struct{ ID, Kind, Verdict string }
	}
	require.NoError(d.t, json.Unmarshal([]byte(d.run("diff", "1", "2", "--format", "json")), &diff))
	require.Equal(d.t, "looser", diff.Policies[0].Verdict)
	require.NotEqual(d.t, "", d.run("push", d.write("edge.yaml", "7"), "-m", "by whoever runs this"))
	require.NotContains(d.t, d.run("show", "4"), "author     \n")
}

// refusedPush: what the service would not load is not published, and the fault is told with its place.
func refusedPush(d *desk) {
	got := d.fails(exitFaults, "push", "testdata/faulty.yaml", d.write("edge.yaml", "-1"), "-m", "x")
	require.Contains(d.t, got, "testdata/faulty.yaml:8:21: onStoreFailure cannot be")
	require.Contains(d.t, got, "edge.yaml:3:61: capacity must not be negative\n")
	require.Contains(d.t, got, "^")
	require.Contains(d.t, d.fails(exitFaults, "push", "testdata/nowhere.yaml", "-m", "x"), "testdata/nowhere.yaml: cannot be read")
	require.Contains(d.t, d.fails(exitUsage, "push", "testdata/policies.yaml"), "say why: -m MESSAGE")
	require.Contains(d.t, d.fails(exitUsage, "push", "-m", "x"), "name the policy files")
	require.Contains(d.t, d.fails(exitFailed, "push", "testdata/policies.yaml", "-m", "two\nlines"), "comment must be one line")
	require.Contains(d.t, d.fails(exitFaults, "rollback", "7"), "version 7: no such version")
	require.Contains(d.t, d.fails(exitUsage, "rollback", "seven"), `"seven" is not the number of a version`)
	require.Contains(d.t, d.fails(exitUsage, "list", "--limit", "0"), "at least 1")
	require.Contains(d.t, d.fails(exitUsage, "list", "--policy-dsn-file", "testdata/nowhere"), "no connection string")
	d.t.Setenv("ENVOY_RLS_POLICY_DSN_FILE", "")
	require.Contains(d.t, d.fails(exitUsage, "list"), "say where the database is: --policy-dsn-file FILE, or ENVOY_RLS_POLICY_DSN_FILE")
}

// twoPeople: who was slower is told who was faster, why, and which policies that changed.
func twoPeople(d *desk) {
	file := d.write("edge.yaml", "20")
	d.run("push", file, "-m", "first", "--author", "ann")
	d.run("push", d.write("edge.yaml", "40"), "-m", "more for api", "--author", "bob")
	golden(d.t, "policies-conflict", masked(d.fails(exitConflict, "push", d.write("edge.yaml", "10"), "-m", "less", "--author", "ann", "--base", "1")))
	require.Contains(d.t, d.fails(exitConflict, "push", file, "-m", "less", "--base", "0"), "based on version 0, but version 2 is active")
	require.Contains(d.t, d.fails(exitConflict, "rollback", "1", "--base", "1"), "more for api")
	require.Contains(d.t, d.run("push", file, "-m", "less", "--base", "2"), "version 3 is active\n")
}

// twoAtOnce: of two pushes at once from one base one succeeds.
func twoAtOnce(d *desk) {
	d.run("push", d.write("edge.yaml", "20"), "-m", "first")
	var both sync.WaitGroup
	results := make([]result, 2)
	for i, file := range []string{d.write("a.yaml", "30"), d.write("b.yaml", "40")} {
		both.Go(func() {
			results[i] = envoyRLS("", "policies", "push", file, "-m", "faster", "--base", "1", "--author", filepath.Base(file))
		})
	}
	both.Wait()
	winner := 0
	if results[1].code == exitOK {
		winner = 1
	}
	require.Equal(d.t, exitOK, results[winner].code, results)
	loser := results[1-winner]
	require.Equal(d.t, exitConflict, loser.code, results)
	require.Contains(d.t, loser.errout, "version 2 by "+string(rune('a'+winner))+".yaml at ")
	require.Contains(d.t, loser.errout, "capacity: 20 -> ")
}

func whoRunsWhat(d *desk) {
	file := d.write("edge.yaml", "20")
	d.run("push", file, "-m", "first", "--author", "ann")
	db := policydb.New(policydb.Options{DSNFile: d.file})
	for _, i := range []policydb.Instance{
		{ID: "node-1", Version: 1, Build: "v1", Since: time.Hour},
		{ID: "node-2", Version: 1, Kept: true, Build: "v1", Since: time.Hour},
		{ID: "node-3", Version: 1, Build: "v1", Since: time.Hour, Error: "version 2: edge.yaml:1:1: wrong\nx: y\n^"},
	} {
		require.NoError(d.t, db.Beat(d.t.Context(), i))
	}
	status := regexp.MustCompile(`\S+ ago +`).ReplaceAllString(masked(d.run("status")), "0s ago  ")
	status = regexp.MustCompile(`SEEN +`).ReplaceAllString(status, "SEEN    ")
	golden(d.t, "policies-status", regexp.MustCompile(`1h0m\d+s`).ReplaceAllString(status, "1h0m0s"))
	d.run("push", d.write("edge.yaml", "40"), "-m", "second", "--author", "ann")
	require.Contains(d.t, d.run("status"), "behind")

	got := envoyRLS("", "policies", "push", d.write("edge.yaml", "50"), "-m", "third", "--wait", "300ms")
	require.Equal(d.t, exitFailed, got.code)
	require.Contains(d.t, got.errout, "version 3 is active, but after 300ms 3 of 3 instances do not run it: node-1; node-2; node-3: version 2: edge.yaml:1:1: wrong")
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		require.NoError(d.t, db.Beat(d.t.Context(), policydb.Instance{ID: id, Version: 4}))
	}
	require.Contains(d.t, d.run("push", d.write("edge.yaml", "60"), "-m", "fourth", "--wait", "30s"), "\n3 instances run it\n")
	var both struct {
		Active    struct{ Number int64 }
		Instances []struct {
			Version     int64
			State       string
			SeenSeconds float64
		}
	}
	require.NoError(d.t, json.Unmarshal([]byte(d.run("status", "--format", "json")), &both))
	require.EqualValues(d.t, 4, both.Active.Number)
	require.Len(d.t, both.Instances, 3)
	require.EqualValues(d.t, 4, both.Instances[0].Version)
	require.Equal(d.t, "up-to-date", both.Instances[0].State)
	require.Less(d.t, both.Instances[0].SeenSeconds, 60.0)
}

// planted: what others wrote by hand neither harms the terminal nor is gone back to.
func planted(d *desk) {
	d.run("push", d.write("edge.yaml", "20"), "-m", "first")
	d.exec(`INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment) VALUES
		(2, 'superseded', '[{"name": "a.yaml", "content": "polices: 7\n"}]', sha256(E'a.yaml\\000polices: 7\\012\\000'), E'\x1b[2J', E'\x1b]0;x\x07'),
		(3, 'superseded', '[{"name": "a.yaml", "content": "polices: 7\n"}]', sha256('other'), 'x', 'x')`)
	require.NotContains(d.t, d.run("list"), "\x1b")
	require.NotContains(d.t, d.run("show", "2"), "\x1b")
	require.Contains(d.t, d.fails(exitFaults, "rollback", "2"), `version 2: a.yaml:1:1: a policy file has no field "polices"`)
	require.Contains(d.t, d.fails(exitFaults, "diff", "1", "2"), `version 2: a.yaml:1:1: a policy file has no field "polices"`)
	require.Contains(d.t, d.fails(exitFaults, "show", "3"), "version 3: damaged: the files have SHA-256 ")
}

// plantedStates: a base that never was, and versions of which none is active, are told as such.
func plantedStates(d *desk) {
	file := d.write("edge.yaml", "20")
	d.run("push", file, "-m", "first", "--author", "ann")
	require.Equal(d.t, "nothing published: the change is based on version 99, but there is no such version. Active is version 1 by ann at "+
		"2030-01-31 12:00:00 UTC: first\nIf your files were made from that one, push them with --base 1.\n",
		masked(d.fails(exitConflict, "push", d.write("edge.yaml", "30"), "-m", "x", "--base", "99")))
	require.Contains(d.t, d.fails(exitUsage, "push", file, "-m", "x", "--base", "-7"), "--base -7: must be the number of a version")
	require.Contains(d.t, d.fails(exitUsage, "rollback", "1", "--base", "-1"), "--base -1: must be the number of a version")
	require.Contains(d.t, d.fails(exitUsage, "rollback", "1", "--wait", "-1s"), "--wait -1s: must not be negative")
	d.exec(`INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment) VALUES (2, 'superseded', '[]', sha256(''), E'ann\t', E'a\tb')`)
	require.Contains(d.t, d.run("list"), "ann     a b\n")
	d.exec("UPDATE envoy_rls.versions SET state = 'superseded'")
	require.Contains(d.t, d.run("status"), "none is active, of those up to version 2: somebody has changed that by hand; publish one or go back to one\n")
	require.Contains(d.t, d.fails(exitConflict, "push", file, "-m", "x", "--base", "1"), "based on version 1, but none is active. If that is meant to be so, push it with --base 0.")
	require.Equal(d.t, "version 3 is active\n", d.run("rollback", "1"))
}

// toldBeforeTheWait: who breaks off the wait knows that the version is active.
func toldBeforeTheWait(d *desk) {
	d.run("push", d.write("edge.yaml", "20"), "-m", "first")
	require.NoError(d.t, policydb.New(policydb.Options{DSNFile: d.file}).Beat(d.t.Context(), policydb.Instance{ID: "a", Version: 1}))
	got := envoyRLS("", "policies", "push", d.write("edge.yaml", "30"), "-m", "second", "--wait", "1ms")
	require.Equal(d.t, exitFailed, got.code)
	require.Contains(d.t, got.out, "version 2 is active\n\n1 changed: 1 looser\n")
	got = envoyRLS("", "policies", "push", d.write("edge.yaml", "40"), "-m", "third", "--wait", "1ms", "--format", "json")
	require.Equal(d.t, exitFailed, got.code)
	require.Empty(d.t, got.out)
	require.Contains(d.t, got.errout, "version 3 is active, but after 1ms 1 of 1 instances do not run it: a")
}

// publishersRights: those that the documentation gives to publishers are enough for all commands, and without them it is named.
func publishersRights(d *desk) {
	d.run("push", d.write("edge.yaml", "20"), "-m", "first")
	text, err := os.ReadFile("../../docs/rollout.md")
	require.NoError(d.t, err)
	grants := regexp.MustCompile("(?s)```sql\n(CREATE ROLE publisher .*?)```").FindSubmatch(text)
	require.NotNil(d.t, grants)
	statements := strings.SplitAfterN(string(grants[1]), ";", 2)
	d.exec(statements[0])
	config, err := pgx.ParseConfig(d.dsn)
	require.NoError(d.t, err)
	mine := filepath.Join(d.dir, "publisher-dsn")
	dsn := url.URL{Scheme: "postgres", User: url.UserPassword("publisher", "secret"), Host: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), Path: config.Database}
	require.NoError(d.t, os.WriteFile(mine, []byte(dsn.String()), 0o600))
	d.t.Setenv("ENVOY_RLS_POLICY_DSN_FILE", mine)
	got := d.fails(exitFailed, "list")
	require.Contains(d.t, got, "permission denied for schema envoy_rls")
	require.Contains(d.t, got, "docs/rollout.md says which rights are needed")
	d.exec(statements[1])
	require.Contains(d.t, d.run("push", d.write("edge.yaml", "30"), "-m", "second", "--wait", "10s"), "\n0 instances run it\n")
	d.run("rollback", "1")
	d.run("status")
	d.run("list")
	d.run("diff", "1", "active")
}

// validatedAgainstActive: before a push, what is active is what the files are compared with.
func validatedAgainstActive(d *desk) {
	d.run("push", d.write("edge.yaml", "20"), "-m", "first")
	changed := filepath.Join(d.dir, "changed.yaml")
	require.NoError(d.t, os.WriteFile(changed, []byte("domain: edge\npolicies:\n  - {id: api, key: [ip], algorithm: sliding-log, limit: 20, window: 60s, onStoreFailure: open}\n"), 0o600))
	for _, version := range []string{"1", "active"} {
		got := envoyRLS("", "validate", changed, "--against", version, "--strict")
		require.Equal(d.t, exitFaults, got.code, got)
		require.Contains(d.t, got.errout, "changed.yaml:3:")
		require.Contains(d.t, got.errout, "warning[algorithm-changed]")
	}
	require.Equal(d.t, exitFaults, envoyRLS("", "validate", changed, "--against", "2").code)
	require.Equal(d.t, exitUsage, envoyRLS("", "validate", changed, "--against", "1", "--policy-dsn-file", "").code)
	require.Equal(d.t, exitUsage, envoyRLS("", "validate", changed, "--instances", "-3").code)
}

func severalFiles(d *desk) {
	d.write("a.yaml", "20")
	second := filepath.Join(d.dir, "b.yaml")
	require.NoError(d.t, os.WriteFile(second, []byte("policies: []\n"), 0o600))
	d.run("push", d.dir, "-m", "a directory")
	require.Equal(d.t, "policies: []\n", d.run("show", "1", "--file", "b.yaml"))
	got := d.run("show", "1")
	require.Less(d.t, strings.Index(got, "--- a.yaml"), strings.Index(got, "--- b.yaml"))
	other := filepath.Join(d.t.TempDir(), "b.yaml")
	require.NoError(d.t, os.WriteFile(other, []byte("policies: []\n"), 0o600))
	require.Contains(d.t, d.fails(exitFailed, "push", second, other, "-m", "two of one name"), "two files are named b.yaml")
}
