// Package descriptors reads what Envoy sends: a rate limit request with its descriptors, whose entries become the
// attributes of a request to the limiter.
package descriptors

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The most that is kept of one request. More is the operator's fault (descriptors come from Envoy's configuration, not
// from its clients): it sets Request.Truncated.
const (
	MaxDescriptors = 64
	MaxEntries     = 32 // per descriptor
)

// maxKeptBuffer is the largest buffer, in bytes, that a Request keeps for its next use, so that one huge request does not pin
// its memory for ever.
const maxKeptBuffer = 64 << 10

// The fields that are read, as protobuf tags: the field's number and its wire type. A known number with another
// wire type is an unknown field, as the protobuf rules have it.
const (
	requestDomain      = 1<<3 | uint64(protowire.BytesType)
	requestDescriptors = 2<<3 | uint64(protowire.BytesType)
	requestHitsAddend  = 3<<3 | uint64(protowire.VarintType)

	descriptorEntries    = 1<<3 | uint64(protowire.BytesType)
	descriptorLimit      = 2<<3 | uint64(protowire.BytesType)
	descriptorHitsAddend = 3<<3 | uint64(protowire.BytesType)
	descriptorNegative   = 4<<3 | uint64(protowire.VarintType)

	entryKey   = 1<<3 | uint64(protowire.BytesType)
	entryValue = 2<<3 | uint64(protowire.BytesType)

	limitUnitMultiplier = 3<<3 | uint64(protowire.BytesType)

	wrapperValue = 1<<3 | uint64(protowire.VarintType)
)

// errFieldNumber is what a tag outside of protobuf's range of field numbers gives.
var errFieldNumber = errors.New("invalid field number")

// Request is an envoy.service.ratelimit.v3.RateLimitRequest. All byte slices point into a buffer that the Request owns:
// they are valid until its next Unmarshal. The zero Request is empty and ready for use; a reused one allocates nothing.
//
// Domain, keys and values may hold any bytes. The protobuf definition says string, but Envoy copies header values into
// them as they are, and a server that insists on UTF-8 lets everyone through who sends a stray byte.
type Request struct {
	Domain      []byte
	Descriptors []Descriptor
	// HitsAddend is the cost of the request; 0 means that none was set.
	HitsAddend uint32
	// Truncated says that descriptors above MaxDescriptors or entries above MaxEntries were left out.
	Truncated bool

	buf   []byte
	spare Descriptor // takes what is left out, which must be well formed all the same
}

// Descriptor is one of a request's descriptors.
type Descriptor struct {
	Entries []Entry
	// HitsAddend is the descriptor's own cost, which counts only if HasHits: 0 differs from none.
	HitsAddend uint64
	HasHits    bool
	// IsNegativeHits turns the cost into a refund.
	IsNegativeHits bool
	// HasLimit says that the descriptor carries a limit override, which is not read.
	HasLimit bool
}

// Entry is a key and a value of a descriptor.
type Entry struct {
	Key, Value []byte
}

// Unmarshal replaces r by the protobuf message in b, which is copied. It follows the rules of the official decoder but for
// one: any bytes are accepted in strings. An error means that b is no protobuf message; r is then meaningless.
func (r *Request) Unmarshal(b []byte) error {
	copy(r.Alloc(len(b)), b)
	return r.Parse()
}

// Alloc empties r and gives its buffer, n bytes long, for the caller to fill with a protobuf message and then to Parse.
func (r *Request) Alloc(n int) []byte {
	if cap(r.buf) < n || cap(r.buf) > maxKeptBuffer {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	r.Domain, r.Descriptors, r.HitsAddend, r.Truncated = nil, r.Descriptors[:0], 0, false
	return r.buf
}

// Parse reads the message in the buffer that Alloc gave. For errors see Unmarshal.
func (r *Request) Parse() error {
	for b := r.buf; len(b) > 0; {
		f, err := consumeField(&b)
		if err != nil {
			return fmt.Errorf("rate limit request: %w", err)
		}
		switch f.tag {
		case requestDomain:
			r.Domain = f.bytes
		case requestDescriptors:
			if err := r.parseDescriptor(f.bytes); err != nil {
				return fmt.Errorf("rate limit descriptor: %w", err)
			}
		case requestHitsAddend:
			r.HitsAddend = uint32(f.varint)
		}
	}
	return nil
}

// addDescriptor gives the next descriptor, emptied, with the entries of its last use for reuse.
func (r *Request) addDescriptor() *Descriptor {
	d := &r.spare
	switch n := len(r.Descriptors); {
	case n == MaxDescriptors:
		r.Truncated = true
	case n < cap(r.Descriptors):
		r.Descriptors = r.Descriptors[:n+1]
		d = &r.Descriptors[n]
	default:
		r.Descriptors = append(r.Descriptors, Descriptor{})
		d = &r.Descriptors[n]
	}
	*d = Descriptor{Entries: d.Entries[:0]}
	return d
}

func (r *Request) parseDescriptor(b []byte) error {
	d := r.addDescriptor()
	for len(b) > 0 {
		f, err := consumeField(&b)
		if err != nil {
			return err
		}
		switch f.tag {
		case descriptorEntries:
			e, err := parseEntry(f.bytes)
			if err != nil {
				return err
			}
			if len(d.Entries) == MaxEntries {
				r.Truncated = true
				continue
			}
			d.Entries = append(d.Entries, e)
		case descriptorLimit:
			d.HasLimit = true
			if err := checkLimit(f.bytes); err != nil {
				return err
			}
		case descriptorHitsAddend:
			d.HasHits = true
			if err := parseWrapper(f.bytes, &d.HitsAddend); err != nil {
				return err
			}
		case descriptorNegative:
			d.IsNegativeHits = protowire.DecodeBool(f.varint)
		}
	}
	return nil
}

func parseEntry(b []byte) (Entry, error) {
	var e Entry
	for len(b) > 0 {
		f, err := consumeField(&b)
		if err != nil {
			return e, err
		}
		switch f.tag {
		case entryKey:
			e.Key = f.bytes
		case entryValue:
			e.Value = f.bytes
		}
	}
	return e, nil
}

// checkLimit walks over a limit override, of which nothing is used, for the official decoder refuses a broken one.
func checkLimit(b []byte) error {
	for len(b) > 0 {
		f, err := consumeField(&b)
		if err != nil {
			return err
		}
		if f.tag == limitUnitMultiplier {
			var unused uint64
			if err := parseWrapper(f.bytes, &unused); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseWrapper reads a google.protobuf.UInt64Value into v, which keeps its value if the message has none.
func parseWrapper(b []byte, v *uint64) error {
	for len(b) > 0 {
		f, err := consumeField(&b)
		if err != nil {
			return err
		}
		if f.tag == wrapperValue {
			*v = f.varint
		}
	}
	return nil
}

// field is one field of a message: its tag, and its value if it is a varint or bytes.
type field struct {
	tag    uint64
	varint uint64
	bytes  []byte
}

// consumeField takes the first field off b.
func consumeField(b *[]byte) (field, error) {
	num, typ, n := protowire.ConsumeTag(*b)
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	if num > protowire.MaxValidNumber { // ConsumeTag leaves this to its caller
		return field{}, errFieldNumber
	}
	f := field{tag: protowire.EncodeTag(num, typ)}
	value := (*b)[n:]
	switch typ {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(value)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(value)
	default:
		n = protowire.ConsumeFieldValue(num, typ, value)
	}
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	*b = value[n:]
	return f, nil
}
