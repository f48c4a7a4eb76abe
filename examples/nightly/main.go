// Nightly runs a job at 3 o'clock on one process of a fleet. Its arguments are URLs of Redis
// servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
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
	for range 2 {        // stands for two processes with a cron that starts this at 3 o'clock
		// The lock is kept for most of the day, however fast the job is: a process with a slow
		// clock does not run the job again.
		ran, err := quorumlock.Once(context.Background(), client.Mutex("example:nightly"), 24*time.Hour, job)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("ran here:", ran)
	}
}

func job(ctx context.Context) error { // cancelled if the lock is lost
	fmt.Println("the nightly job")
	return ctx.Err()
}
