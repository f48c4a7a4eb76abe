// Readers share a lock that a writer holds alone. Its arguments are URLs of Redis servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	check(err)
	defer client.Close() //nolint:errcheck // the program ends
	ctx, price, inside := context.Background(), 0, sync.WaitGroup{}
	prices := client.RWMutex(fmt.Sprintf("example:prices:%d", os.Getpid()))
	check(quorumlock.Do(ctx, prices, func(context.Context) error { price = 42; return nil }))
	inside.Add(3)
	read := func(context.Context) error {
		inside.Done()
		inside.Wait() // all three read at the same time
		fmt.Println("the price is", price)
		return nil
	}
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() { check(quorumlock.Do(ctx, prices.RLocker(), read)) })
	}
	readers.Wait()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
