package redisbackend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// mutants are faults that somebody could make in the script: the n-th occurrence of a text (from 1) replaced by another.
var mutants = []struct {
	name     string
	from, to string
	n        int
}{
	{"tokens: the brim dropped", "if b > capacity then b = capacity end", "", 1},
	{"tokens: the offset of the clock skipped", "now = time + offset", "now = time", 1},
	{"tokens: a step back not noted", "now, stale = last, true", "now = last", 1},
	{"tokens: a clock that may run back", "if time >= last then", "if true then", 1},
	{"tokens: written on a denial", "level, at, write = a, now - c, stale", "level, at, write = b, now, true", 1},
	{"tokens: written on a force without room", "level, at, write = a, now - c, stale", "level, at, write = b, now, true", 2},
	{"tokens: no TTL", ", 'PX', life + 1000000000)", ")", 1},
	{"tokens: no TTL ahead of time", ", 'PX', life + 1000000000)", ")", 2},
	{"tokens: no TTL as a rule", ", 'PX', life + 1000000000)", ")", 3},
	{"tokens: TTL without the offset", "life = (life + ahead) / 1000", "life = life / 1000", 1},
	{"tokens: TTL not lengthened", "longer = was ~= capacity or rate ~= pace", "longer = false", 1},
	{"tokens: TTL shortened by a denial", "call('PTTL', key) - 1000000000 < life", "true", 1},
	{"tokens: offset not kept", "elseif ahead > 0 then", "elseif false then", 1},
	{"tokens: undo pays twice", "spilled = x + held * pace - capacity", "spilled = 0", 1},
	{"tokens: undo takes", "if spilled < 0 then spilled = 0 elseif", "if", 1},
	{"tokens: undo above the brim", "math.min(capacity, b + (cost - spilled))", "b + (cost - spilled)", 1},
	{"tokens: refund above the brim", "math.min(capacity, b + cost)", "b + cost", 1},
	{"tokens: force charges parts", "room = floor(b + x)", "room = b + x", 1},
	{"tokens: force without a floor", "math.min(cost, room)", "cost", 1},
	{"tokens: a refund makes a key", "math.min(capacity, b + cost), state", "math.min(capacity, b + cost), true", 1},
	{"tokens: not rounded down when taken over", "floor(capacity * (of - spent) / of)", "capacity * (of - spent) / of", 1},
	{"tokens: refill forgotten when given up", "spent + passed * rate", "spent", 1},
	{"log: the offset of the clock skipped", "now = time + offset", "now = time", 2},
	{"log: a step back not noted", "now, stale = last, true", "now = last", 2},
	{"log: one more", "fits = c + cost <= capacity", "fits = c + cost <= capacity + 1", 1},
	{"log: leaves late", "e <= edge", "e < edge", 1},
	{"log: an old one leaves late", "while stamp <= edge do", "while stamp < edge do", 1},
	{"log: an old one leaves late in place", "run(0) <= edge", "run(0) < edge", 1},
	{"log: a stale chunk", "if chunkKey ~= key or from < chunkFrom", "if not chunk or from < chunkFrom", 1},
	{"log: not rounded up when taken over", "math.ceil(capacity * spent / of)", "floor(capacity * spent / of)", 1},
	{"log: written on a denial", "if stale and charged == 0 then", "if charged == 0 and state then", 1},
	{"log: no TTL", ", 'PX', life + 1000000000)", ")", 4},
	{"log: no TTL in place", "  call('PEXPIRE', key, life + 1000000000)\nelseif tail", "elseif tail", 1},
	{"log: TTL without the offset", "floor((life + ahead) / 1000)", "floor(life / 1000)", 1},
	{"log: TTL not lengthened", "longer = window < pace", "longer = false", 1},
	{"log: refund removes one too few", "c, d, keep = 0, b, a", "c, d, keep = 0, b, f", 1},
	{"log: undo removes others", "if at == y then", "if true then", 1},
	{"log: undo removes too much", "math.min(cost, (number - before) % wrap)", "(number - before) % wrap", 1},
	{"log: undo leaves later numbers", "number = (number - cut) % wrap", "number = k == undone and number - cut or number", 1},
	{"log: force above the limit", "math.min(cost, math.max(0, capacity - c))", "cost", 1},
	{"log: a wait for too few", "run(find(a, f - 1, 0, c + cost - capacity))", "run(a)", 2},
	{"mark: the flag dropped", "elseif open then", "elseif false then", 1},
	{"mark: set without the flag", "elseif open then", "else", 1},
	{"mark: never ends", "- floor(now / 65536)", "- floor(last / 65536)", 1},
	{"mark: does not end before a second write", "if mark < 0 then mark = 0 end", "if mark < 1 then mark = 1 end", 1},
	{"mark: dropped by a write", "elseif open then", "elseif not open then mark = 0 else", 1},
	{"mark: not counted from now", "+ floor(last / 65536) - floor(now / 65536)", "", 1},
	{"mark: not told of tokens", "result + 16 * mark", "result", 1},
	{"mark: not told of a log", "result + 16 * mark", "result", 3},
	{"mark: lost with the tokens", "last = last + high % 16 * 281474976710656", "last = last + high % 16 * 281474976710656\nhigh = 0", 3},
	{"mark: lost with the log", "last = last + high % 16 * 281474976710656", "last = last + high % 16 * 281474976710656\nhigh = 0", 4},
	{"mark: another bucket's", "s[21], s[22], s[23]", "s[21], s[22], mark", 1},
	{"mark: another bucket's flag", "s[21], s[22], s[23]", "s[21], open, s[23]", 1},
	{"a shadow counted", "and not fits and not shadow then", "and not fits then", 1},
	{"a denial not counted", "    admitted = 0\n", "", 1},
	{"a peek charged", "elseif admitted == 0 or op == 2 then", "elseif admitted == 0 then", 1},
	{"a denied call charged", "elseif admitted == 0 or op == 2 then", "elseif op == 2 then", 1},
	{"merged tokens: charged once", "level = b - cost * admitted", "level = b - cost", 1},
	{"merged tokens: what a denied one finds", "level, now - at, now)", "a, c, now)", 1},
	{"merged tokens: a bucket that is not the empty one denies", "op == 1 and level < cost and 2 or 3", "op == 1 and 2 or 3", 1},
	{"merged tokens: a peek denies", "op == 1 and level < cost and 2 or 3", "level < cost and 2 or 3", 1},
	{"merged tokens: the empty bucket does not deny", "op == 1 and level < cost and 2 or 3", "3", 1},
	{"merged tokens: more than it has", "room = b\n", "room = b + 1\n", 1},
	{"merged tokens: mark not told", "result + 16 * mark", "result", 2},
	{"merged log: mark not told", "after + 16 * mark", "after", 1},
	{"merged log: charged once", "charged = cost * admitted", "charged = cost", 1},
	{"merged log: more than it has", "room = capacity - c", "room = capacity", 1},
	{"merged log: the first sees the others", "charged - cost", "0", 1},
	{"merged log: a bucket that is not the full one denies", "if short and c + cost > capacity then", "if short then", 1},
	{"merged log: the full bucket does not deny", "after, wait = 2, stamp", "after, wait = 3, 0", 1},
	{"merged log: a wait for the newest", "if c + cost - capacity <= c - charged then", "if false then", 1},
	{"merged log: a wait for an old one", "if c + cost - capacity <= c - charged then", "if f > a then", 1},
	{"merged log: a wait for too few", "run(find(a, f - 1, 0, c + cost - capacity))", "run(a)", 1},
	{"merged log: what a denied one finds", "mark, c, oldest", "mark, c - others, oldest", 1},
	{"merged: more than were asked for", "math.min(admitted, floor(room / cost))", "floor(room / cost)", 1},
	{"merged: by the last bucket alone", "math.min(admitted, floor(room / cost))", "math.min(calls, floor(room / cost))", 1},
	{"merged: parts of a call", "floor(room / cost)", "room / cost", 1},
	{"merged: a peek counts", "elseif op == 1 and admitted > 1 then", "elseif op <= 2 and admitted > 1 then", 1},
	{"merged: a denial undone", "elseif op == 1 and admitted > 1 then", "elseif op == 1 then", 1},
	{"tokens: put charges what there was", "level = capacity - math.min(cost, capacity)", "level = b - math.min(cost, b)", 1},
	{"log: put keeps what there was", "if op == 7 then", "if false then", 1},
	{"another bucket's state", "x, y, state, now, fits, stale, longer = s[7], s[8], s[9]", "x, y, state, now, fits, stale, longer = s[7], s[8], state", 1},
}

func TestMutantsOfTheScriptAreCaught(t *testing.T) {
	t.Parallel()
	_, c := scriptServer(t)
	source := underTestClock(t, script.source).source
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			mutant := mutant(t, source, m.from, m.to, m.n)
			load(t, c, mutant)
			var err error
			for seed := uint64(0); seed < 4 && err == nil; seed++ {
				if err = differ(c, mutant, seed, false, 5000); err == nil {
					err = differ(c, mutant, seed, true, 5000)
				}
			}
			require.Error(t, err)
		})
	}
}
