// Package grpclock runs the calls of a gRPC server (google.golang.org/grpc) one at a time for each
// key, across all servers.
//
//	one, err := grpclock.Exclusive(client.Lockers("myapp:customer:"), customer, 0)
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, one.Unary),
//		grpc.ChainStreamInterceptor(authenticateStream, one.Stream))
//
// A call whose lock is held is refused with the code Aborted, or waits for a given time.
//
// # Codes
//
// A refused call has not reached its handler:
//
//   - Aborted if another call has the lock. The client may repeat the call after the delay in its
//     RetryInfo, the lock's TTL. A release frees the lock sooner, and a renewal keeps it longer.
//   - Unavailable, with a RetryInfo of one second, if too few nodes answered, or the client of the
//     locks is closed.
//   - InvalidArgument if the key is empty, or makes the lock's name invalid.
//   - DeadlineExceeded or Canceled if the call ended before it had its lock.
//   - Internal for other errors of the lock, such as a key of another program at the nodes.
//
// A call whose lock was lost while its handler ran fails with Internal, whatever the handler
// returned: some of its work may be done. So a retry policy of the client for Aborted repeats no
// call that has begun, unless a handler returns Aborted. Unavailable would suit such a policy as
// well, but proxies and alerts take it for an outage.
//
// The texts of these statuses name no locks and no holders. In interceptors outside of these, the
// error has them: it matches [quorumlock.ErrHeld], [quorumlock.ErrNoQuorum] or
// [quorumlock.ErrLost], for logs. An interceptor that wraps the error sends its text to the client.
//
// # Limits
//
// A handler that is paused past its lease may still write, unless the resource refuses its token:
// see package fence. A handler that ignores its ctx goes on after the loss of its lock.
//
// A client that gives up, such as at its deadline, may repeat the call while the first handler goes
// on. The second call is then refused: the handler keeps the lock until it returns.
//
// A waiting call occupies a stream of its connection, see grpc.MaxConcurrentStreams, and a
// goroutine of the server. A handler that calls its own service with its own key waits in vain.
//
// gRPC's own retries do not read RetryInfo. They repeat by the backoff of their policy.
//
// Stop the server before the client of the locks.
package grpclock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/grpc"

	"github.com/quorumlock/quorumlock"
)

// Interceptors are the interceptors of a server. They are safe for concurrent use, and may serve
// several servers. Interceptors that authenticate or validate calls go before them in the chain: a
// caller without permission must not get a lock.
type Interceptors struct {
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
}

// Exclusive returns interceptors that admit one call at a time for each key. The key function
// returns the key of a call, such as the customer in its request, or false if the call needs no
// lock. The method is the full name, such as "/shop.Orders/Place". The request is nil if the client
// streams: then the key comes from the ctx, such as its metadata, or from the method. The lock
// function returns the lock for a key; client.Lockers("myapp:customer:") of redlock is such a
// function.
//
// If the lock is held, the call waits for its turn for up to wait. With a wait of 0 it is refused at
// once. Exclusive returns an error if a function is nil or wait is negative.
//
// The handler's ctx is the lease's context, which is cancelled when the lock is lost. So
// [quorumlock.LeaseOf] finds the lease, and package fence finds its token. The lock is released
// when the handler returns or panics. If the lock was lost before, the call fails: see the codes of
// this package.
//
// If the client streams, a call holds its lock from its beginning. If only the server streams, the
// lock is acquired when the handler receives the request, as generated code does before it calls
// the handler's method. After a loss, Recv and Send of a stream return an error. A Recv that waits
// for the client returns, too; its message must not be used. A Send that waits for the client to
// read goes on until the client reads or the call ends. A handler that runs until its context is
// done should also return at a Shutdown of the client of the locks: see [quorumlock.Stopping].
//
// A call is refused with Internal, and [quorumlock.ErrDeadlock], if its context descends from a
// lease of its lock, or WithOwner gives all calls one owner: the calls would share the lock. A usual
// cause is an interceptor that stands twice in the chain. The error matches [quorumlock.ErrMisuse]
// if the lock function returned nil.
func Exclusive(lock func(key string) quorumlock.Locker, key func(ctx context.Context, method string, request any) (string, bool), wait time.Duration) (Interceptors, error) {
	switch {
	case lock == nil || key == nil:
		return Interceptors{}, fmt.Errorf("%w: grpclock: Exclusive: a function is nil: use one that returns the lock for a key, such as client.Lockers(\"myapp:customer:\"), and one that returns the key of a call", quorumlock.ErrMisuse)
	case wait < 0:
		return Interceptors{}, fmt.Errorf("%w: grpclock: Exclusive: wait is %v: use 0 or more, and less than the deadlines of the calls", quorumlock.ErrMisuse, wait)
	}
	x := &exclusive{lock, key, wait}
	return Interceptors{x.unary, x.stream}, nil
}

