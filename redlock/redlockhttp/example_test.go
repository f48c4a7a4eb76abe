package redlockhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quorumlock/quorumlock"
	inside "github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

func ExampleHealth() {
	client, servers, stop := inside.Connect(3) // in place of redlock.Dial(urls)
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("/readyz", redlockhttp.Health(client))

	probe := func() int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	servers[0].Kill()
	fmt.Println("without one node:", probe())
	servers[1].Kill()
	time.Sleep(200 * time.Millisecond) // until then, the answer is reused
	fmt.Println("without two nodes:", probe())
	// Output:
	// without one node: 200
	// without two nodes: 503
}

func ExampleExclusive() {
	client, _, stop := inside.Connect(3) // in place of redlock.Dial(urls)
	defer stop()
	one := redlockhttp.Exclusive(func(r *http.Request) quorumlock.Locker {
		return client.Mutex("myapp:customer:" + r.PathValue("customer"))
	}, func(w http.ResponseWriter, r *http.Request, err error) { // or nil for RefuseAfter(0) alone
		w.Header().Set("Content-Language", "en")
		redlockhttp.RefuseAfter(0)(w, r, err)
	})
	mux := http.NewServeMux()
	order := func(customer string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", "/orders/"+customer, nil))
		return w.Code
	}
	mux.Handle("POST /orders/{customer}", one(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("customer") == "7" { // during this request
			fmt.Println("another of customer 7:", order("7"))
			fmt.Println("one of customer 8:", order("8"))
		}
	})))
	fmt.Println("the first:", order("7"))
	// Output:
	// another of customer 7: 409
	// one of customer 8: 200
	// the first: 200
}

func ExampleRefuseAfter() {
	lock := locktest.New("report")
	defer lock.Hold()() // another request is in progress
	one := redlockhttp.Exclusive(func(*http.Request) quorumlock.Locker { return lock }, redlockhttp.RefuseAfter(2*time.Second))
	w := httptest.NewRecorder()
	one(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("POST", "/report", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	// Output: 409 2
}
