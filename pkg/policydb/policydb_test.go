package policydb_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

func TestPublish(t *testing.T) {
	d := newDatabase(t)
	_, err := d.Active(t.Context())
	require.ErrorIs(t, err, policydb.ErrNoVersion)
	require.ErrorContains(t, err, "no policies have been published")
	_, err = d.Get(t.Context(), 1)
	require.ErrorIs(t, err, policydb.ErrNoVersion)
	list, err := d.List(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, list)

	odd := draft(0, "")
	odd.Files = texts("one: \\x41 \"'\n", "é, 😀, $1\t\r\n")
	odd.Author, odd.Comment = "ann'; DROP TABLE x; --", "higher limits for “pro”"
	one, err := d.Publish(t.Context(), odd)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), one.Created, time.Minute)
	want := policydb.Version{
		Number: 1, State: policydb.Active, SHA256: policydb.Sum(odd.Files), Author: odd.Author, Comment: odd.Comment, Created: one.Created,
	}
	require.Equal(t, want, one)
	got, err := d.Active(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)

	back := draft(1, "two")
	back.Restores = 1
	two, err := d.Publish(t.Context(), back)
	require.NoError(t, err)
	require.EqualValues(t, 1, two.BasedOn)
	require.EqualValues(t, 1, two.Restores)

	got, err = d.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, policydb.Superseded, got.State)
	require.Equal(t, odd.Files, got.Files, "byte for byte")
	list, err = d.List(t.Context(), 10)
	require.NoError(t, err)
	got.Files = nil
	require.Equal(t, []policydb.Version{two, got}, list)
	list, err = d.List(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, list, 1)

	same, err := d.Publish(t.Context(), draft(2, "two"))
	require.ErrorIs(t, err, policydb.ErrUnchanged)
	require.Equal(t, two, same)
}

func TestPublishRefuses(t *testing.T) {
	d := newDatabase(t)
	tests := map[string]struct {
		change func(*policydb.Draft)
		want   string
	}{
		"no author":              {func(d *policydb.Draft) { d.Author = " " }, "author is empty"},
		"no comment":             {func(d *policydb.Draft) { d.Comment = "" }, "comment is empty"},
		"two lines":              {func(d *policydb.Draft) { d.Comment = "a\nb" }, "comment must be one line"},
		"a terminal's escapes":   {func(d *policydb.Draft) { d.Author = "\x1b[2J" }, "author must be one line"},
		"a comment that is long": {func(d *policydb.Draft) { d.Comment = strings.Repeat("x", 1001) }, "comment is longer than 1000"},
		"no files":               {func(d *policydb.Draft) { d.Files = nil }, "1 to 1000 files, not 0"},
		"a name twice":           {func(d *policydb.Draft) { d.Files = append(d.Files, d.Files...) }, "two files are named a.yaml"},
		"not UTF-8":              {func(d *policydb.Draft) { d.Files[0].Data = []byte("\xff") }, "not text in UTF-8"},
		"a zero byte":            {func(d *policydb.Draft) { d.Files[0].Data = []byte("\x00") }, "not text in UTF-8"},
		"a name of two lines":    {func(d *policydb.Draft) { d.Files[0].Path = "a\n\x1b[2J.yaml" }, "must be one line of text"},
		"too much":               {func(d *policydb.Draft) { d.Files[0].Data = bytes.Repeat([]byte("x"), 33<<20) }, "more than 32 MiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bad := draft(0, "x")
			tt.change(&bad)
			_, err := d.Publish(t.Context(), bad)
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := d.Active(t.Context())
	require.ErrorIs(t, err, policydb.ErrNoVersion)
}

// TestConcurrentPublish: of many who change one version at once, one wins, and the others are told who.
func TestConcurrentPublish(t *testing.T) {
	d := newDatabase(t)
	const people = 8
	for round := range int64(3) {
		var all sync.WaitGroup
		errs := make([]error, people)
		for i := range people {
			all.Go(func() {
				mine := draft(round, strings.Repeat("x", int(round)*people+i+1))
				mine.Author = "person " + string(rune('A'+i))
				_, errs[i] = d.Publish(t.Context(), mine)
			})
		}
		all.Wait()
		winner, err := d.Active(t.Context())
		require.NoError(t, err)
		require.Equal(t, round+1, winner.Number)
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				require.Equal(t, "person "+string(rune('A'+i)), winner.Author)
				continue
			}
			var conflict *policydb.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, round, conflict.Base)
			require.Equal(t, winner, conflict.Active)
			require.ErrorContains(t, err, "published by "+winner.Author)
		}
		require.Equal(t, 1, won)
	}
}

