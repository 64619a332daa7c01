package grpclimit

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stream puts fields into the header when that is sent, and not before: a stream that fails without one can be retried.
type stream struct {
	grpc.ServerStream
	fields metadata.MD
	once   sync.Once
}

// SendHeader implements grpc.ServerStream.
func (s *stream) SendHeader(md metadata.MD) error {
	s.header()
	return s.ServerStream.SendHeader(md)
}

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	s.header()
	return s.ServerStream.SendMsg(m)
}

// header makes the fields part of the header, or of the trailer, if the header was sent behind the stream's back.
func (s *stream) header() {
	s.once.Do(func() {
		if s.SetHeader(s.fields) != nil {
			s.SetTrailer(s.fields)
		}
	})
}

// end tells the fields where nothing was sent.
func (s *stream) end(err error) {
	if err == nil {
		s.header()
		return
	}
	s.once.Do(func() { s.SetTrailer(s.fields) })
}
