package accuracy_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
)

// TestFiles: what is written is read, and judged the same, also in pieces that several programs have written.
func TestFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lied(t)
		r.Faults = []accuracy.Fault{{Why: "x", From: 1, To: 2, Buckets: []uint32{0}, Units: 3, Capacities: 0.5}}
		want, err := accuracy.Check(r, accuracy.Options{})
		require.NoError(t, err)
		var file bytes.Buffer
		require.NoError(t, r.Write(&file))
		read, err := accuracy.Read(bytes.NewReader(file.Bytes()))
		require.NoError(t, err)
		got, err := accuracy.Check(read, accuracy.Options{})
		require.NoError(t, err)
		require.Equal(t, want, got)

		first, second := *r, *r
		cut := rapid.IntRange(0, len(r.Entries)).Draw(t, "cut")
		first.Entries, second.Entries, second.Faults = r.Entries[:cut], r.Entries[cut:], nil
		merged, err := accuracy.Merge(&second, &first)
		require.NoError(t, err)
		got, err = accuracy.Check(merged, accuracy.Options{})
		require.NoError(t, err)
		require.Equal(t, kinds(want), kinds(got))
		require.Equal(t, want.WrongDenials, got.WrongDenials)
	})
}

func TestFilesThatMakeNoSense(t *testing.T) {
	const head = `{"accuracy":1,"buckets":[{"key":"k","algorithm":"token-bucket","capacity":3,"perSecond":1}]}` + "\n"
	const entry = `{"call":0,"start":1,"end":2,"bucket":0,"op":"take","cost":1,"outcome":"admitted","passed":true,"source":"store"}`
	_, err := accuracy.Read(strings.NewReader(head + entry + "\n\n" + entry))
	require.NoError(t, err)
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "line 1: no header"},
		{"no record", "{}", "line 1: not a record of version 1"},
		{"another algorithm", strings.Replace(head, "token", "leaky", 1), `line 1: bucket k: there is no algorithm "leaky-bucket"`},
		{"a log without a window", strings.Replace(head, "token-bucket", "sliding-log", 1), "bucket 0 (k): limits"},
		{"a negative capacity", strings.Replace(head, ":3", ":-3", 1), "a capacity of -3"},
		{"no JSON", head + "hello", "line 2: invalid"},
		{"another bucket", head + strings.Replace(entry, `"bucket":0`, `"bucket":1`, 1), "line 2: there is no bucket 1"},
		{"an answer before its call", head + strings.Replace(entry, `"end":2`, `"end":0`, 1), "line 2: the answer is earlier than the call"},
		{"a time out of range", head + strings.Replace(entry, `"end":2`, `"end":9000000000000000000`, 1), "line 2: a time is out of range"},
		{"another word", head + strings.Replace(entry, "take", "steal", 1), `line 2: "steal" is none of ["take"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := accuracy.Read(strings.NewReader(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestMergeRefusesAnotherBucketOfTheSameName(t *testing.T) {
	r := accuracy.Record{Buckets: []accuracy.Bucket{{Key: "k", Limits: tokens(3, 1)}}}
	other := accuracy.Record{Buckets: []accuracy.Bucket{{Key: "k", Limits: tokens(4, 1)}}}
	_, err := accuracy.Merge(&r, &other)
	require.ErrorContains(t, err, "bucket k")
}

// FuzzRead: whatever stands in a file, it is read, or refused, and what is read can be judged.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"accuracy":1,"buckets":[{"key":"k","algorithm":"token-bucket","capacity":3,"perSecond":1}]}
{"call":0,"start":1,"end":2,"bucket":0,"op":"take","cost":1,"outcome":"admitted","passed":true,"source":"store","left":2.5,"wait":7}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := accuracy.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		v, err := accuracy.Check(r, accuracy.Options{})
		require.NoError(t, err)
		require.False(t, math.IsNaN(v.Fullest.Bound))
		require.NoError(t, v.WriteText(&bytes.Buffer{}))
	})
}
