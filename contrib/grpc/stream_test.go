package grpclock_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
)

// leased checks that the context of a stream has its lease.
func leased(t *testing.T, stream grpc.ServerStream) {
	t.Helper()
	if lease, ok := quorumlock.LeaseOf(stream.Context()); !ok || lease.Name() != "x" {
		t.Errorf("the lease of the stream: %v, %v", lease, ok)
	}
}

func TestAStreamHoldsTheLockUntilItsEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		s := start(t, only(t, lock, 0), &service{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			leased(t, stream)
			for {
				if _, err := stream.Recv(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
				testkit.OK(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), "Send")
			}
		}})
		first := s.duplex("7")
		for range 3 {
			testkit.OK(t, first.Send(&testgrpc.StreamingOutputCallRequest{}), "Send")
			testkit.OK(t, testkit.Err(first.Recv()), "Recv")
		}
		is(t, testkit.Err(s.duplex("7").Recv()), codes.Aborted, locktestTTL)
		testkit.OK(t, first.CloseSend(), "CloseSend")
		testkit.Is(t, testkit.Err(first.Recv()), io.EOF, "Recv")

		ctx, cancel := context.WithCancel(t.Context()) // a client that vanishes
		gone, err := s.FullDuplexCall(metadataOf(ctx, "7"))
		testkit.Must(t, err, "FullDuplexCall")
		testkit.OK(t, gone.Send(&testgrpc.StreamingOutputCallRequest{}), "Send")
		testkit.OK(t, testkit.Err(gone.Recv()), "Recv")
		cancel()
		time.Sleep(time.Second)
		is(t, s.err(), codes.Canceled, 0)
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

// The client sends nothing, and the handler waits for it. The bubble notices a goroutine that stays.
func TestALossEndsAStreamWhoseClientIsSilent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock, receives := locktest.New("x"), 0
		count := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, receiving{ss, func(m any) error {
				receives++
				return ss.RecvMsg(m)
			}})
		}
		s := start(t, only(t, lock, 0), &service{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			testkit.OK(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), "Send")
			for range 2 {
				_, err := stream.Recv()
				testkit.Is(t, err, quorumlock.ErrLost, "Recv")
			}
			testkit.Is(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), quorumlock.ErrLost, "Send")
			return nil // as if it had noticed nothing
		}}, count)
		stream := s.duplex("7")
		testkit.OK(t, testkit.Err(stream.Recv()), "Recv")
		synctest.Wait()
		lock.Lose()
		is(t, testkit.Err(stream.Recv()), codes.Internal, 0)
		testkit.Is(t, s.err(), quorumlock.ErrLost, "the error at the server")
		synctest.Wait()
		testkit.Equal(t, receives, 1, "calls of RecvMsg")
	})
}

// A message that comes with the loss is not the handler's.
func TestALostStreamReceivesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		lose := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, receiving{ss, func(m any) error {
				err := ss.RecvMsg(m)
				lock.Lose()
				return err
			}})
		}
		s := start(t, only(t, lock, 0), &service{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			_, err := stream.Recv()
			testkit.Is(t, err, quorumlock.ErrLost, "Recv")
			return err
		}}, lose)
		stream := s.duplex("7")
		testkit.OK(t, stream.Send(&testgrpc.StreamingOutputCallRequest{}), "Send")
		is(t, testkit.Err(stream.Recv()), codes.Internal, 0)
	})
}

// receiving is a stream of an interceptor.
type receiving struct {
	grpc.ServerStream
	receive func(m any) error
}

func (r receiving) RecvMsg(m any) error { return r.receive(m) }

func TestAnInterceptorsPanicInRecvIsTheHandlers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		bug := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, receiving{ss, func(any) error { panic("a bug") }})
		}
		s := start(t, only(t, lock, 0), &service{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			return testkit.Err(stream.Recv())
		}}, bug)
		is(t, testkit.Err(s.duplex("7").Recv()), codes.DataLoss, 0)
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

func TestTheRequestOfAServersStreamHasTheKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock, runs := locktest.New("x"), 0
		lose := false
		s := start(t, only(t, lock, 0), &service{output: func(stream testgrpc.TestService_StreamingOutputCallServer) error {
			runs++
			leased(t, stream)
			testkit.OK(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), "Send")
			if lose {
				lock.Lose()
				testkit.Is(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), quorumlock.ErrLost, "Send")
				testkit.Is(t, context.Cause(stream.Context()), quorumlock.ErrLost, "the cause of the stream's ctx")
			}
			return nil
		}})
		output := func(key string, messages int, code codes.Code, retry time.Duration) {
			t.Helper()
			n, err := s.output(key)
			if err == io.EOF {
				err = nil
			}
			is(t, err, code, retry)
			testkit.Equal(t, n, messages, "messages")
		}
		output("7", 1, codes.OK, 0)
		release := lock.Hold()
		output("7", 0, codes.Aborted, locktestTTL)
		release()
		output("", 0, codes.InvalidArgument, 0)
		lose = true
		output("7", 1, codes.Internal, 0)
		testkit.Is(t, s.err(), quorumlock.ErrLost, "the error at the server")
		testkit.Equal(t, runs, 2, "runs")
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

func TestAHandlerThatIgnoresARefusalSendsNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		s := start(t, only(t, lock, 0), &service{})
		call := func(method string) error {
			stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
			testkit.Must(t, err, "NewStream")
			testkit.OK(t, stream.SendMsg(&testgrpc.StreamingOutputCallRequest{Payload: payload("7")}), "SendMsg")
			testkit.OK(t, stream.CloseSend(), "CloseSend")
			return stream.RecvMsg(new(testgrpc.StreamingOutputCallResponse))
		}
		testkit.OK(t, call("/Careless/Receives"), "with the lock")
		is(t, call("/Careless/Sends"), codes.Internal, 0)
		defer lock.Hold()()
		if err := call("/Careless/Receives"); errors.Is(err, io.EOF) {
			t.Error("the refusal is no error")
		} else {
			is(t, err, codes.Aborted, locktestTTL)
		}
	})
}
