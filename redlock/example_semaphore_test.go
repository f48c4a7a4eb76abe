package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// Two licences, and three who want one. The number of the slot says which licence it is.
func ExampleSemaphore() {
	nodes, servers := dialAll() // node.Dial, five times
	defer closeAll(servers)
	client, err := redlock.New(nodes)
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	licences := client.Semaphore("myapp:licences", 2)
	first, err := licences.Lock(ctx)
	exitOn(err)
	second, err := licences.Lock(ctx)
	exitOn(err)
	fmt.Println(first.Slot() + second.Slot()) // 0 and 1, in some order

	_, err = licences.TryLock(ctx)
	fmt.Println(errors.Is(err, quorumlock.ErrHeld))

	slot := first.Slot()
	exitOn(first.Unlock(ctx))
	third, err := licences.Lock(ctx)
	exitOn(err)
	fmt.Println(third.Slot() == slot, third.Token() > first.Token())
	exitOn(errors.Join(second.Unlock(ctx), third.Unlock(ctx)))
	// Output:
	// 1
	// true
	// true true
}
