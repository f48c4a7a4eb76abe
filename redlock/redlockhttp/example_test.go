package redlockhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/redlock"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

func ExampleHealth() {
	servers, nodes, err := embedded.Nodes(3)
	if err != nil {
		panic(err)
	}
	client, err := redlock.New(nodes)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", redlockhttp.Health(client))

	for _, s := range servers {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		fmt.Println(w.Code)
		s.Kill() // one node after the other
	}
	_ = client.Close()
	for _, s := range servers {
		s.Close()
	}
	// Output:
	// 200
	// 200
	// 503
}
