// Hourly makes a report once an hour on a whole fleet: each process asks once an hour, beginning at
// its start. Set QUORUMLOCK_NODES, and start it three times.
package main

import (
	"context"
	"errors"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := redlock.DialEnv()
	check(err)
	lock := client.Mutex("example:report")
	for tick := time.Tick(time.Hour); ctx.Err() == nil; {
		_, err := quorumlock.Once(ctx, lock, time.Hour, report,
			quorumlock.ReleaseOnError(), // then the next process that asks makes the report
			quorumlock.OnSkip(func(err error) {
				if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
					fmt.Println("skipped:", held.Holder.Label(), "has this hour")
				}
			}))
		if err != nil {
			log.Print("no report: ", err) // of the job, or too few nodes
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	check(client.Shutdown(context.Background())) // the hour stays taken
}

func report(ctx context.Context) error { // ctx ends with a signal, or if the lock is lost
	fmt.Println("the report")
	return ctx.Err()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
