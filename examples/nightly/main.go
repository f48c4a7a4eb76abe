// Nightly runs a job at 3 o'clock on one process of a fleet. Its arguments are URLs of Redis
// servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the program ends
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ran, err := quorumlock.Once(ctx, client.Mutex("example:nightly"), 24*time.Hour, job,
		quorumlock.ReleaseOnError(),      // a failed run frees the lock
		quorumlock.Standby(3*time.Hour),  // longer than the longest run: others wait, and take over
		quorumlock.KeepFor(12*time.Hour)) // shorter than the period minus the latest retry
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ran here:", ran)
}

func job(ctx context.Context) error { // cancelled by a signal, or if the lock is lost
	fmt.Println("the nightly job")
	return ctx.Err()
}
