package redlockhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Exclusive returns a wrapper for handlers. The wrapper admits one request at a time for each lock,
// across a whole fleet. The lock function returns the lock of a request, such as that of its
// customer, or nil if the request needs none.
//
//	one := redlockhttp.Exclusive(func(r *http.Request) quorumlock.Locker {
//		return client.Mutex("myapp:customer:" + r.PathValue("customer"))
//	}, nil)
//	mux.Handle("POST /orders/{customer}", one(orders))
//
// A request does not wait for its lock. If TryLock fails, refuse answers instead of the handler. A
// nil refuse means RefuseAfter(0).
//
// The handler's request has the lease's context, which is cancelled when the lock is lost. So
// [quorumlock.LeaseOf] finds the lease, and package fence finds its token. The lock is released
// when the handler returns or panics. A handler that runs until its context is done should also
// return at a Shutdown of the client: see [quorumlock.Stopping].
//
// A middleware with a timeout, such as [http.TimeoutHandler], must be outside of this wrapper:
//
//	mux.Handle("POST /orders/{customer}", http.TimeoutHandler(one(orders), 5*time.Second, ""))
//
// The middleware answers while the handler may go on. The wrapper inside keeps the lock until the
// handler returns.
//
// A request is refused with [quorumlock.ErrDeadlock] if its context descends from a lease of its
// lock: it would enter that hold together with all others. Two causes are a BaseContext of the
// server, and a handler that passes its request to this wrapper again.
//
// A request is also refused if the name of its lock is empty or ends in a colon: all such requests
// would share one lock. The usual cause is a PathValue that the pattern does not have.
func Exclusive(lock func(*http.Request) quorumlock.Locker, refuse func(w http.ResponseWriter, r *http.Request, err error)) func(http.Handler) http.Handler {
	if refuse == nil {
		refuse = RefuseAfter(0)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if lock == nil || next == nil {
				refuse(w, r, errs.Misuse("quorumlock: redlockhttp: Exclusive was given a nil lock function or handler"))
				return
			}
			l := lock(r)
			if l == nil {
				next.ServeHTTP(w, r)
				return
			}
			if settings.IsNil(l) {
				refuse(w, r, errs.Misusef("quorumlock: redlockhttp: Exclusive: the lock function returned a nil %T: return a lock, or nil without a type if the request needs none", l))
				return
			}
			if name := l.Name(); name == "" || strings.HasSuffix(name, ":") {
				refuse(w, r, errs.Misusef("quorumlock: redlockhttp: Exclusive: the lock's name %q has no key: return a lock for the key of the request, or nil if the request needs none", name))
				return
			}
			lease, err := l.TryLock(r.Context())
			if err != nil {
				refuse(w, r, err)
				return
			}
			defer lease.Unlock(r.Context()) //nolint:errcheck // the keys are gone at their TTL
			if lease.HoldCount() > 1 {      // a new lease is alone in its hold
				refuse(w, r, fmt.Errorf("%w: redlockhttp: Exclusive: the request's context or the lock's WithOwner enters a hold of %q, so it would exclude nobody: give requests a context that descends from no lease of the lock (http.Server.BaseContext), and no common owner",
					quorumlock.ErrDeadlock, lease.Name()))
				return
			}
			next.ServeHTTP(w, r.WithContext(lease.Context()))
		})
	}
}

// RefuseAfter returns a function for [Exclusive], which answers a request that did not get its lock.
// The status depends on the error of TryLock:
//
//   - 409 Conflict if another request has the lock. Retry-After is d rounded up to seconds, and at
//     least 1. Give a d for work of a known duration, which is often less than the TTL. With a d of
//     0, it is the TTL in the [quorumlock.HeldError]: a release frees the lock sooner, and a renewal
//     keeps it longer.
//   - 503 Service Unavailable, with a Retry-After of 1, if too few nodes answered or the client is
//     closed.
//   - 500 Internal Server Error for any other error, such as an invalid name. That includes
//     [quorumlock.ErrNotALock], [quorumlock.ErrWrongKind] or [quorumlock.ErrMismatch] at each node
//     that failed: a retry does not help.
//
// The answer does not contain the text of the error, which may name keys and holders. To log the
// error, pass a function to [Exclusive] that logs it and calls the returned function.
func RefuseAfter(d time.Duration) func(w http.ResponseWriter, r *http.Request, err error) {
	return func(w http.ResponseWriter, _ *http.Request, err error) {
		after := d
		if held, ok := errors.AsType[*quorumlock.HeldError](err); ok && d == 0 {
			after = held.TTL
		}
		refuse(w, err, after)
	}
}

// refuse answers the request. The Retry-After of a lock that is held is after.
func refuse(w http.ResponseWriter, err error, after time.Duration) {
	few, ok := errors.AsType[*quorumlock.QuorumError](err)
	switch {
	case ok && !isNoLock(err, few), errors.Is(err, quorumlock.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the lock cannot be acquired now: try again", http.StatusServiceUnavailable)
	case errors.Is(err, quorumlock.ErrHeld):
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int((after+time.Second-1)/time.Second))))
		http.Error(w, "another request has this lock: try again", http.StatusConflict)
	default:
		http.Error(w, "the lock for this request cannot be used", http.StatusInternalServerError)
	}
}

// isNoLock reports whether the quorum failed only because the name is no lock, or of another kind
// or size. Then no node failed for a reason that may pass, and no node answered that the lock is
// held.
func isNoLock(err error, few *quorumlock.QuorumError) bool {
	for _, n := range few.Nodes {
		if !errors.Is(n, quorumlock.ErrNotALock) && !errors.Is(n, quorumlock.ErrWrongKind) && !errors.Is(n, quorumlock.ErrMismatch) {
			return false
		}
	}
	return len(few.Nodes) > 0 && !errors.Is(err, quorumlock.ErrHeld)
}
