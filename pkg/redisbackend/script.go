package redisbackend

import (
	"crypto/sha1" // the name that Redis gives a script
	_ "embed"     // for the script
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

//go:embed acquire.lua
var prelude string

// luaScript is a script as Redis knows it.
type luaScript struct {
	source string
	sha    string // hex SHA-1 of source
}

// script decides on buckets of one slot; see acquire.lua.
var script = newScript(assemble(prelude))

func newScript(source string) luaScript {
	sum := sha1.Sum([]byte(source))
	return luaScript{source: source, sha: hex.EncodeToString(sum[:])}
}

// Each algorithm brings these sections; they are put where the prelude has a line of that name.
//
//	is      an expression: whether state, which is not false, is one of its own
//	locals  optional: what it declares once for a call
//	read    gets state, or sets foreign if it is another algorithm's; else sets now, fits, and stale and longer where they hold
//	room    sets room, what there is for takes, after read or adopt
//	spent   state is its own and the policy in force is another algorithm's: sets last, offset, spent and of
//	adopt   makes a state of its own of spent, of and now, and sets fits
//	write   carries out op as result says, and appends its record to out
//
// In a section, a line --@use NAME stands for another section of the same fragment.
func assemble(prelude string) string {
	var fragments []map[string]string
	for _, k := range algorithm.Kinds() {
		fragments = append(fragments, sections(k.Script()))
	}
	var out strings.Builder
	for line := range strings.Lines(prelude) {
		mark := strings.TrimSpace(line)
		name, isMark := strings.CutPrefix(mark, "--@")
		switch {
		case !isMark:
			out.WriteString(line)
		case name == "locals":
			for _, f := range fragments {
				out.WriteString(f[name])
			}
		case name == "spent":
			choose(&out, fragments, name, "unknown state format", func(i int) string { return strings.TrimSpace(fragments[i]["is"]) })
		default:
			choose(&out, fragments, name, "unknown algorithm", func(i int) string { return fmt.Sprintf("kind == %d", algorithm.Kinds()[i]) })
		}
	}
	return out.String()
}

// choose writes the section of the algorithm whose condition holds.
func choose(out *strings.Builder, fragments []map[string]string, name, otherwise string, condition func(i int) string) {
	word := "if"
	for i, f := range fragments {
		fmt.Fprintf(out, "%s %s then\n%s", word, condition(i), f[name])
		word = "elseif"
	}
	fmt.Fprintf(out, "else\nreturn redis.error_reply('ERR acquire: %s')\nend\n", otherwise)
}

// sections takes a fragment apart. What stands before the first one is under no name.
func sections(fragment string) map[string]string {
	all, name := map[string]string{}, ""
	for line := range strings.Lines(fragment) {
		next, isMark := strings.CutPrefix(strings.TrimSpace(line), "--@")
		used, isUse := strings.CutPrefix(next, "use ")
		switch {
		case isMark && isUse:
			all[name] += all[used]
		case isMark:
			name = next
		default:
			all[name] += line
		}
	}
	return all
}
