package rls

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// Code is a verdict, with the numbers of RateLimitResponse.Code. The zero Code, UNKNOWN, counts as allowed in Envoy: an answer
// always sets another.
type Code uint8

// The verdicts.
const (
	OK        Code = 1
	OverLimit Code = 2
)

// Unit is the unit of a Status's limit, with the numbers of RateLimitResponse.RateLimit.Unit.
type Unit uint8

// The units. Zero is none of them.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
)

// Status is the answer about one descriptor.
type Status struct {
	Code Code
	// HasLimit says that RequestsPerUnit, Unit, Name, Remaining and ResetSeconds are known and to be sent.
	HasLimit bool
	// RequestsPerUnit calls are allowed per Unit.
	RequestsPerUnit uint32
	Unit            Unit
	// Name is the limit's name; empty: none is sent.
	Name string
	// Remaining is how many calls are left.
	Remaining uint32
	// ResetSeconds is how many whole seconds remain until the limit is reset.
	ResetSeconds int64
}

// Header is a header field that Envoy adds to the answer it gives to its client.
type Header struct {
	Name  string // in lower case, one of our own constants
	Value []byte
}

// Response is an envoy.service.ratelimit.v3.RateLimitResponse. A reused one allocates nothing.
//
// Envoy emits header values as they are, and refuses an answer with text that is not UTF-8, upon which it lets the request
// through. So every byte of a text that is not printable ASCII or a tab goes out as a question mark.
type Response struct {
	Code     Code
	Statuses []Status // one for each descriptor of the request, in order
	Headers  []Header
	// Body is that of a denial. Sent as it is.
	Body []byte
	// Policy and Source become the fields of that name in the answer's dynamic metadata; empty: left out.
	Policy, Source string

	fields rlheaders.Answer // what Headers and Body point to
}

// Reset empties r and keeps its memory.
func (r *Response) Reset() {
	*r = Response{Statuses: r.Statuses[:0], Headers: r.Headers[:0], fields: r.fields}
}

// The fields that are written, by number.
const (
	responseCode     protowire.Number = 1
	responseStatuses protowire.Number = 2
	responseHeaders  protowire.Number = 3
	responseBody     protowire.Number = 5
	responseMetadata protowire.Number = 6

	statusCode      protowire.Number = 1
	statusLimit     protowire.Number = 2
	statusRemaining protowire.Number = 3
	statusReset     protowire.Number = 4

	limitRequestsPerUnit protowire.Number = 1
	limitUnit            protowire.Number = 2
	limitName            protowire.Number = 3

	durationSeconds protowire.Number = 1

	pairKey   protowire.Number = 1 // of a header and of a map's entry
	pairValue protowire.Number = 2

	structFields protowire.Number = 1
	stringValue  protowire.Number = 3
)

// Append appends r as a protobuf message to dst.
func (r *Response) Append(dst []byte) []byte {
	dst = appendVarint(dst, responseCode, uint64(r.Code))
	for i := range r.Statuses {
		dst = r.Statuses[i].append(dst)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		var at int
		dst, at = openMessage(dst, responseHeaders)
		dst = appendText(dst, pairKey, h.Name)
		dst = appendText(dst, pairValue, h.Value)
		dst = closeMessage(dst, at)
	}
	if len(r.Body) > 0 {
		dst = protowire.AppendTag(dst, responseBody, protowire.BytesType)
		dst = protowire.AppendBytes(dst, r.Body)
	}
	return r.appendMetadata(dst)
}

func (s *Status) append(dst []byte) []byte {
	dst, at := openMessage(dst, responseStatuses)
	dst = appendVarint(dst, statusCode, uint64(s.Code))
	if s.HasLimit {
		var inner int
		dst, inner = openMessage(dst, statusLimit)
		dst = appendVarint(dst, limitRequestsPerUnit, uint64(s.RequestsPerUnit))
		dst = appendVarint(dst, limitUnit, uint64(s.Unit))
		dst = appendText(dst, limitName, s.Name)
		dst = closeMessage(dst, inner)
		dst = appendVarint(dst, statusRemaining, uint64(s.Remaining))
		dst, inner = openMessage(dst, statusReset)
		dst = appendVarint(dst, durationSeconds, uint64(s.ResetSeconds))
		dst = closeMessage(dst, inner)
	}
	return closeMessage(dst, at)
}

func (r *Response) appendMetadata(dst []byte) []byte {
	if r.Policy == "" && r.Source == "" {
		return dst
	}
	dst, at := openMessage(dst, responseMetadata)
	dst = appendStructField(dst, "policy", r.Policy)
	dst = appendStructField(dst, "source", r.Source)
	return closeMessage(dst, at)
}

// appendStructField appends an entry of a google.protobuf.Struct, unless its value is empty.
func appendStructField(dst []byte, key, value string) []byte {
	if value == "" {
		return dst
	}
	dst, entry := openMessage(dst, structFields)
	dst = appendText(dst, pairKey, key)
	dst, inner := openMessage(dst, pairValue)
	dst = appendText(dst, stringValue, value)
	dst = closeMessage(dst, inner)
	return closeMessage(dst, entry)
}

// appendVarint appends a number, unless it is 0, which protobuf does not write.
func appendVarint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

// appendText appends a string, unless it is empty, with a question mark for every byte that is unfit for a header.
func appendText[T string | []byte](dst []byte, num protowire.Number, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(text)))
	start := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[start:] {
		if (c < ' ' && c != '\t') || c > '~' {
			dst[start+i] = '?'
		}
	}
	return dst
}

// openMessage begins an embedded message and leaves one byte for its length. It gives the place where the message starts, for
// closeMessage.
func openMessage(dst []byte, num protowire.Number) ([]byte, int) {
	dst = append(protowire.AppendTag(dst, num, protowire.BytesType), 0)
	return dst, len(dst)
}

// closeMessage writes the length of the embedded message that starts at start, moving it up if one byte is too few. Most are
// shorter than 128 bytes, hence one pass instead of one for the lengths and one for the bytes.
func closeMessage(dst []byte, start int) []byte {
	n := len(dst) - start
	if extra := protowire.SizeVarint(uint64(n)) - 1; extra > 0 {
		var room [binary.MaxVarintLen64]byte
		dst = append(dst, room[:extra]...)
		copy(dst[start+extra:], dst[start:start+n])
	}
	protowire.AppendVarint(dst[:start-1], uint64(n))
	return dst
}
