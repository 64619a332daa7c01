package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"

	"github.com/dunglas/httpsfv"
)

// FieldKey is the request's header field.
const FieldKey = "Idempotency-Key"

const (
	// maxKey is how many characters a key may have.
	maxKey = 255
	// maxKeyField is how many bytes of the field are parsed: a key whose every character is escaped, and some parameters.
	maxKeyField = 1024
)

// ParseKey reads the lines of the field Idempotency-Key: one structured-field string (RFC 9651, 3.3.3) of 1 to 255 characters, in quotes.
// Parameters are allowed and ignored.
func ParseKey(lines []string) (string, error) {
	if len(lines) != 1 {
		return "", fmt.Errorf("want one %s, got %d", FieldKey, len(lines))
	}
	if len(lines[0]) > maxKeyField {
		return "", errors.New("the field is too long")
	}
	item, err := httpsfv.UnmarshalItem(lines)
	if err != nil {
		return "", fmt.Errorf(`want a string in quotes, such as "8e03978e-40d5-43dd-bc93-6894a57f9324": %w`, err)
	}
	key, ok := item.Value.(string)
	switch {
	case !ok:
		return "", errors.New("want a string in quotes")
	case key == "" || len(key) > maxKey: // of ASCII
		return "", fmt.Errorf("want 1 to %d characters, got %d", maxKey, len(key))
	}
	return key, nil
}

// newKey identifies the entry of a request. The parts are told apart by their lengths, so that no two requests share an entry.
func newKey(account, method, route, key string) Key {
	d := newDigest()
	for _, part := range []string{account, method, route, key} {
		d.add(part)
	}
	return d.sum()
}

// digest is a hash of parts.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) add(part string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	d.Write(length[:])
	_, _ = io.WriteString(d, part) // a hash takes everything
}

func (d digest) sum() (sum [sha256.Size]byte) {
	d.Sum(sum[:0])
	return sum
}

// fingerprint is of what r asks for: path, query, type and coding of its body, and the body itself. Of a body above most bytes it is of the first
// most, and of the length that the client has declared. The body can be read again afterwards.
func fingerprint(r *http.Request, most int) (Fingerprint, error) {
	d := newDigest()
	for _, part := range []string{r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type"), r.Header.Get("Content-Encoding")} {
		d.add(part)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return d.sum(), nil
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	if err != nil {
		return Fingerprint{}, err
	}
	d.Write(read[:min(len(read), most)])
	if len(read) > most {
		d.add("… of " + strconv.FormatInt(r.ContentLength, 10))
	}
	r.Body = restored{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
	return d.sum(), nil
}

// restored is a body of which something had been read.
type restored struct {
	io.Reader
	io.Closer
}
