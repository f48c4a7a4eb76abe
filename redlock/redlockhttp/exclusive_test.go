package redlockhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	public "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/redlock"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

// only is one lock for all requests.
func only(lock quorumlock.Locker) func(*http.Request) quorumlock.Locker {
	return func(*http.Request) quorumlock.Locker { return lock }
}

func do(t *testing.T, h http.Handler, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

// refusing lets requests in with one lock. It keeps the error of the last refusal.
func refusing(lock quorumlock.Locker, let http.HandlerFunc) (h http.Handler, why *error) {
	why = new(error)
	return redlockhttp.Exclusive(only(lock), func(w http.ResponseWriter, r *http.Request, err error) {
		*why = err
		redlockhttp.RefuseAfter(0)(w, r, err)
	})(let), why
}

// one lets requests in with one lock.
func one(lock quorumlock.Locker, let http.HandlerFunc) http.Handler {
	return redlockhttp.Exclusive(only(lock), nil)(let)
}

// nodes returns an error of each of that many nodes.
func nodes(errs ...error) (failed []*quorumlock.NodeError) {
	for _, err := range errs {
		failed = append(failed, &quorumlock.NodeError{Node: "n", Err: err})
	}
	return failed
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		retry  string
	}{
		"held":             {&quorumlock.HeldError{TTL: 2500 * time.Millisecond}, 409, "3"},
		"held, unknown":    {&quorumlock.HeldError{}, 409, "1"},
		"held, without":    {quorumlock.ErrHeld, 409, "1"},
		"no quorum":        {&quorumlock.QuorumError{Needed: 2}, 503, "1"},
		"it cannot tell":   {errors.Join(&quorumlock.HeldError{TTL: time.Hour}, &quorumlock.QuorumError{Needed: 2}), 503, "1"},
		"closed":           {quorumlock.ErrClosed, 503, "1"},
		"the caller left":  {context.Canceled, 503, "1"},
		"not a lock":       {quorumlock.ErrNotALock, 500, ""},
		"another kind":     {&quorumlock.QuorumError{Needed: 2, Nodes: nodes(quorumlock.ErrWrongKind, quorumlock.ErrNotALock, quorumlock.ErrMismatch)}, 500, ""},
		"or an outage":     {&quorumlock.QuorumError{Needed: 2, Nodes: nodes(quorumlock.ErrWrongKind, io.EOF)}, 503, "1"},
		"or held":          {errors.Join(&quorumlock.HeldError{}, &quorumlock.QuorumError{Needed: 2, Nodes: nodes(quorumlock.ErrNotALock)}), 503, "1"},
		"something secret": {errors.New("10.0.0.7 says no"), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lock := public.New("x")
			lock.Fail(test.err)
			h := one(lock, func(http.ResponseWriter, *http.Request) { t.Error("the request was let in") })
			w := do(t, h, "POST", "/")
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retry {
				t.Errorf("status %d, Retry-After %q, want %d and %q", w.Code, w.Header().Get("Retry-After"), test.status, test.retry)
			}
		})
	}
}

// A foreign value at the key is permanent: after a 503 the caller would retry forever. If a node is
// down as well, that node may be the only obstacle.
func TestANameThatIsNoLockIsAnErrorOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		foreign, down int // nodes
		status        int
	}{
		"at two of three nodes":          {2, 0, 500},
		"at all nodes":                   {3, 0, 500},
		"at one node":                    {1, 0, 200},
		"at one node, another is down":   {1, 1, 503},
		"at one node, the rest are down": {1, 2, 503},
	} {
		for kind, use := range map[string]func(t *testing.T, s *embedded.Server){
			"a string": func(t *testing.T, s *embedded.Server) {
				testkit.Must(t, s.Redis.Set("x", "mine"), "Set")
			},
			"a latch": func(t *testing.T, s *embedded.Server) {
				_, nodes := testkit.Paths(t, []*embedded.Server{s})
				testkit.Done(t, testkit.Of(t, nodes).Latch("x", 2), "one")
			},
		} {
			testkit.Run(t, name+", "+kind, func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				testkit.Each(servers[:test.foreign], func(s *embedded.Server) { use(t, s) })
				testkit.Kill(servers[test.foreign : test.foreign+test.down]...)
				h, why := refusing(c.Mutex("x"), func(http.ResponseWriter, *http.Request) {})
				w := do(t, h, "POST", "/")
				if retry := w.Header().Get("Retry-After"); w.Code != test.status || (retry != "") != (test.status == 503) {
					t.Errorf("status %d, Retry-After %q, want %d: %v", w.Code, retry, test.status, *why)
				}
			})
		}
	}
}

func TestTheContextOfTheHandlerHasTheTokenAndEndsWithTheLock(t *testing.T) {
	lock := public.New("x")
	h := one(lock, func(w http.ResponseWriter, r *http.Request) {
		token, _ := fence.FromContext(r.Context())
		testkit.Equal(t, token, 1, "the fencing token")
		lock.Lose()
		<-r.Context().Done()
		testkit.Is(t, context.Cause(r.Context()), quorumlock.ErrLost, "the cause")
		w.WriteHeader(http.StatusTeapot)
	})
	testkit.Equal(t, do(t, h, "POST", "/").Code, http.StatusTeapot, "status")
}

func TestTheLockIsFreeWhenAHandlerPanics(t *testing.T) {
	lock := public.New("x")
	h := one(lock, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("it panicked with %v, want the panic of the handler", p)
			}
		}()
		do(t, h, "POST", "/")
	}()
	testkit.Unlock(t, testkit.TryLock(t, lock))
}

