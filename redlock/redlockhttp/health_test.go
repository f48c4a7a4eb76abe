package redlockhttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type answer struct {
	OK      bool `json:"ok"`
	Quorum  int  `json:"quorum"`
	Ready   int  `json:"ready"`
	MayFail int  `json:"may_fail"`
	Nodes   []struct {
		Node string `json:"node"`
		OK   bool   `json:"ok"`
	} `json:"nodes"`
}

func ask(t *testing.T, h http.Handler, method string) (*httptest.ResponseRecorder, answer) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/readyz", nil))
	var a answer
	if w.Body.Len() > 0 && w.Header().Get("Content-Type") == "application/json" {
		testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &a), "Unmarshal")
	}
	return w, a
}

func TestHealthIs200WithAQuorumAnd503Without(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		h := redlockhttp.Health(c)
		for down, status := range []int{200, 200, 503} {
			if down > 0 {
				servers[down-1].Kill()
				time.Sleep(time.Second) // an answer is reused for a while
			}
			w, a := ask(t, h, http.MethodGet)
			if w.Code != status || a.OK != (status == 200) || a.Quorum != 2 || a.Ready != 3-down || a.MayFail != 1-down || len(a.Nodes) != 3 {
				t.Errorf("with %d down: status %d, %+v; want %d", down, w.Code, a, status)
			}
			for i, n := range a.Nodes {
				if n.Node != servers[i].Name || n.OK != (i >= down) {
					t.Errorf("with %d down: node %+v", down, n)
				}
			}
			if strings.Contains(w.Body.String(), "refused") {
				t.Errorf("it tells errors: %s", w.Body)
			}
			if w, _ := ask(t, h, http.MethodHead); w.Code != status || w.Body.Len() > 0 {
				t.Errorf("HEAD: status %d, %d bytes", w.Code, w.Body.Len())
			}
		}
	})
}

func TestHealthRefusesWhatItCannotAnswer(t *testing.T) {
	w, _ := ask(t, redlockhttp.Health(nil), http.MethodPost)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	w, a := ask(t, redlockhttp.Health(nil), http.MethodGet)
	if w.Code != http.StatusServiceUnavailable || a.OK {
		t.Errorf("without a client: status %d, %+v", w.Code, a)
	}
}

func TestProbesAtTheSameTimeShareOneLookAtTheNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		h := redlockhttp.Health(c)
		ask(t, h, http.MethodGet) // connects
		time.Sleep(time.Second)   // its answer is too old
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(100 * time.Millisecond) })
		before := servers[0].Ran()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				w, _ := ask(t, h, http.MethodGet)
				testkit.Equal(t, w.Code, 200, "status")
			})
		}
		wg.Wait()
		testkit.Equal(t, servers[0].Ran()-before, 1, "looks at a node for 50 probes at the same time")
	})
}

// A flood of probes runs at most five scripts a second at the nodes. No answer is older than that.
func TestProbesOneAfterTheOtherUseAnAnswerAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		h := redlockhttp.Health(c)
		ask(t, h, http.MethodGet) // connects
		time.Sleep(time.Second)   // its answer is too old
		before := servers[0].Ran()
		for range 1000 { // in a second
			if w, a := ask(t, h, http.MethodGet); w.Code != 200 || len(a.Nodes) != 3 {
				t.Errorf("status %d, %+v", w.Code, a)
			}
			time.Sleep(time.Millisecond)
		}
		testkit.Equal(t, servers[0].Ran()-before, 5, "looks at a node for the probes of a second")
		for _, tt := range []struct {
			change func(...*embedded.Server)
			status int
		}{{testkit.Kill, 503}, {testkit.Restart, 200}} {
			tt.change(servers[:2]...)
			time.Sleep(200 * time.Millisecond)
			w, _ := ask(t, h, http.MethodGet)
			testkit.Equal(t, w.Code, tt.status, "status 200 ms after the nodes changed")
		}
	})
}

// A handler that returns without an answer sends 200: a wrapper that bounds the request, such as a
// TimeoutHandler, would pass that on.
func TestHealthIs503WhenTheRequestEndsFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		h := redlockhttp.Health(c)
		testkit.Each(servers, (*embedded.Server).Stall)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(testkit.Within(t, 10*time.Millisecond), http.MethodGet, "/readyz", nil))
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusServiceUnavailable || err != nil || a.OK {
			t.Errorf("status %d, %q, %v; want 503, not ok", w.Code, w.Body, err)
		}
		testkit.Each(servers, (*embedded.Server).Resume)
		time.Sleep(2 * time.Second) // a second look, once the first has ended
		w, _ = ask(t, h, http.MethodGet)
		testkit.Equal(t, w.Code, http.StatusOK, "status afterwards")
	})
}
