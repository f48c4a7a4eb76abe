// Mixed locks a reader, a writer and a slot at once. Its arguments are URLs of Redis servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	check(err)
	defer client.Close() //nolint:errcheck // the program ends
	prices, bills, printers := client.RWMutex("example:prices"), client.Mutex("example:bills"), client.Semaphore("example:printers", 2)
	billed, shops := 0, sync.WaitGroup{}
	for range 3 {
		shops.Go(func() {
			all, err := multilock.New([]quorumlock.Locker{prices.RLocker(), bills, printers})
			check(err)
			check(quorumlock.Do(context.Background(), all, func(context.Context) error {
				billed += 7
				return nil
			}))
		})
	}
	shops.Wait()
	fmt.Println(billed)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
