package redlockhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	public "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

// customer is one lock for each customer.
func customer(lock func(name string) quorumlock.Locker) func(*http.Request) quorumlock.Locker {
	return func(r *http.Request) quorumlock.Locker {
		if r.Method == http.MethodGet {
			return nil
		}
		return lock("customer:" + r.FormValue("customer"))
	}
}

func do(t *testing.T, h http.Handler, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

func post(t *testing.T, url string) (status int, retry string) {
	r, err := http.Post(url, "", nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	return r.StatusCode, r.Header.Get("Retry-After")
}

// Two services over the same nodes, and 20 requests for one customer at once over real connections.
func TestOneRequestOfACustomerIsLetInAtATime(t *testing.T) {
	c, _ := start(t, 3)
	let, leave := make(chan struct{}, 20), make(chan struct{})
	end := sync.OnceFunc(func() { close(leave) })
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := fence.FromContext(r.Context()); !ok || token == 0 {
			t.Error("the handler has no fencing token")
		}
		let <- struct{}{}
		if len(let) > 1 {
			t.Error("two were let in")
			end()
		}
		<-leave
		_, _ = io.WriteString(w, "done")
	})
	lock := func(name string) quorumlock.Locker { // on a busy machine a node may take long
		return c.Mutex(name, quorumlock.WithNodeTimeout(20*time.Second), quorumlock.WithTTL(time.Minute))
	}
	var urls []string
	for range 2 {
		s := httptest.NewServer(redlockhttp.Exclusive(customer(lock), nil)(work))
		defer s.Close()
		urls = append(urls, s.URL)
	}
	var wg sync.WaitGroup
	var done, conflicts, refused atomic.Int64
	for i := range 20 {
		wg.Go(func() {
			status, retry := post(t, urls[i%2]+"/?customer=7")
			switch status {
			case http.StatusOK:
				done.Add(1)
				return
			case http.StatusConflict:
				if retry == "" {
					t.Error("409 without Retry-After")
				}
				conflicts.Add(1)
			default:
				t.Errorf("status %d", status)
			}
			if refused.Add(1) == 19 {
				end() // the others have been refused while one was at work
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 || conflicts.Load() != 19 || len(let) != 1 {
		t.Errorf("%d were let in, %d got 200, %d got 409, want 1, 1 and 19", len(let), done.Load(), conflicts.Load())
	}
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
		"something secret": {errors.New("10.0.0.7 says no"), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lock := public.New("x")
			lock.Fail(test.err)
			h := redlockhttp.Exclusive(func(*http.Request) quorumlock.Locker { return lock }, nil)(http.HandlerFunc(
				func(http.ResponseWriter, *http.Request) { t.Error("the request was let in") }))
			w := do(t, h, "POST", "/")
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retry {
				t.Errorf("status %d, Retry-After %q, want %d and %q", w.Code, w.Header().Get("Retry-After"), test.status, test.retry)
			}
		})
	}
}

func TestTheContextOfTheHandlerEndsWithTheLock(t *testing.T) {
	lock := public.New("x")
	h := redlockhttp.Exclusive(func(*http.Request) quorumlock.Locker { return lock }, nil)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			lock.Lose()
			<-r.Context().Done()
			if cause := context.Cause(r.Context()); !errors.Is(cause, quorumlock.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			w.WriteHeader(http.StatusTeapot)
		}))
	if w := do(t, h, "POST", "/"); w.Code != http.StatusTeapot {
		t.Errorf("status %d", w.Code)
	}
}

func TestTheLockIsFreeWhenAHandlerPanics(t *testing.T) {
	lock := public.New("x")
	h := redlockhttp.Exclusive(func(*http.Request) quorumlock.Locker { return lock }, nil)(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("it panicked with %v, want the panic of the handler", p)
			}
		}()
		do(t, h, "POST", "/")
	}()
	lease, err := lock.TryLock(t.Context())
	if err != nil {
		t.Fatalf("after the panic: %v", err)
	}
	_ = lease.Unlock(t.Context())
}

// Requests without a lock, functions that answer by themselves, and arguments that are nil.
func TestWhatElseExclusiveIsGiven(t *testing.T) {
	lock := public.New("x")
	defer lock.Hold()()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	of := customer(func(string) quorumlock.Locker { return lock })
	teapot := func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("refused with %v, want ErrHeld", err)
		}
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
		"a nil lock":    {redlockhttp.Exclusive(func(*http.Request) quorumlock.Locker { return (*public.Locker)(nil) }, nil)(ok), "POST", 500},
	} {
		if w := do(t, test.h, test.method, "/"); w.Code != test.status {
			t.Errorf("%s: status %d, want %d", name, w.Code, test.status)
		}
	}
}
