package grpclock_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quorumlock/quorumlock"
	grpclock "github.com/quorumlock/quorumlock/contrib/grpc"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// work is a handler that counts how many calls of a key run at a time.
type work struct {
	takes time.Duration

	mu                   sync.Mutex
	now                  map[string]int
	runs, together, keys int // keys: the most keys at work at a time
	unleased             int
}

func (w *work) do(ctx context.Context, key string) error {
	lease, ok := quorumlock.LeaseOf(ctx)
	w.mu.Lock()
	if w.now == nil {
		w.now = make(map[string]int)
	}
	w.runs++
	w.now[key]++
	w.together, w.keys = max(w.together, w.now[key]), max(w.keys, len(w.now))
	if !ok || lease.Name() != "customer:"+key {
		w.unleased++
	}
	w.mu.Unlock()
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now[key]--; w.now[key] == 0 {
		delete(w.now, key)
	}
	return ctx.Err()
}

// Two servers have a client of the locks each, as two processes have.
func TestOneCallOfAKeyRunsAtATime(t *testing.T) {
	const calls, takes = 8, 3 * time.Second // of each key
	for name, test := range map[string]struct {
		wait time.Duration
		runs int
	}{"a held lock is refused": {0, 2}, "each call waits": {time.Minute, 2 * calls}} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes, w := nodetest.Start(t, 3), &work{takes: takes}
			var servers []*server
			for range 2 {
				servers = append(servers, start(t, exclusive(t, nodes.NewClient().Lockers("customer:"), test.wait), &service{unary: w.do}))
			}
			var all sync.WaitGroup
			for i := range 2 * calls {
				all.Go(func() {
					err := servers[i%2].call(t.Context(), []string{"7", "8"}[i/2%2])
					if code := status.Code(err); err != nil && (test.wait > 0 || code != codes.Aborted) {
						t.Errorf("a call: %v", err)
					}
				})
			}
			all.Wait()
			w.mu.Lock()
			if w.runs != test.runs || w.together != 1 || w.keys != 2 || w.unleased != 0 {
				t.Errorf("%d runs, %d of a key and %d keys at a time, %d without their lease: want %d, 1, 2 and 0", w.runs, w.together, w.keys, w.unleased, test.runs)
			}
			w.mu.Unlock()
			testkit.OK(t, servers[0].call(t.Context(), "7"), "a call after them")
		})
	}
}

func TestTheWaitBoundsNeitherTheHandlerNorAFreeLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const wait = 2 * time.Second
		lock := locktest.New("x")
		s := start(t, only(t, lock, wait), &service{unary: func(ctx context.Context, _ string) error {
			time.Sleep(5 * wait)
			return ctx.Err()
		}})
		testkit.OK(t, s.call(t.Context(), "7"), "a call that takes longer than the wait")

		release, began := lock.Hold(), time.Now()
		is(t, s.call(t.Context(), "7"), codes.Aborted, locktestTTL)
		testkit.Took(t, began, wait, wait, "the refusal")

		time.AfterFunc(wait/2, release)
		testkit.OK(t, s.call(t.Context(), "7"), "a call whose lock is released during its wait")
	})
}

// late is a lock whose grants come after their wait.
type late struct{ *locktest.Locker }

func (l late) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	lease, err := l.Locker.Lock(ctx)
	<-ctx.Done()
	return lease, err
}

