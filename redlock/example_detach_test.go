package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// An API handler takes the lock and queues the work. A worker in another process continues the
// hold, under the same fencing token. The queue delivers twice: the second worker finds the work
// done.
func ExampleClient_Attach() {
	urls, stop := threeServers() // redis://10.0.0.1:6379 and so on
	defer stop()
	api, err := redlock.Dial(urls)
	exitOn(err)
	worker, err := redlock.Dial(urls) // in another process
	exitOn(err)
	defer func() { _, _ = api.Close(), worker.Close() }()
	queue := make(chan string, 2)

	handler := func(ctx context.Context) error {
		lease, err := api.Mutex("example:detach").TryLock(ctx)
		if err != nil {
			return err // somebody is at it
		}
		defer lease.Unlock(ctx)                     //nolint:errcheck // for a Detach that fails; ErrNotHeld after it
		text, err := lease.Detach(ctx, time.Minute) // as long as the work may be queued
		if err != nil {
			return err
		}
		queue <- text
		queue <- text
		return nil
	}
	done := false // the state of the job, in a database
	work := func(ctx context.Context, text string) {
		lease, err := worker.Attach(ctx, text)
		if errors.Is(err, quorumlock.ErrLost) { // a duplicate, or the first worker has died
			lease, err = worker.Mutex("example:detach").TryLock(ctx)
		}
		if err != nil {
			return // somebody works on it, or no quorum: deliver it again
		}
		defer lease.Unlock(ctx) //nolint:errcheck // the work is done
		if done {
			fmt.Println("already done: drop the job")
			return
		}
		fmt.Println("working on", lease.Name())
		done = true
	}

	ctx := context.Background()
	exitOn(handler(ctx))
	work(ctx, <-queue)
	work(ctx, <-queue)
	// Output:
	// working on example:detach
	// already done: drop the job
}

// ForceUnlockOwner frees the hold that an operator has looked at, and no later one.
func ExampleClient_ForceUnlockOwner() {
	urls, stop := threeServers()
	defer stop()
	client, err := redlock.Dial(urls)
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here
	ctx := context.Background()
	_, err = client.Mutex("example:stuck").Lock(ctx)
	exitOn(err)

	in, err := client.Inspect(ctx, "example:stuck")
	exitOn(err)
	fmt.Println(client.ForceUnlockOwner(ctx, "example:stuck", in.State.Owner))
	fmt.Println(errors.Is(client.ForceUnlockOwner(ctx, "example:stuck", in.State.Owner), quorumlock.ErrNotHeld))
	// Output:
	// <nil>
	// true
}
