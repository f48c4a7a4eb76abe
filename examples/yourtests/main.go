// Yourtests tests code that uses locks, without Redis: main_test.go is the example. To run it, set
// QUORUMLOCK_NODES.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.DialEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the program ends
	fmt.Println(bill(context.Background(), client.Mutex("example:billing"), func(context.Context) error { return nil }))
}

// bill takes a Locker, so that a test can replace it.
func bill(ctx context.Context, lock quorumlock.Locker, charge func(context.Context) error) string {
	lease, err := lock.TryLock(ctx)
	if errors.Is(err, quorumlock.ErrHeld) {
		return "somebody else bills"
	} else if err != nil {
		return "try again later"
	}
	defer lease.Unlock(ctx) //nolint:errcheck // the keys are gone at their TTL
	if err := charge(lease.Context()); err != nil {
		return fmt.Sprint("stopped: ", errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost))
	}
	return "billed"
}