func TestAGrantAfterTheWaitIsReleased(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		s := start(t, exclusive(t, func(string) quorumlock.Locker { return late{lock} }, time.Second), &service{unary: func(context.Context, string) error {
			t.Error("the handler was called")
			return nil
		}})
		is(t, s.call(t.Context(), "7"), codes.Aborted, time.Second)
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

// locktestTTL is the TTL in a HeldError of locktest: the default, less the drift.
const locktestTTL = quorumlock.DefaultTTL - quorumlock.DefaultTTL/100 - 2*time.Millisecond

// nodeErrors returns an error of each of that many nodes.
func nodeErrors(errs ...error) (failed []*quorumlock.NodeError) {
	for _, err := range errs {
		failed = append(failed, &quorumlock.NodeError{Node: "10.0.0.7", Err: err})
	}
	return failed
}

func TestCodesOfRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		code  codes.Code
		retry time.Duration
	}{
		"held":            {&quorumlock.HeldError{Holder: "10.0.0.7", TTL: 2500 * time.Millisecond}, codes.Aborted, 2500 * time.Millisecond},
		"held, unknown":   {&quorumlock.HeldError{}, codes.Aborted, time.Second},
		"no quorum":       {&quorumlock.QuorumError{Needed: 2, Nodes: nodeErrors(io.EOF)}, codes.Unavailable, time.Second},
		"it cannot tell":  {errors.Join(&quorumlock.HeldError{TTL: time.Hour}, &quorumlock.QuorumError{Needed: 2}), codes.Unavailable, time.Second},
		"closed":          {quorumlock.ErrClosed, codes.Unavailable, time.Second},
		"unsent":          {quorumlock.ErrUnsent, codes.Unavailable, time.Second},
		"too late":        {quorumlock.ErrTooLate, codes.Unavailable, time.Second},
		"nobody answered": {context.Canceled, codes.Unavailable, time.Second}, // during the wait
		"not a lock":      {quorumlock.ErrNotALock, codes.Internal, 0},
		"another kind":    {&quorumlock.QuorumError{Needed: 2, Nodes: nodeErrors(quorumlock.ErrWrongKind, quorumlock.ErrNotALock, quorumlock.ErrMismatch)}, codes.Internal, 0},
		"or an outage":    {&quorumlock.QuorumError{Needed: 2, Nodes: nodeErrors(quorumlock.ErrWrongKind, io.EOF)}, codes.Unavailable, time.Second},
		"misuse":          {quorumlock.ErrUpgrade, codes.Internal, 0},
		"something else":  {io.ErrShortWrite, codes.Internal, 0},
		"the node's text": {errors.New("10.0.0.7 says no"), codes.Internal, 0},
	} {
		for way, wait := range map[string]time.Duration{"": 0, ", with a wait": time.Second} {
			testkit.Run(t, name+way, func(t *testing.T) {
				lock := locktest.New("x")
				lock.Fail(test.err)
				s := start(t, only(t, lock, wait), &service{unary: func(context.Context, string) error {
					t.Error("the handler was called")
					return nil
				}})
				err := s.call(t.Context(), "7")
				is(t, err, test.code, test.retry)
				if strings.Contains(err.Error(), "10.0.0.7") {
					t.Errorf("the client sees the error's text: %v", err)
				}
				testkit.Is(t, s.err(), test.err, "the error at the server")
			})
		}
	}
}

// The nodes do not answer, so nobody knows whether the lock is held.
func TestAnOutageIsUnavailable(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		s := start(t, exclusive(t, nodes.Client().Lockers("customer:"), 5*time.Second), &service{unary: func(context.Context, string) error { return nil }})
		nodes.Kill(1, 2)
		is(t, s.call(t.Context(), "7"), codes.Unavailable, time.Second)
		testkit.Is(t, s.err(), quorumlock.ErrNoQuorum, "the error at the server")
		nodes.Restart(1, 2)
		testkit.OK(t, s.call(t.Context(), "7"), "a call after the outage")

		nodes.Cut()
		is(t, s.call(t.Context(), "7"), codes.Unavailable, time.Second)
		nodes.Thaw()
	})
}

func TestAKeyThatIsNoNameIsTheClientsError(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := start(t, exclusive(t, nodetest.Start(t, 3).Client().Lockers(""), 0), &service{})
		for _, key := range []string{"", strings.Repeat("7", 1025)} {
			is(t, s.call(t.Context(), key), codes.InvalidArgument, 0)
			testkit.Is(t, s.err(), quorumlock.ErrMisuse, "the error at the server")
		}
	})
}

func TestACallThatEndsWhileItWaitsSaysSo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		defer lock.Hold()()
		one := only(t, lock, time.Minute)
		s := start(t, one, &service{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		is(t, s.call(ctx, "7"), codes.Canceled, 0)
		time.Sleep(time.Second)
		is(t, s.err(), codes.Canceled, 0)
		testkit.Is(t, s.err(), quorumlock.ErrHeld, "the error at the server")

		// At its deadline, a client also cancels: the server sees either first.
		_, err := one.Unary(testkit.Within(t, time.Second), &testgrpc.SimpleRequest{Payload: payload("7")}, unaryCall, nil)
		is(t, err, codes.DeadlineExceeded, 0)
	})
}

// unaryCall is what an interceptor is told of a call of UnaryCall.
var unaryCall = &grpc.UnaryServerInfo{FullMethod: testgrpc.TestService_UnaryCall_FullMethodName}

// The client's deadline ends the call, but not a handler that goes on.
func TestAHandlerThatItsClientLeftKeepsTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		s := start(t, only(t, lock, 0), &service{unary: func(context.Context, string) error {
			time.Sleep(10 * time.Second)
			return nil
		}})
		is(t, s.call(testkit.Within(t, time.Second), "7"), codes.DeadlineExceeded, 0)
		is(t, s.call(t.Context(), "7"), codes.Aborted, locktestTTL)
		time.Sleep(10 * time.Second)
		testkit.OK(t, s.call(t.Context(), "7"), "a call after it")
	})
}

