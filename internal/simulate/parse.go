package simulate

import (
	"bytes"
	"errors"

	"github.com/tidwall/gjson"
)

var (
	errEmpty   = errors.New("is empty")
	errNotJSON = errors.New("begins as JSON and is none")
	errNotCLF  = errors.New("is neither JSON nor common log format")
)

// parse reads a line of either form. The error says what is wrong with it and quotes nothing of it.
func (f *fields) parse(line []byte, r *record) error {
	line = bytes.TrimSpace(line)
	var err error
	switch {
	case len(line) == 0:
		return errEmpty
	case line[0] == '{':
		err = f.parseJSON(line, r)
	default:
		err = f.parseCLF(line, r)
	}
	if err != nil {
		return err
	}
	return r.settle(f)
}

// maxDepth is how deep objects of a JSON line may be nested to be looked into.
const maxDepth = 8

func (f *fields) parseJSON(line []byte, r *record) error {
	if !gjson.ValidBytes(line) {
		return errNotJSON
	}
	f.walk(gjson.ParseBytes(line), nil, 0, r)
	return nil
}

// walk notes the fields of an object whose own name, with a dot, is prefix.
func (f *fields) walk(object gjson.Result, prefix []byte, depth int, r *record) {
	object.ForEach(func(key, v gjson.Result) bool {
		switch {
		case v.Type == gjson.Null || v.Str == absent:
		case v.IsObject() && depth < maxDepth:
			nested := append(append(prefix[:len(prefix):len(prefix)], key.Str...), '.')
			f.walk(v, nested, depth+1, r)
		case v.IsArray() || v.IsObject():
		case len(prefix) == 0:
			r.put(f.json[key.Str], v.String())
		default:
			name := append(prefix[:len(prefix):len(prefix)], key.Str...)
			r.put(f.json[string(name)], v.String())
		}
		return true
	})
}

// absent is how both formats write what a request has not.
const absent = "-"

// parseCLF reads the common and the combined log format, and what may follow them.
func (f *fields) parseCLF(line []byte, r *record) error {
	rest := line
	for i, name := range clfNames {
		if len(rest) == 0 && i > 5 {
			break
		}
		part, after, ok := clfPart(rest)
		if !ok {
			return errNotCLF
		}
		rest = after
		switch {
		case string(part) == absent:
		case name == "request":
			if !f.putRequest(part, r) {
				return errNotCLF
			}
		default:
			r.put(f.clf[name], string(part))
		}
	}
	return nil
}

// putRequest takes METHOD PATH PROTOCOL apart.
func (f *fields) putRequest(request []byte, r *record) bool {
	method, rest, ok := bytes.Cut(request, []byte(" "))
	if !ok || len(method) == 0 {
		return false
	}
	path, protocol := rest, []byte(nil)
	if i := bytes.LastIndexByte(rest, ' '); i >= 0 {
		path, protocol = rest[:i], rest[i+1:]
	}
	r.put(f.clf["method"], string(method))
	r.put(f.clf["path"], string(path))
	r.put(f.clf["protocol"], string(protocol))
	return true
}

// clfPart cuts off what stands before the next space, or between quotes or brackets. Within quotes a backslash escapes.
func clfPart(line []byte) (part, rest []byte, ok bool) {
	if len(line) == 0 {
		return nil, nil, false
	}
	switch line[0] {
	case '[':
		end := bytes.IndexByte(line, ']')
		if end < 0 {
			return nil, nil, false
		}
		return line[1:end], bytes.TrimLeft(line[end+1:], " "), true
	case '"':
		return clfQuoted(line)
	}
	part, rest, _ = bytes.Cut(line, []byte(" "))
	return part, bytes.TrimLeft(rest, " "), true
}

func clfQuoted(line []byte) (part, rest []byte, ok bool) {
	escaped := false
	for i := 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			part = line[1:i]
			if escaped {
				part = unescape(part)
			}
			return part, bytes.TrimLeft(line[i+1:], " "), true
		}
	}
	return nil, nil, false
}

// unescape undoes what web servers do to quotes and backslashes; \xHH and the like stay, and differ from what they stand for alike in every
// line.
func unescape(text []byte) []byte {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\') {
			i++
		}
		plain = append(plain, text[i])
	}
	return plain
}
