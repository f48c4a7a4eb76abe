// Command leader runs a job in one process of many. Start it several times, and stop the one that leads:
//
//	go run ./examples/leader redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:]...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the program ends
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	e := election.New(client.Mutex("example:leader"), fmt.Sprintf("process %d", os.Getpid()))
	go func() {
		for leader, err := range e.Observe(ctx) {
			log.Println("now:", leader, err)
		}
	}()
	log.Print(e.Run(ctx, func(ctx context.Context) error {
		term, _ := election.TermOf(ctx)
		log.Println("I lead, with the fencing token", term.Token())
		<-ctx.Done() // the job; when it returns, the next one leads
		return ctx.Err()
	}))
}