// Requests without a lock, refuse functions, and nil arguments.
func TestWhatElseExclusiveIsGiven(t *testing.T) {
	lock := public.New("x")
	defer lock.Hold()()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	of := func(r *http.Request) quorumlock.Locker {
		if r.Method == http.MethodGet {
			return nil
		}
		return lock
	}
	teapot := func(w http.ResponseWriter, _ *http.Request, err error) {
		testkit.Is(t, err, quorumlock.ErrHeld, "the refusal")
		w.WriteHeader(http.StatusTeapot)
	}
	for name, test := range map[string]struct {
		h      http.Handler
		method string
		status int
	}{
		"no lock":       {redlockhttp.Exclusive(of, nil)(ok), "GET", 204},
		"own answer":    {redlockhttp.Exclusive(of, teapot)(ok), "POST", 418},
		"a nil handler": {redlockhttp.Exclusive(of, nil)(nil), "POST", 500},
		"a nil func":    {redlockhttp.Exclusive(nil, nil)(ok), "POST", 500},
		"own delay":     {redlockhttp.Exclusive(of, redlockhttp.RefuseAfter(time.Second))(ok), "POST", 409},
		"no key":        {redlockhttp.Exclusive(only(public.New("customer:")), nil)(ok), "POST", 500},
		"a key":         {redlockhttp.Exclusive(only(public.New("customer:7")), nil)(ok), "POST", 204},
		"a nil lock":    {redlockhttp.Exclusive(only((*public.Locker)(nil)), nil)(ok), "POST", 500},
	} {
		testkit.Equal(t, do(t, test.h, test.method, "/").Code, test.status, "%s: status", name)
	}
}

// A BaseContext that descends from a lease of the lock, or a common owner, would admit every
// request.
func TestExclusiveRefusesToEnterAHold(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		owner := quorumlock.NewOwner()
		for name, lock := range map[string]quorumlock.Locker{
			"by context":                 c.Mutex("x"),
			"by context, without option": c.Mutex("x", quorumlock.WithoutReentry()),
			"by owner":                   c.Mutex("x", quorumlock.WithOwner(owner)),
			"in memory":                  public.New("x"),
		} {
			outer := testkit.Lock(t, lock)
			h, why := refusing(lock, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the request was let in", name) })
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(outer.Context(), "POST", "/", nil))
			if w.Code != http.StatusInternalServerError || !errors.Is(*why, quorumlock.ErrDeadlock) {
				t.Errorf("%s: status %d, %v, want 500 and ErrDeadlock", name, w.Code, *why)
			}
			testkit.Equal(t, outer.HoldCount(), 1, "%s: the hold count after the refusal", name)
			testkit.Unlock(t, outer)
		}
	})
}

// A handler that streams until its context is done would delay a Shutdown of the lock's client.
func TestAHandlerLearnsOfShutdownAndKeepsItsLease(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		began := make(chan struct{})
		h := one(c.Mutex("x"), func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-quorumlock.Stopping(r.Context())
			time.Sleep(time.Minute)
			testkit.OK(t, context.Cause(r.Context()), "the context of the request ended")
			_, _ = io.WriteString(w, "the last of the stream")
		})
		answered := testkit.Go(func() *httptest.ResponseRecorder { return do(t, h, "POST", "/") })
		<-began
		testkit.OK(t, c.Shutdown(t.Context()), "Shutdown")
		if w := <-answered; w.Code != http.StatusOK || w.Body.String() != "the last of the stream" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	})
}

func TestRefuseAfterSetsTheDelayOfALockThatIsHeld(t *testing.T) {
	for delay, want := range map[time.Duration]string{-time.Second: "1", 0: "10", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60"} {
		for _, tt := range []struct {
			err    error
			status int
			want   string
		}{
			{&quorumlock.HeldError{TTL: 10 * time.Second}, 409, want},
			{&quorumlock.QuorumError{Needed: 2}, 503, "1"},
			{quorumlock.ErrMisuse, 500, ""},
		} {
			w := httptest.NewRecorder()
			redlockhttp.RefuseAfter(delay)(w, nil, tt.err)
			if got := w.Header().Get("Retry-After"); w.Code != tt.status || got != tt.want {
				t.Errorf("after %v, %v: status %d and Retry-After %q, want %d and %q", delay, tt.err, w.Code, got, tt.status, tt.want)
			}
		}
	}
}

// A timeout answers while the handler goes on. The lock must be held until the handler returns, so
// the timeout goes around Exclusive.
func TestATimeoutGoesAroundExclusive(t *testing.T) {
	for name, test := range map[string]struct {
		wrap func(exclusive func(http.Handler) http.Handler, h http.Handler) http.Handler
		next int // the status of the next request while the handler goes on
	}{
		"around": {func(one func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return http.TimeoutHandler(one(h), time.Second, "")
		}, http.StatusConflict},
		"inside, where the lock is released too early": {func(one func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return one(http.TimeoutHandler(h, time.Second, ""))
		}, http.StatusNoContent},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			lock := public.New("x")
			var calls atomic.Int64
			h := test.wrap(redlockhttp.Exclusive(only(lock), nil),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if calls.Add(1) == 1 {
						time.Sleep(time.Minute) // it ignores its context
					}
					w.WriteHeader(http.StatusNoContent)
				}))
			testkit.Equal(t, do(t, h, "POST", "/").Code, http.StatusServiceUnavailable, "the status after the timeout")
			testkit.Equal(t, do(t, h, "POST", "/").Code, test.next, "the status of the next request")
			time.Sleep(2 * time.Minute)
			testkit.Equal(t, do(t, h, "POST", "/").Code, http.StatusNoContent, "the status after the end of the handler")
		})
	}
}
