// Transfer moves money under one lock of two accounts. Its arguments are URLs of Redis servers.
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
	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(from, to string, amount int) {
		both, err := multilock.New([]quorumlock.Locker{client.Mutex("example:" + from), client.Mutex("example:" + to)})
		check(err)
		check(quorumlock.Do(context.Background(), both, func(context.Context) error {
			balance[from], balance[to] = balance[from]-amount, balance[to]+amount
			return nil
		}))
	}
	var transfers sync.WaitGroup // opposite orders, without deadlock
	transfers.Go(func() { transfer("alice", "bob", 30) })
	transfers.Go(func() { transfer("bob", "alice", 10) })
	transfers.Wait()
	fmt.Println(balance)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
