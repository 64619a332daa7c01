package simulate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// keyID stands for a key: the first half of its SHA-256, so that no key, and nobody's address or name, is in a report.
type keyID [16]byte

// String is the form in which reports name a key.
func (id keyID) String() string { return hex.EncodeToString(id[:8]) }

// keys counts by key, for a bounded number of them.
type keys struct {
	most   int
	places map[keyID]uint32
	counts []keyCount
}

type keyCount struct {
	id       keyID
	policy   int32
	requests int64
	denied   int64
}

func newKeys(most int) *keys { return &keys{most: most, places: map[keyID]uint32{}} }

// count gives the key's place. ok is false if there is no room for another key.
func (k *keys) count(key policy.Key, policyIndex int, denied bool) (place uint32, ok bool) {
	sum := sha256.Sum256(key.Bytes())
	id := keyID(sum[:16])
	place, ok = k.places[id]
	if !ok {
		if len(k.counts) >= k.most {
			return 0, false
		}
		place = uint32(len(k.counts))
		k.places[id] = place
		k.counts = append(k.counts, keyCount{id: id, policy: int32(policyIndex)})
	}
	c := &k.counts[place]
	c.requests++
	if denied {
		c.denied++
	}
	return place, true
}

// top are the n keys with the most requests.
func (k *keys) top(n int) []keyCount {
	var best []keyCount
	for i := range k.counts {
		c := &k.counts[i]
		if len(best) == n && moreHit(c, &best[n-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, *c, func(a, b keyCount) int { return moreHit(&a, &b) })
		best = slices.Insert(best, at, *c)
		best = best[:min(n, len(best))]
	}
	return best
}

// moreHit orders keys by requests, then denials, then anyhow but always alike.
func moreHit(a, b *keyCount) int {
	return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(b.denied, a.denied), slices.Compare(a.id[:], b.id[:]))
}

// denials are those of each key, by policy index.
func (k *keys) denials(policies int) [][]int64 {
	all := make([][]int64, policies)
	for i := range k.counts {
		c := &k.counts[i]
		all[c.policy] = append(all[c.policy], c.denied)
	}
	return all
}
