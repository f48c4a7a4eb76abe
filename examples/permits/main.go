// Permits encodes five films with the four licences that a fleet shares. Its argument is the number
// of licences that a film needs. Set QUORUMLOCK_NODES, and start it several times.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: permits LICENCES")
	}
	n, err := strconv.Atoi(os.Args[1])
	check(err)
	client, err := redlock.DialEnv()
	check(err)
	licences := client.Semaphore("example:licences", 4)
	for range 5 {
		lease, err := licences.LockN(ctx, n) // all n of them, or none
		check(err)
		var numbers []int
		for _, slot := range lease.Slots() {
			numbers = append(numbers, slot.Number) // nobody else has this licence
		}
		fmt.Println("begins with", numbers)
		encode(lease.Context())
		fmt.Println("ends with", numbers)
		check(lease.Unlock(ctx)) // quorumlock.ErrLost if the film must be encoded again
	}
	check(client.Shutdown(context.Background()))
}

func encode(ctx context.Context) { // stops if a licence is lost
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
