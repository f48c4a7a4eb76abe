package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
	public "github.com/quorumlock/quorumlock/locktest"
)

func path(r *http.Request) string { return r.URL.Path }

// send gives a handler a request with tokens, of which an empty one is none.
func send(h http.Handler, method, path string, tokens ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for _, token := range tokens {
		if token != "" {
			r.Header.Add("Fencing-Token", token)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestMiddlewareRefusesStaleTokens(t *testing.T) {
	keys, _ := newRedis(t)
	client := http.Client{Transport: fence.Transport(nil)}
	for name, store := range map[string]fence.Store{"Memory": new(fence.Memory), "Redis": keys} {
		t.Run(name, func(t *testing.T) {
			var seen []uint64 // the tokens of the writes that the handler was given
			server := httptest.NewServer(fence.Middleware(store, path)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				token, _ := fence.FromContext(r.Context())
				seen = append(seen, token)
			})))
			defer server.Close()
			for _, step := range []struct {
				path   string
				token  uint64
				status int
			}{
				{"/a", 5, 200}, {"/a", 5, 200}, {"/a", 7, 200}, {"/a", 6, 412}, {"/b", 1, 200}, {"/a", 8, 200}, {"/a", 0, 428},
			} {
				ctx := t.Context()
				if step.token != 0 {
					ctx = fence.NewContext(ctx, step.token)
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+step.path, strings.NewReader("x"))
				testkit.Must(t, err, "NewRequestWithContext")
				response, err := client.Do(r)
				testkit.Must(t, err, "Do")
				testkit.Must(t, response.Body.Close(), "Close")
				testkit.Equal(t, len(r.Header), 0, "headers of the request, which Transport must not change")
				testkit.Equal(t, response.StatusCode, step.status, "token %d on %s", step.token, step.path)
				err = fence.CheckResponse(response)
				if stale, ok := errors.AsType[*fence.StaleError](err); (step.status == 412) != ok || ok && *stale != (fence.StaleError{Resource: "/a", Token: 6, Seen: 7}) {
					t.Errorf("token %d on %s: CheckResponse says %v", step.token, step.path, err)
				}
			}
			testkit.Equal(t, fmt.Sprint(seen), "[5 5 7 1 8]", "the handler was given the tokens")
		})
	}
}

func TestTheInnermostTokenOfAContextCounts(t *testing.T) {
	lease, err := public.New("outer").Lock(t.Context())
	testkit.Must(t, err, "Lock")
	request := fence.NewContext(lease.Context(), 7)
	other := public.New("inner")
	testkit.Must(t, quorumlock.Do(t.Context(), other, func(context.Context) error { return nil }), "Do, so that the tokens differ")
	inner, err := other.Lock(request)
	testkit.Must(t, err, "Lock")
	var none context.Context
	for name, tt := range map[string]struct {
		ctx  context.Context
		want uint64
	}{
		"the inner lease": {inner.Context(), 2}, "nil": {none, 0}, "none": {t.Context(), 0}, "lease": {lease.Context(), 1},
		"NewContext inside of a lease": {request, 7}, "NewContext alone": {fence.NewContext(t.Context(), 8), 8},
	} {
		if token, ok := fence.FromContext(tt.ctx); token != tt.want || ok != (tt.want != 0) {
			t.Errorf("%s: %d, %v, want %d", name, token, ok, tt.want)
		}
	}
}

func TestMiddlewareAnswersWhatIsWrong(t *testing.T) {
	broken := failing{errors.New("dial tcp db-7.internal: refused")}
	for name, tt := range map[string]struct {
		store    fence.Store
		resource func(*http.Request) string
		method   string
		tokens   []string
		status   int
	}{
		"a read needs no token":         {new(fence.Memory), path, "GET", nil, 200},
		"a read with a token":           {new(fence.Memory), path, "GET", []string{"7"}, 200},
		"a read with a malformed token": {new(fence.Memory), path, "GET", []string{"seven"}, 400},
		"no token":                      {new(fence.Memory), path, "DELETE", nil, 428},
		"not a number":                  {new(fence.Memory), path, "PUT", []string{"seven"}, 400},
		"negative":                      {new(fence.Memory), path, "PUT", []string{"-7"}, 400},
		"zero":                          {new(fence.Memory), path, "PUT", []string{"0"}, 400},
		"too large":                     {new(fence.Memory), path, "PUT", []string{"99999999999999999999"}, 400},
		"two tokens":                    {new(fence.Memory), path, "PUT", []string{"7", "8"}, 400},
		"no resource":                   {new(fence.Memory), func(*http.Request) string { return "" }, "PUT", []string{"7"}, 400},
		"the store fails":               {broken, path, "PUT", []string{"7"}, 503},
		"a nil store":                   {nil, path, "PUT", []string{"7"}, 500},
		"a nil store with a type":       {(*fence.Memory)(nil), path, "PUT", []string{"7"}, 500},
		"a nil function":                {new(fence.Memory), nil, "PUT", []string{"7"}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			h := fence.Middleware(tt.store, tt.resource)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
			w := send(h, tt.method, "/x", tt.tokens...)
			if w.Code != tt.status || ran != (tt.status == 200) {
				t.Errorf("status %d, the handler ran: %v, want %d", w.Code, ran, tt.status)
			}
			if strings.Contains(w.Body.String(), "internal") {
				t.Errorf("the answer tells what the store said: %q", w.Body)
			}
		})
	}
}

