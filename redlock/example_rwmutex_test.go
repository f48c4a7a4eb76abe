package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock"
)

// A writer changes something, and goes on as a reader. Nobody else can have written in between.
func ExampleRWMutex() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	rw := client.RWMutex("myapp:lock:catalogue")
	lease, err := rw.Lock(ctx)
	exitOn(err)
	exitOn(rw.Downgrade(ctx, lease))

	reader, err := rw.RLock(ctx) // any process can read now
	exitOn(err)
	fmt.Println("the reader has the writer's token:", reader.Token() == lease.Token())
	_, err = rw.TryLock(ctx)
	fmt.Println("a writer is refused:", errors.Is(err, quorumlock.ErrHeld))
	_, err = rw.Lock(reader.Context())
	fmt.Println("so is a reader that would become one:", errors.Is(err, quorumlock.ErrUpgrade))

	exitOn(reader.Unlock(ctx))
	exitOn(lease.Unlock(ctx))
	// Output:
	// the reader has the writer's token: true
	// a writer is refused: true
	// so is a reader that would become one: true
}

func ExampleRWMutex_TryRLock() {
	client, stop := connect()
	defer stop()
	ctx, prices := context.Background(), client.RWMutex("myapp:prices")

	reader, err := prices.TryRLock(ctx)
	exitOn(err)
	_, err = prices.TryLock(ctx)
	fmt.Println("a writer beside it:", errors.Is(err, quorumlock.ErrHeld))
	exitOn(reader.Unlock(ctx))
	// Output: a writer beside it: true
}
