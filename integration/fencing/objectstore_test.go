//go:build unix

package fencing

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/fence"
)

// The recipe of docs/fencing.md for object stores, against a server that treats If-Match and If-None-Match of a PUT as RFC
// 9110 says, and whose ETag is the MD5 of the content, as that of S3.
func TestObjectStoreRecipeRefusesLateWrites(t *testing.T) {
	store := httptest.NewServer(&objects{all: make(map[string][]byte)})
	defer store.Close()
	for seed := range schedules {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		o := &object{t: t, client: store.Client(), url: fmt.Sprintf("%s/fenced-%d", store.URL, seed), conditional: true, early: rng.IntN(2) == 0}
		if refused, _ := play(t, rng, o); !refused {
			t.Fatalf("seed %d: the late write was accepted", seed)
		}
	}
}

func TestObjectStoreWithoutConditionsTakesLateWrites(t *testing.T) {
	store := httptest.NewServer(&objects{all: make(map[string][]byte)})
	defer store.Close()
	harmed := 0
	for seed := range schedules {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		o := &object{t: t, client: store.Client(), url: fmt.Sprintf("%s/unfenced-%d", store.URL, seed), early: true}
		refused, left := play(t, rng, o)
		if refused {
			t.Fatalf("seed %d: something refused the late write", seed)
		}
		if left {
			harmed++
		}
	}
	harm(t, harmed)
}

// object is one whose first line is the highest token.
type object struct {
	t           *testing.T
	client      *http.Client
	url         string
	conditional bool
	early       bool // a paused holder has read the object before its pause
}

func (o *object) mark(token uint64) error {
	return o.update(o.read(), token, nil, true)
}

func (o *object) begin(token uint64) (func() error, error) {
	var was version
	if o.early {
		was = o.read()
	}
	return func() error {
		if !o.early {
			was = o.read()
		}
		return o.update(was, token, []byte(strconv.FormatUint(token, 10)), false)
	}, nil
}

func (o *object) value() int64 {
	if data := o.read().data; len(data) > 0 {
		n, err := strconv.ParseInt(string(data), 10, 64)
		if err != nil {
			o.t.Fatal(err)
		}
		return n
	}
	return 0
}

// version is what a read has found.
type version struct {
	etag string // empty if there is no object
	seen uint64
	data []byte
}

// update writes the token and the data, if the object is still what it was. Nil data means: what is there.
func (o *object) update(was version, token uint64, data []byte, create bool) error {
	for {
		switch {
		case !o.conditional:
		case was.seen > token:
			return &fence.StaleError{Resource: o.url, Token: token, Seen: was.seen}
		case was.etag == "" && !create:
			return fence.ErrMissing
		}
		write := data
		if write == nil {
			write = was.data
		}
		if o.put(was.etag, append(fmt.Appendf(nil, "%d\n", token), write...)) {
			return nil
		}
		was = o.read() // somebody has written meanwhile
	}
}

func (o *object) read() version {
	response, err := o.client.Get(o.url)
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // all is read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	if response.StatusCode == http.StatusNotFound {
		return version{}
	}
	first, data, _ := bytes.Cut(body, []byte("\n"))
	seen, err := strconv.ParseUint(string(first), 10, 64)
	if err != nil {
		o.t.Fatal(err)
	}
	return version{response.Header.Get("ETag"), seen, data}
}

// put reports whether the object was written.
func (o *object) put(etag string, content []byte) bool {
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPut, o.url, bytes.NewReader(content))
	if err != nil {
		o.t.Fatal(err)
	}
	switch {
	case !o.conditional:
	case etag == "":
		r.Header.Set("If-None-Match", "*")
	default:
		r.Header.Set("If-Match", etag)
	}
	response, err := o.client.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	_ = response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return true
	case http.StatusPreconditionFailed:
		return false
	}
	o.t.Fatalf("PUT: %s", response.Status)
	return false
}

// objects is an object store.
type objects struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (s *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content, there := s.all[r.URL.Path]
	etag := fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(content)))
	switch r.Method {
	case http.MethodGet:
		if !there {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", etag)
		_, _ = w.Write(content)
	case http.MethodPut:
		match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if match != "" && (!there || match != etag) || none == "*" && there {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.all[r.URL.Path] = body
	}
}

// A service behind the middleware, in schedules of requests.
func TestMiddlewareRefusesLateRequestsInEverySchedule(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			harmed := 0
			for seed := range schedules {
				s := newService(t, fenced)
				refused, left := play(t, rand.New(rand.NewPCG(uint64(seed), 1)), s)
				if refused != fenced {
					t.Fatalf("seed %d: the late write was refused: %v", seed, refused)
				}
				if left {
					harmed++
				}
			}
			if !fenced {
				harm(t, harmed)
			}
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
		s.handler.ServeHTTP(w, r.WithContext(s.t.Context())) // the server does not see the client's context
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
