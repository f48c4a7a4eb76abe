// Redisson acquires a lock of Java services that use Redisson, while they are running. Its
// arguments are the servers of Redisson: one, or those of its RedLock.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	check(err)
	defer client.Close() //nolint:errcheck // the program ends

	// RLock lock = redisson.getLock("orders"); the option is Redisson's watchdog timeout.
	lock := client.Mutex("orders", quorumlock.WithTTL(30*time.Second))
	lease, err := lock.TryLock(context.Background()) // lock.tryLock()
	if err == nil {
		err = lease.Unlock(context.Background()) // lock.unlock()
	}
	fmt.Println("a Java client has it:", errors.Is(err, quorumlock.ErrHeld))
	err = quorumlock.Do(context.Background(), lock, func(context.Context) error {
		fmt.Println("then this client") // between lock.lock() and lock.unlock()
		return nil
	})
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
