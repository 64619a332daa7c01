package policydb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

// TestNoneActive: somebody has made all versions superseded. That is told, and publishing goes on from there.
func TestNoneActive(t *testing.T) {
	d := newDatabase(t)
	d.push(1, "one")
	d.push(2, "two")
	require.NoError(t, d.exec("UPDATE envoy_rls.versions SET state = 'superseded'"))
	_, err := d.Active(t.Context())
	require.ErrorIs(t, err, policydb.ErrNoVersion)
	require.ErrorContains(t, err, "none is active, of those up to version 2")
	_, err = d.Publish(t.Context(), draft(2, "three"))
	require.EqualError(t, err, "the change is based on version 2, but none is active")
	v, err := d.Publish(t.Context(), draft(0, "three"))
	require.NoError(t, err)
	require.EqualValues(t, 3, v.Number)
}

// TestSeveralActive: without the index that keeps them apart, the newest is the one, and the next to be published the only one.
func TestSeveralActive(t *testing.T) {
	d := newDatabase(t)
	for n, content := range []string{"one", "two", "three"} {
		d.push(int64(n)+1, content)
	}
	require.NoError(t, d.exec("DROP INDEX envoy_rls.versions_one_active"))
	require.NoError(t, d.exec("UPDATE envoy_rls.versions SET state = 'active' WHERE number < 3"))
	v, err := d.Active(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, v.Number)
	d.push(4, "four")
	list, err := d.List(t.Context(), 10)
	require.NoError(t, err)
	for _, v := range list[1:] {
		require.Equal(t, policydb.Superseded, v.State)
	}
}

// TestPublishMends: files that were damaged in the database are not "the same" as the sound ones, although their SHA-256 says so.
func TestPublishMends(t *testing.T) {
	d := newDatabase(t)
	d.push(1, "one")
	require.NoError(t, d.exec("ALTER TABLE envoy_rls.versions DISABLE TRIGGER versions_keep"))
	require.NoError(t, d.exec(`UPDATE envoy_rls.versions SET files = '[{"name": "a.yaml", "content": "other"}]'`))
	v, err := d.Publish(t.Context(), draft(1, "one"))
	require.NoError(t, err)
	require.EqualValues(t, 2, v.Number)
	got, err := d.Get(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, texts("one"), got.Files)
}

// TestSomebodyHoldsTheTable: an operation says how long it waited.
func TestSomebodyHoldsTheTable(t *testing.T) {
	d := newDatabase(t)
	d.push(1, "one")
	done := make(chan error, 1)
	go func() {
		done <- d.exec("DO $$ BEGIN LOCK TABLE envoy_rls.versions; PERFORM pg_sleep(60); END $$")
	}()
	short := open(t, d.dsn, func(o *policydb.Options) { o.Timeout = 300 * time.Millisecond })
	require.Eventually(t, func() bool {
		_, err := short.Active(t.Context())
		return err != nil
	}, patience, 10*time.Millisecond)
	_, err := short.Publish(t.Context(), draft(1, "two"))
	require.ErrorContains(t, err, "no answer within 300ms: ")
	require.NoError(t, d.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %' AND datname = current_database()"))
	require.Error(t, <-done)
	v, err := d.Active(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, v.Number, "what was given up is not published")
}
