package idempotency

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// FieldReplayed is "true" in every answer that is a replay.
const FieldReplayed = "Idempotent-Replayed"

// answer is what a request was answered, or that it was.
type answer struct {
	status int
	header http.Header
	body   []byte
	// kept is false if the request was carried out but its answer cannot be given again.
	kept bool
}

// envelope stands before the body. Header values are bytes, since they need not be UTF-8.
type envelope struct {
	Status int                 `json:"status"`
	Header map[string][][]byte `json:"header,omitempty"`
	Kept   bool                `json:"kept,omitempty"`
}

// encode gives the form that stores keep: the length of the envelope in 4 bytes, the envelope, the body.
func (a *answer) encode() ([]byte, error) {
	e := envelope{Status: a.status, Header: make(map[string][][]byte, len(a.header)), Kept: a.kept}
	for name, values := range a.header {
		for _, v := range values {
			e.Header[name] = append(e.Header[name], []byte(v))
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	data := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)+len(a.body)), uint32(len(text)))
	return append(append(data, text...), a.body...), nil
}

func decode(data []byte) (*answer, error) {
	if len(data) < 4 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) {
		return nil, errors.New("a stored answer is too short")
	}
	end := 4 + int(binary.BigEndian.Uint32(data))
	var e envelope
	if err := json.Unmarshal(data[4:end], &e); err != nil {
		return nil, fmt.Errorf("a stored answer: %w", err)
	}
	if e.Kept && (e.Status < 200 || e.Status > 999) {
		return nil, fmt.Errorf("a stored answer has status %d", e.Status)
	}
	a := &answer{status: e.Status, header: make(http.Header, len(e.Header)), body: data[end:], kept: e.Kept}
	for name, values := range e.Header {
		for _, v := range values {
			a.header[name] = append(a.header[name], string(v))
		}
	}
	return a, nil
}

// ServeHTTP answers with what was answered before.
func (a *answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	h.Set(FieldReplayed, "true")
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		w.Write(a.body)
	}
}

// ownFields are about one response or its connection, and never replayed. RateLimit fields are not, either: a replay has today's.
var ownFields = [...]string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Set-Cookie", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", FieldReplayed,
}

// replayable gives the fields of h that a handler has set or changed, and that may be replayed. before is the header as it was given to
// the handler: what is in there is told anew by who told it then.
func replayable(h, before http.Header) http.Header {
	kept := http.Header{}
	hops := strings.Split(strings.Join(h["Connection"], ","), ",")
	for name, values := range h {
		hop := slices.ContainsFunc(hops, func(hop string) bool { return strings.EqualFold(strings.TrimSpace(hop), name) })
		switch {
		case len(values) == 0, slices.Equal(values, before[name]):
		case hop, slices.ContainsFunc(ownFields[:], func(own string) bool { return strings.EqualFold(own, name) }):
		case hasPrefixFold(name, "RateLimit"), hasPrefixFold(name, "X-RateLimit"), hasPrefixFold(name, http.TrailerPrefix):
		default:
			kept[name] = slices.Clone(values)
		}
	}
	return kept
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
