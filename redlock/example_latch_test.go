package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock"
)

// Three shards of a job are done in some order, one of them twice. All waiters then continue.
func ExampleLatch() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	latch := client.Latch("myapp:import:2026-11-22", 3) // a name for each time
	for _, shard := range []string{"a", "b", "a"} {
		exitOn(latch.Done(ctx, shard))
	}
	n, err := latch.Count(ctx)
	fmt.Println(n, err)

	// In any process.
	go func() { exitOn(client.Latch("myapp:import:2026-11-22", 3).Done(ctx, "c")) }()
	fmt.Println(latch.Wait(ctx))

	err = client.Latch("myapp:import:2026-11-22", 5).Done(ctx, "d")
	fmt.Println(errors.Is(err, quorumlock.ErrMismatch))
	// Output:
	// 2 <nil>
	// <nil>
	// true
}
