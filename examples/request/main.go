// Request serves one request per customer at a time, on a whole fleet. Its arguments are URLs of
// Redis servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", serve(client, charge)))
}

func serve(client *redlock.Client, work func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, err := client.Mutex("example:customer:" + r.FormValue("customer")).TryLock(r.Context())
		if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
			w.Header().Set("Retry-After", fmt.Sprint(1+int(held.TTL.Seconds())))
			http.Error(w, "another request of this customer is under way", http.StatusConflict)
		} else if err != nil {
			http.Error(w, "no lock can be had now", http.StatusServiceUnavailable)
		} else {
			defer lease.Unlock(r.Context())                    //nolint:errcheck // the keys expire
			fmt.Fprintln(w, "charged:", work(lease.Context())) //nolint:errcheck // the client may be gone
		}
	}
}

func charge(ctx context.Context) error { return ctx.Err() }