// TestVersionsAreNeverChanged, not by hand either.
func TestVersionsAreNeverChanged(t *testing.T) {
	d := newDatabase(t)
	d.push(1, "one")
	d.push(2, "two")
	for _, sql := range []string{
		"UPDATE envoy_rls.versions SET comment = 'other' WHERE number = 1",
		"UPDATE envoy_rls.versions SET files = '[]' WHERE number = 1",
		"UPDATE envoy_rls.versions SET number = 7 WHERE number = 2",
		"DELETE FROM envoy_rls.versions WHERE number = 1",
	} {
		require.ErrorContains(t, d.exec(sql), "a version is never changed", sql)
	}
	require.ErrorContains(t, d.exec("UPDATE envoy_rls.versions SET state = 'active'"), "versions_one_active")
}

func TestDamaged(t *testing.T) {
	d := newDatabase(t)
	d.push(1, "one")
	plant := "INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment) VALUES ($1, 'superseded', $2::text::jsonb, sha256($3::text::bytea), 'x', 'x')"
	require.NoError(t, d.exec(plant, 2, `[{"name": "a.yaml", "content": "one"}]`, "other"))
	require.NoError(t, d.exec(plant, 3, `{"no": "list"}`, ""))
	for number, want := range map[int64]string{2: "the files have SHA-256 ", 3: "files: "} {
		_, err := d.Get(t.Context(), number)
		require.ErrorIs(t, err, policydb.ErrDamaged)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, d.exec(`INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment)
		VALUES (4, 'superseded', '[{"name": "a.yaml", "content": "one"}]', sha256('a.yaml\000one\000'), 'x', 'x')`))
	_, err := d.Get(t.Context(), 4)
	require.NoError(t, err, "the sum is one that people can make")
}

// TestTooLarge: what is far larger than anything that can be published is not fetched.
func TestTooLarge(t *testing.T) {
	if os.Getenv("ENVOY_RLS_LONG") == "" {
		t.Skip("writes 200 MB: ENVOY_RLS_LONG=1")
	}
	d := newDatabase(t)
	require.NoError(t, d.Migrate(t.Context()))
	require.NoError(t, d.exec(`INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment)
		SELECT 1, 'superseded', to_jsonb(repeat('x', 194 << 20)), sha256(''), 'x', 'x'`))
	_, err := d.Get(t.Context(), 1)
	require.ErrorIs(t, err, policydb.ErrDamaged)
	require.ErrorContains(t, err, "version 1: damaged: it has more than 193 MiB")
}

func TestMigrate(t *testing.T) {
	d := newDatabase(t)
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() { errs[i] = d.Migrate(t.Context()) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...), "several at once")
	require.NoError(t, d.Migrate(t.Context()), "once more")
	require.NoError(t, d.exec("INSERT INTO envoy_rls.migrations (number) VALUES (1000)"))
	require.ErrorContains(t, d.Migrate(t.Context()), "made by a newer envoy-rls")
	_, err := d.Publish(t.Context(), draft(0, "x"))
	require.ErrorContains(t, err, "made by a newer envoy-rls")
}

