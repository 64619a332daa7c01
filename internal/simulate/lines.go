package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest line, in bytes, that is read. Envoy bounds all header fields of a request to less than that.
const maxLine = 256 << 10

// lines reads a log line by line.
type lines struct {
	r *bufio.Reader
	n int64 // the line read last, from 1
}

// newLines looks whether log is gzipped.
func newLines(log io.Reader) (*lines, error) {
	r := bufio.NewReaderSize(log, maxLine)
	magic, err := r.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return &lines{r: r}, nil
	}
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return &lines{r: bufio.NewReaderSize(unzipped, maxLine)}, nil
}

var errTooLong = fmt.Errorf("is longer than %d bytes", maxLine)

// next gives the next line without its end, valid until the next call. errTooLong is about this line only; io.EOF is the end.
func (l *lines) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if len(line) > 0 || err == nil {
		l.n++
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errTooLong
	case errors.Is(err, io.EOF) && len(line) > 0:
		err = nil
	}
	return bytes.TrimRight(line, "\r\n"), err
}
