// Leader runs a job in one process of many, and ends its step before the next leader begins. Its
// arguments are URLs of Redis servers. Start it several times, and stop the leader with Ctrl-C.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := election.New(client.Mutex("example:leader"), "process "+fmt.Sprint(os.Getpid()))
	err = e.Run(ctx, func(ctx context.Context) error {
		fmt.Println("I lead")
		for ctx.Err() == nil {
			step() // each step is shorter than a TTL, 10 s
		}
		fmt.Println("drained") // the lock is held until this function returns
		return nil
	})
	fmt.Println("released:", err)
	if err := client.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func step() { time.Sleep(10 * time.Millisecond) }
