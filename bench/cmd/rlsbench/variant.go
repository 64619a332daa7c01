package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// variant is envoy-rls with a piece of its client of Redis exchanged, to have something to compare it with. The exchange is made
// while it is compiled (go build -overlay), so that the program itself has no switch for it.
type variant struct {
	name  string
	edits []edit
	args  []string // for serve
}

// edit exchanges a text that stands once in a file of pkg/redisbackend, or all of the file if from is empty.
type edit struct{ file, from, to string }

// variants are what envoy-rls is compared with, beside the floor, by name.
func variants() map[string]variant {
	return map[string]variant{
		// What the same calls in the same batches cost when the script does nothing.
		emptyScript: {name: emptyScript, edits: []edit{
			{"acquire.lua", "", "return 1"},
			{"store.go", "codec{script, appendArgs, readReply}", `codec{script, appendArgs,
		func(_ any, _ place, _ []ratelimit.Bucket, at []int, results []ratelimit.Result) error {
			for _, i := range at {
				results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 1}
			}
			return nil
		}}`},
		}},
		// What the same script costs when each call has a connection to itself for the time of a round trip. There are as many
		// connections as go-redis makes by default on two cores.
		oneByOne: {name: oneByOne, edits: []edit{
			{"node.go", "mostInBatch = 256", "mostInBatch = 1"}, {"turn.go", "alone = 300 * time.Microsecond", "alone = time.Duration(0)"},
		}, args: []string{"--redis-pool-size", "21"}},
		unmerged: {name: unmerged, edits: []edit{{"batch.go", "w.calls = w.same.merge(w.calls)", ""}}},
	}
}

// The names of the variants, as the table has them.
const (
	emptyScript = "empty script"
	oneByOne    = "one by one"
	unmerged    = "unmerged"
)

// overlay writes the changed files to dir, and the list of them that go build wants; it returns the path of that.
func (v variant) overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	for i, e := range v.edits {
		path := filepath.Join(root, "pkg", "redisbackend", e.file)
		source, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text := e.to
		if e.from != "" {
			if n := strings.Count(string(source), e.from); n != 1 {
				return "", fmt.Errorf("%s: %q stands there %d times, want 1", path, e.from, n)
			}
			text = strings.Replace(string(source), e.from, e.to, 1)
		}
		replace[path] = filepath.Join(dir, fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(v.name, " ", "-"), i, e.file))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, strings.ReplaceAll(v.name, " ", "-")+".json")
	return out, os.WriteFile(out, list, 0o600)
}
