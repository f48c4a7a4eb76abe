package grpclock

import (
	"context"
	"errors"

	"google.golang.org/grpc"
)

func (x *exclusive) stream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	s := &stream{ServerStream: ss, acquire: func(request any) (*hold, error) {
		return x.acquire(ss.Context(), info.FullMethod, request)
	}}
	if info.IsClientStream {
		if s.hold, err = s.acquire(nil); err != nil {
			return err
		}
	}
	defer func() {
		switch {
		case s.refused != nil:
			err = s.refused // also if the handler has ignored it
		case s.hold != nil:
			err = s.hold.release(ss.Context(), err)
		}
	}()
	return handler(server, s)
}

// stream is the stream of a handler. A method whose client does not stream has neither a hold nor a
// refusal until it has received its request.
type stream struct {
	grpc.ServerStream
	acquire func(request any) (*hold, error)
	hold    *hold
	refused error // the lock was not acquired
}

// Context returns the lease's context.
func (s *stream) Context() context.Context {
	if s.hold == nil {
		return s.ServerStream.Context()
	}
	return s.hold.ctx
}

// SendMsg sends no message without the lock.
func (s *stream) SendMsg(m any) error {
	switch {
	case s.refused != nil:
		return s.refused
	case s.hold == nil:
		return unusable(errors.New("grpclock: a handler sends before it has received its request, which has the key of its lock"))
	}
	if err := s.hold.lost(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives a message, and the lock if the message is a request that has its key.
func (s *stream) RecvMsg(m any) (err error) {
	switch {
	case s.refused != nil:
		return s.refused
	case s.hold != nil:
		return s.receive(m)
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.hold, s.refused = s.acquire(m)
	return s.refused
}

// receive receives a message until the lease is lost.
func (s *stream) receive(m any) error {
	if s.hold.lease == nil {
		return s.ServerStream.RecvMsg(m)
	}
	if err := s.hold.lost(); err != nil {
		return err
	}
	// The stream has no method that ends a receive. After a loss the goroutine stays until the call
	// ends, which is soon, and no other receive begins.
	got := make(chan received, 1)
	go func() {
		var r received
		defer func() {
			r.panicked = recover() // by an interceptor's RecvMsg, say: another one may want to recover it
			got <- r
		}()
		r.err = s.ServerStream.RecvMsg(m)
	}()
	var r received
	select {
	case r = <-got:
	case <-s.hold.ctx.Done():
		if err := s.hold.lost(); err != nil {
			return err
		}
		r = <-got // the call has ended
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	if err := s.hold.lost(); err != nil {
		return err
	}
	return r.err
}

type received struct {
	err      error
	panicked any
}
