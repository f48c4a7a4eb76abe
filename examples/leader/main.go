// Leader does work in one process of a fleet. The next leader begins when the work of the last one
// is drained. Set QUORUMLOCK_NODES, start it with different ADDRs, and stop the leader with Ctrl-C.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/redlock"
	"github.com/quorumlock/quorumlock/redlock/redlockhttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := redlock.DialEnv()
	check(err)
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "localhost:8080"))
	check(err)
	addr := listener.Addr().String()
	e := election.New(client.Mutex("example:leader"), addr)

	http.Handle("/readyz", redlockhttp.Health(client)) // 503 while too few nodes answer
	http.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		if err := e.Health(5 * time.Second); err != nil { // it works on after the end of its term: restart it
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/leader", func(w http.ResponseWriter, r *http.Request) {
		if leader, err := e.Leader(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		} else {
			fmt.Fprint(w, leader.Value) //nolint:errcheck // the client may be gone
		}
	})
	go http.Serve(listener, nil) //nolint:errcheck // it serves until the end, also while the work is drained
	fmt.Println("serving at", addr)

	err = e.Run(ctx, func(ctx context.Context) error {
		fmt.Println(addr, "leads")
		for ctx.Err() == nil {
			step() // shorter than a TTL, 10 s; if it writes, it sends the token of election.TermOf(ctx)
		}
		fmt.Println(addr, "is drained") // the lock is held until this function returns
		return nil
	})
	if ctx.Err() == nil {
		log.Fatal(err)
	}
	check(client.Shutdown(context.Background()))
}

func step() { time.Sleep(10 * time.Millisecond) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