// A client that may send a token can mark it, also with a read. A name that the service does not
// know leaves nothing in the store.
func TestMiddlewareMarksEveryTokenOfAKnownResource(t *testing.T) {
	marked := make(noting)
	known := func(r *http.Request) string {
		return strings.TrimPrefix(r.URL.Path, "/new")
	}
	h := fence.Middleware(marked, known)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/known", "7", 200}, {"OPTIONS", "/known", "9223372036854775807", 200}, {"GET", "/new", "8", 400}, {"PUT", "/new", "8", 400}, {"GET", "/new", "", 200},
	} {
		testkit.Equal(t, send(h, tt.method, tt.path, tt.token).Code, tt.status, "%s %s with the token %q", tt.method, tt.path, tt.token)
	}
	testkit.Equal(t, fmt.Sprint(marked), "map[/known:9223372036854775807]", "the store was given")
}

// noting is a store that lets everybody in, and notes the last token of each resource.
type noting map[string]uint64

func (n noting) Enter(_ context.Context, resource string, token uint64) (func(), error) {
	n[resource] = token
	return func() {}, nil
}

type failing struct{ err error }

func (f failing) Enter(context.Context, string, uint64) (func(), error) { return nil, f.err }

// A precondition of another kind is none of ours.
func TestCheckResponseLeavesOtherResponsesAlone(t *testing.T) {
	for _, r := range []*http.Response{nil, {StatusCode: 200}, {StatusCode: 412}, {StatusCode: 412, Header: http.Header{"Fencing-Token-Seen": {"x"}}}} {
		testkit.OK(t, fence.CheckResponse(r), "CheckResponse")
	}
}

// With Memory, handlers of one resource run one after the other. A waiting request is overtaken by
// a later one with a higher token.
func TestMemoryRefusesARequestThatIsOvertakenAsItWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var store fence.Memory
		done := make(chan struct{})
		h := fence.Middleware(&store, path)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
		go send(h, "PUT", "/x", "7")
		enter := func(token uint64) <-chan error {
			return testkit.Go(func() error {
				time.Sleep(time.Duration(token) * time.Second)
				leave, err := store.Enter(t.Context(), "/x", token)
				if err == nil {
					leave()
				}
				return err
			})
		}
		eight, nine := enter(8), enter(9)
		time.Sleep(time.Minute)
		if len(eight)+len(nine) != 0 {
			t.Error("somebody was let in while the first handler runs")
		}
		close(done)
		testkit.Is(t, <-eight, fence.ErrStale, "Enter with 8")
		testkit.OK(t, <-nine, "Enter with 9")
	})
}

func TestMemoryLetsTheNextInAfterAPanic(t *testing.T) {
	var store fence.Memory
	h := fence.Middleware(&store, path)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			send(h, "PUT", "/x", "7")
			t.Error("the panic is gone")
		}()
	}
}

func TestMemoryWaitsNoLongerThanItsContext(t *testing.T) {
	var store fence.Memory
	leave, err := store.Enter(t.Context(), "x", 7)
	testkit.Must(t, err, "Enter")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Is(t, testkit.Err(store.Enter(ctx, "x", 8)), context.Canceled, "Enter with a done context")
	leave()
	leave() // more than once is no harm
	testkit.Is(t, testkit.Err(store.Enter(t.Context(), "x", 7)), fence.ErrStale, "Enter with 7 after 8 has come")
	leave, err = store.Enter(t.Context(), "x", 8)
	testkit.Must(t, err, "Enter")
	leave()
}
