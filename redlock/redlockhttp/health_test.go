package redlockhttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

func TestMain(m *testing.M) { locktest.Main(m) }

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

func start(t *testing.T, n int) (*redlock.Client, []*embedded.Server) {
	servers, nodes := locktest.Nodes(t, n)
	c, err := redlock.New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, servers
}

func ask(t *testing.T, h http.Handler, method string) (*httptest.ResponseRecorder, answer) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/readyz", nil))
	var a answer
	if w.Body.Len() > 0 && w.Header().Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
	}
	return w, a
}

func TestHealthIs200WithAQuorumAnd503Without(t *testing.T) {
	c, servers := start(t, 3)
	h := redlockhttp.Health(c)
	for down, status := range []int{200, 200, 503} {
		if down > 0 {
			servers[down-1].Kill()
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
}

func TestHealthTakesNothingButGetAndHead(t *testing.T) {
	c, _ := start(t, 1)
	if w, _ := ask(t, redlockhttp.Health(c), http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func TestHealthOfNoClientIs503(t *testing.T) {
	if w, a := ask(t, redlockhttp.Health(nil), http.MethodGet); w.Code != 503 || a.OK {
		t.Errorf("status %d, %+v", w.Code, a)
	}
}

func TestProbesAtTheSameTimeShareOneLookAtTheNodes(t *testing.T) {
	c, servers := start(t, 3)
	h := redlockhttp.Health(c)
	ask(t, h, http.MethodGet) // connects
	for _, s := range servers {
		s.Delay(100 * time.Millisecond)
	}
	before := servers[0].Ran()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if w, _ := ask(t, h, http.MethodGet); w.Code != 200 {
				t.Errorf("status %d", w.Code)
			}
		})
	}
	wg.Wait()
	if ran := servers[0].Ran() - before; ran > 5 {
		t.Errorf("50 probes at the same time asked a node %d times", ran)
	}
}
