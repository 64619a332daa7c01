package policy

import (
	"bytes"
	"encoding/hex"
)

// canonicalRoute cleans the path of "METHOD /path".
func canonicalRoute(buf, v []byte, ipv6Prefix int) ([]byte, verdict) {
	method := bytes.IndexByte(v, ' ') + 1
	if cleanPath(v[method:]) {
		return v, valid
	}
	return appendCleanPath(append(buf, v[:method]...), v[method:]), valid
}

func canonicalPath(buf, v []byte, _ int) ([]byte, verdict) {
	if cleanPath(v) {
		return v, valid
	}
	return appendCleanPath(buf, v), valid
}

// cleanPath reports whether there is nothing for appendCleanPath to do.
func cleanPath(p []byte) bool {
	for i, c := range p {
		switch c {
		case '?', '#', '%':
			return false
		case '/', '.':
			if i > 0 && p[i-1] == '/' {
				return false
			}
		}
	}
	return true
}

// appendCleanPath adds p without query string and fragment, with percent-encoded unreserved characters decoded (RFC 3986,
// 6.2.2.2), duplicate slashes merged and dot segments resolved.
func appendCleanPath(buf, p []byte) []byte {
	if i := bytes.IndexAny(p, "?#"); i >= 0 {
		p = p[:i]
	}
	start := len(buf)
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == '%' {
			d, n := unescape(p[i:])
			i += n - 1
			if !unreserved(d) {
				buf = appendEscape(buf, d)
				continue
			}
			c = d
		}
		if c != '/' {
			buf = append(buf, c)
			continue
		}
		buf = append(endSegment(buf, start), '/')
	}
	return endPath(buf, start)
}

// endSegment is called before a slash: it takes back the segment that ends there if it is empty or ".", with its slash, and for ".."
// also the segment before it.
func endSegment(buf []byte, start int) []byte {
	slash := bytes.LastIndexByte(buf[start:], '/')
	if slash < 0 {
		return buf
	}
	switch string(buf[start+slash+1:]) {
	case "", ".":
		return buf[:start+slash]
	case "..":
		return buf[:start+max(0, bytes.LastIndexByte(buf[start:start+slash], '/'))]
	}
	return buf
}

// endPath does the same for the last segment, whose slash stays: /a/b/.. is /a/.
func endPath(buf []byte, start int) []byte {
	slash := bytes.LastIndexByte(buf[start:], '/')
	if slash < 0 {
		return buf
	}
	switch string(buf[start+slash+1:]) {
	case ".", "..":
		return append(endSegment(buf, start), '/')
	}
	return buf
}

// unescape gives the byte that p begins with, escaped, and the length of the escape. A % that escapes nothing stands for itself: it must
// be escaped, since what follows could otherwise become its digits.
func unescape(p []byte) (c byte, n int) {
	var d [1]byte
	if len(p) > 2 {
		if _, err := hex.Decode(d[:], p[1:3]); err == nil {
			return d[0], 3
		}
	}
	return '%', 1
}

func appendEscape(buf []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(buf, '%', digits[c>>4], digits[c&15])
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