func TestInstances(t *testing.T) {
	d := newDatabase(t)
	require.Error(t, d.Beat(t.Context(), policydb.Instance{ID: "early"}), "instances make no schema")
	list, err := d.Instances(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	d.push(1, "one")
	a := policydb.Instance{ID: "a", Version: 1, Policies: "0123456789ab", Build: "v1", Since: time.Minute, Up: time.Hour}
	b := policydb.Instance{ID: "b", Version: 7, Kept: true, Error: strings.Repeat("é", 9000)}
	require.NoError(t, d.Beat(t.Context(), b))
	require.NoError(t, d.Beat(t.Context(), a))
	a.Version = 2
	require.NoError(t, d.Beat(t.Context(), a))
	list, err = d.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	for i, want := range []policydb.Instance{a, b} {
		require.InDelta(t, want.Since, list[i].Since, float64(5*time.Second))
		require.InDelta(t, want.Up, list[i].Up, float64(5*time.Second))
		require.Less(t, list[i].Seen, 5*time.Second)
		list[i].Since, list[i].Up, list[i].Seen = want.Since, want.Up, 0
	}
	b.Error = strings.Repeat("é", 4000)
	require.Equal(t, []policydb.Instance{a, b}, list)

	require.NoError(t, d.exec("UPDATE envoy_rls.instances SET seen_at = now() - interval '36 s' WHERE id = 'a'"))
	list, err = d.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1, "one that is silent is gone")
	require.NoError(t, d.exec("UPDATE envoy_rls.instances SET seen_at = now() - interval '61 min' WHERE id = 'a'"))
	require.NoError(t, d.Beat(t.Context(), b))
	require.ErrorContains(t, d.exec("SELECT 1/count(*) FROM envoy_rls.instances WHERE id = 'a'"), "division by zero", "and forgotten")
	require.NoError(t, d.exec("INSERT INTO envoy_rls.instances SELECT 'future', 1, '', false, '', '', now(), now(), now() + interval '36 s'"))
	list, err = d.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1, "one that was seen in the future is not one of late")
	require.NoError(t, d.exec("UPDATE envoy_rls.instances SET since = '-infinity', started_at = 'infinity', seen_at = now() WHERE id = 'future'"))
	list, err = d.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1, "times that are none do not hide the others")
	require.NoError(t, d.exec("UPDATE envoy_rls.instances SET seen_at = 'infinity' WHERE id = 'future'"))
	b.Error = "a\x00b\xff"
	require.NoError(t, d.Beat(t.Context(), b), "what a database cannot hold")
	require.ErrorContains(t, d.exec("SELECT 1/count(*) FROM envoy_rls.instances WHERE id = 'future'"), "division by zero")
	require.NoError(t, d.Leave(t.Context(), "b"))
	list, err = d.Instances(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestNoSecretIsTold: whatever is wrong with the connection, errors do not have the password.
func TestNoSecretIsTold(t *testing.T) {
	server := postgres.Server(t)
	nobody := "postgres://tester:s3cret@127.0.0.1:1/test"
	tests := map[string]struct{ dsn, want string }{
		"wrong password":        {server.DSNFor(pgtest.User, "s3cret", "postgres"), "password authentication failed"},
		"no such database":      {server.DSN("s3cretless"), "does not exist"},
		"nobody there":          {nobody, "connection refused"},
		"not encoded":           {"postgres://tester:s3cret#:@/%zz@host/db", "no connection string"},
		"a port that is none":   {"postgres://tester:s3cret@host:port/db", "no connection string"},
		"a key that is none":    {"password=s3cret host", "no connection string"},
		"a quote that ends not": {"password='s3cret host=x", "no connection string"},
		"nothing":               {"", "no connection string"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := open(t, tt.dsn)
			_, err := d.Active(t.Context())
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, strings.ReplaceAll(err.Error(), "s3cretless", ""), "s3cret")
			require.NotContains(t, err.Error(), pgtest.Password)
			require.NotErrorIs(t, err, policydb.ErrNoVersion)
		})
	}
}

func TestConnectionStringIsInAFile(t *testing.T) {
	d := newDatabase(t)
	require.NoError(t, d.Check())
	d.push(1, "one")
	require.NoError(t, os.WriteFile(d.file, []byte(postgres.Server(t).DSNFor(pgtest.User, "old", "postgres")), 0o600))
	_, err := d.Active(t.Context())
	require.Error(t, err)
	require.NoError(t, os.WriteFile(d.file, []byte(d.dsn), 0o600))
	_, err = d.Active(t.Context())
	require.NoError(t, err, "the file is read for each connection")

	require.NoError(t, os.Remove(d.file))
	require.ErrorIs(t, d.Check(), policydb.ErrDSN)
	require.ErrorIs(t, d.Check(), os.ErrNotExist)
	require.ErrorContains(t, policydb.New(policydb.Options{DSNFile: t.TempDir()}).Check(), "not a regular file")
	for _, dsn := range []string{"postgres://tester:s3cret@host/db", "host=x user=y password=s3cret"} {
		err := policydb.New(policydb.Options{DSNFile: dsn}).Check()
		require.ErrorIs(t, err, policydb.ErrDSN)
		require.ErrorContains(t, err, "write it to a file, and name that")
		require.NotContains(t, err.Error(), "s3cret")
	}
	err = open(t, "postgres://tester:s3cret@host/db?sslmode=verify-full&sslrootcert=/nowhere/ca.pem").Check()
	require.ErrorContains(t, err, " names a file: open /nowhere/ca.pem: no such file or directory")
	require.NotContains(t, err.Error(), "s3cret")
	big := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(big, make([]byte, 20<<10), 0o600))
	require.ErrorContains(t, policydb.New(policydb.Options{DSNFile: big}).Check(), "not a regular file of at most 16 KiB")
}