type exclusive struct {
	lock func(key string) quorumlock.Locker
	key  func(ctx context.Context, method string, request any) (string, bool)
	wait time.Duration
}

func (x *exclusive) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	h, err := x.acquire(ctx, info.FullMethod, request)
	if err != nil {
		return nil, err
	}
	defer func() { err = h.release(ctx, err) }()
	return handler(h.ctx, request)
}

// hold is the lock of a call.
type hold struct {
	ctx   context.Context   // of the handler
	lease *quorumlock.Lease // nil if the call needs no lock
	end   func()            // to call after the lease's Unlock
}

// acquire returns a hold that no other call shares, or an error with a status.
func (x *exclusive) acquire(ctx context.Context, method string, request any) (*hold, error) {
	key, ok := x.key(ctx, method, request)
	if !ok {
		return &hold{ctx: ctx}, nil
	}
	if key == "" {
		return nil, badKey(fmt.Errorf("%w: grpclock: the key of a call of %s is empty: all such calls would share one lock; return false for a call that needs none", quorumlock.ErrMisuse, method))
	}
	l := x.lock(key)
	if isNil(l) {
		return nil, unusable(fmt.Errorf("%w: grpclock: the lock function returned nil for the key %q: return a lock for each key", quorumlock.ErrMisuse, key))
	}
	lease, end, err := x.take(ctx, l)
	if err != nil {
		return nil, refusal(ctx, l.Name(), err)
	}
	if lease.HoldCount() > 1 {
		_ = lease.Unlock(ctx) // the other lease keeps the lock
		end()
		return nil, unusable(fmt.Errorf("%w: grpclock: the context or the owner of a call of %s enters a hold of %q, so it would exclude nobody: use each interceptor once, and no WithOwner", quorumlock.ErrDeadlock, method, l.Name()))
	}
	return &hold{lease.Context(), lease, end}, nil
}

// take acquires the lock, at once or within the wait, which does not bound the lease. The caller
// calls end after the lease's Unlock.
func (x *exclusive) take(ctx context.Context, l quorumlock.Locker) (lease *quorumlock.Lease, end func(), err error) {
	if x.wait == 0 {
		lease, err = l.TryLock(ctx)
		return lease, func() {}, err
	}
	waiting, end := context.WithCancel(ctx)
	timer := time.AfterFunc(x.wait, end)
	lease, err = l.Lock(waiting)
	if inTime := timer.Stop(); err == nil && !inTime { // the timer has ended the lease's context, or is about to
		_ = lease.Unlock(ctx)
		err = &quorumlock.HeldError{Name: l.Name()}
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return lease, end, nil
}

// release returns the error of the call, given that of its handler.
func (h *hold) release(ctx context.Context, err error) error {
	if h.lease == nil {
		return err
	}
	defer h.end()
	// A release without a quorum is no failure of the call: the keys expire with their TTL.
	e := h.lease.Unlock(ctx)
	switch {
	case !errors.Is(e, quorumlock.ErrLost):
		return err
	case errors.Is(err, quorumlock.ErrLost): // of Recv or Send, or the cause of the ctx
		return lost(err)
	}
	return lost(errors.Join(err, e))
}

// lost returns an error if the lease is lost.
func (h *hold) lost() error {
	if h.lease == nil {
		return nil
	}
	if cause := context.Cause(h.ctx); errors.Is(cause, quorumlock.ErrLost) {
		return lost(cause)
	}
	return nil
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
