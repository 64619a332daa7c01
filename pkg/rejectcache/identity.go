package rejectcache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
)

// identity stands for a bucket's key. Nobody outside the process can compute it, so nobody can look for a key of somebody
// else's denials.
type identity struct{ a, b uint64 }

// longKey is from where on keys go through SHA-256. hash/maphash runs one round of AES for each block of a long input, which
// is too little mixing to trust 128 bits of it against somebody who chooses the input and watches the answers.
const longKey = 128

// hasher turns keys into identities.
type hasher struct {
	first, second maphash.Seed
	secret        [sha256.Size]byte
}

func newHasher() hasher {
	h := hasher{first: maphash.MakeSeed(), second: maphash.MakeSeed()}
	_, _ = rand.Read(h.secret[:]) // never fails: it ends the program instead
	return h
}

func (h *hasher) identify(key []byte) identity {
	if len(key) > longKey {
		return h.identifyLong(key)
	}
	return identity{maphash.Bytes(h.first, key), maphash.Bytes(h.second, key)}
}

func (h *hasher) identifyLong(key []byte) identity {
	var room [1024]byte
	sum := sha256.Sum256(append(append(room[:0], h.secret[:]...), key...))
	return identity{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}
