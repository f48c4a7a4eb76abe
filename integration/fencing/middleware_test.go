//go:build unix

package fencing

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fence"
)

// A service behind the middleware, in schedules of requests.
func TestMiddlewareRefusesLateRequestsInEverySchedule(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			inEverySchedule(t, fenced, func(*rand.Rand, int) protected { return newService(t, fenced) })
		})
	}
}

type service struct {
	t       *testing.T
	handler http.Handler
	written int64
}

func newService(t *testing.T, fenced bool) *service {
	s := &service{t: t}
	s.handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body) > 0 {
			s.written, _ = strconv.ParseInt(string(body), 10, 64)
		}
	})
	if fenced {
		s.handler = fence.Middleware(new(fence.Memory), func(r *http.Request) string { return r.URL.Path })(s.handler)
	}
	return s
}

func (s *service) mark(token uint64) error { return s.send(token, "") }

func (s *service) begin(token uint64) (func() error, error) {
	return func() error { return s.send(token, strconv.FormatUint(token, 10)) }, nil
}

func (s *service) value() int64 { return s.written }

// send is a request by way of Transport, which the handler answers without a network.
func (s *service) send(token uint64, body string) error {
	r, err := http.NewRequestWithContext(fence.NewContext(s.t.Context(), token), http.MethodPut, "http://service/register", strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := fence.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		// The server does not see the client's context.
		s.handler.ServeHTTP(w, r.WithContext(s.t.Context()))
		response := w.Result()
		response.Request = r
		return response, nil
	})).RoundTrip(r)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if err := fence.CheckResponse(response); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
