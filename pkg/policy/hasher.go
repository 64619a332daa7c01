package policy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
)

// Identity stands for a bucket's key within a process, in 16 bytes. Nobody outside the process can compute it, so nobody can look for a key
// that shares one with somebody else's.
type Identity struct{ A, B uint64 }

// longKey is from where on keys go through SHA-256. hash/maphash runs one round of AES for each block of a long input, which
// is too little mixing to trust 128 bits of it against somebody who chooses the input and watches the answers.
const longKey = 128

// Hasher turns keys into identities. Another Hasher makes others of them. It is safe for concurrent use.
type Hasher struct {
	first, second maphash.Seed
	secret        [sha256.Size]byte
}

// NewHasher makes a hasher with secrets of its own.
func NewHasher() Hasher {
	h := Hasher{first: maphash.MakeSeed(), second: maphash.MakeSeed()}
	_, _ = rand.Read(h.secret[:]) // never fails: it ends the program instead
	return h
}

// Identify gives the identity of a key's bytes, which it does not keep.
func (h *Hasher) Identify(key []byte) Identity {
	if len(key) > longKey {
		return h.identifyLong(key)
	}
	return Identity{maphash.Bytes(h.first, key), maphash.Bytes(h.second, key)}
}

func (h *Hasher) identifyLong(key []byte) Identity {
	var room [1024]byte
	sum := sha256.Sum256(append(append(room[:0], h.secret[:]...), key...))
	return Identity{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}