func TestALostLockEndsTheCallWithAnError(t *testing.T) {
	for name, own := range map[string]error{
		"the handler noticed nothing":  nil,
		"the handler's own error":      status.Error(codes.NotFound, "no customer"),
		"the handler's error is of it": quorumlock.ErrLost,
	} {
		testkit.Run(t, name, func(t *testing.T) {
			lock := locktest.New("x")
			s := start(t, only(t, lock, 0), &service{unary: func(ctx context.Context, _ string) error {
				lock.Lose()
				<-ctx.Done()
				testkit.Is(t, context.Cause(ctx), quorumlock.ErrLost, "the cause of the handler's ctx")
				return own
			}})
			err := s.call(t.Context(), "7")
			is(t, err, codes.Internal, 0)
			if !strings.Contains(err.Error(), "was lost") {
				t.Errorf("%v: it does not name the loss", err)
			}
			testkit.Is(t, s.err(), quorumlock.ErrLost, "the error at the server")
			if own != nil {
				testkit.Is(t, s.err(), own, "the error at the server")
			}
		})
	}
}

func TestTheHandlersOwnErrorIsTheCalls(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock, own := locktest.New("x"), status.Error(codes.NotFound, "no customer")
		s := start(t, only(t, lock, 0), &service{unary: func(context.Context, string) error { return own }})
		is(t, s.call(t.Context(), "7"), codes.NotFound, 0)
		testkit.Equal(t, s.err(), own, "the error at the server")
	})
}

func TestAPanicReleasesTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		s := start(t, only(t, lock, 0), &service{
			unary:  func(context.Context, string) error { panic("a bug") },
			duplex: func(testgrpc.TestService_FullDuplexCallServer) error { panic("a bug") },
		})
		is(t, s.call(t.Context(), "7"), codes.DataLoss, 0) // the tests' interceptor recovers it
		testkit.Unlock(t, testkit.TryLock(t, lock))
		is(t, testkit.Err(s.duplex("7").Recv()), codes.DataLoss, 0)
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

func TestACallWithoutAKeyNeedsNoLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		unleased := func(ctx context.Context) error {
			_, leased := quorumlock.LeaseOf(ctx)
			testkit.Equal(t, leased, false, "LeaseOf")
			return nil
		}
		s := start(t, exclusive(t, func(string) quorumlock.Locker { panic("a lock for nothing") }, 0), &service{
			unary: func(ctx context.Context, _ string) error { return unleased(ctx) },
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				_, err := stream.Recv()
				testkit.Is(t, err, io.EOF, "Recv")
				testkit.OK(t, stream.Send(&testgrpc.StreamingOutputCallResponse{}), "Send")
				return unleased(stream.Context())
			},
		})
		testkit.OK(t, testkit.Err(s.EmptyCall(t.Context(), &testgrpc.Empty{})), "EmptyCall")
		stream, err := s.FullDuplexCall(t.Context())
		testkit.Must(t, err, "FullDuplexCall")
		testkit.OK(t, stream.CloseSend(), "CloseSend")
		testkit.OK(t, testkit.Err(stream.Recv()), "Recv")
		testkit.Is(t, testkit.Err(stream.Recv()), io.EOF, "Recv")
	})
}

// An interceptor that stands twice in the chain would enter its own hold.
func TestCallsDoNotShareALock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lock := locktest.New("x")
		once := only(t, lock, 0)
		twice := once
		twice.Unary = func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return once.Unary(ctx, r, info, func(ctx context.Context, r any) (any, error) { return once.Unary(ctx, r, info, next) })
		}
		s := start(t, twice, &service{})
		is(t, s.call(t.Context(), "7"), codes.Internal, 0)
		testkit.Is(t, s.err(), quorumlock.ErrDeadlock, "the error at the server")
		testkit.Unlock(t, testkit.TryLock(t, lock))
	})
}

func TestBadArgumentsAreRefused(t *testing.T) {
	none := func(string) quorumlock.Locker { return nil }
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	call := func(lock func(string) quorumlock.Locker) error {
		_, err := exclusive(t, lock, 0).Unary(t.Context(), &testgrpc.SimpleRequest{Payload: payload("7")}, unaryCall, nil)
		is(t, err, codes.Internal, 0)
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no lock function":     {testkit.Err(grpclock.Exclusive(nil, customer, 0)), "a function is nil"},
		"no key function":      {testkit.Err(grpclock.Exclusive(none, nil, 0)), "a function is nil"},
		"a negative wait":      {testkit.Err(grpclock.Exclusive(none, customer, -1)), "wait is -1ns"},
		"no lock":              {call(none), `returned nil for the key "7"`},
		"no lock, with a type": {call(typed), `returned nil for the key "7"`},
	} {
		if !errors.Is(test.err, quorumlock.ErrMisuse) || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want an error of wrong use with %q", name, test.err, test.want)
		}
	}
}
