package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
)

// At each tick of an hour, each process of a fleet calls Once.
func ExampleOnce() {
	client, nodes := connect(quorumlock.WithLabel("billing-7"))
	defer nodes.Close()
	report := func(context.Context) error {
		fmt.Println("the report")
		return nil
	}
	for range 2 { // stands for two processes with a ticker
		ran, err := quorumlock.Once(context.Background(), client.Mutex("myapp:lock:report"), time.Hour, report,
			quorumlock.OnSkip(func(refusal error) {
				if held, ok := errors.AsType[*quorumlock.HeldError](refusal); ok {
					fmt.Println("skipped: it is run by", held.Holder.Label())
				}
			}))
		fmt.Println(ran, err)
	}
	// Output:
	// the report
	// true <nil>
	// skipped: it is run by billing-7
	// false <nil>
}

// A process that is stopped at the tick loses no run: its job returns the error of its ctx, and a
// process on standby takes over.
func ExampleReleaseOnError() {
	client, nodes := connect()
	defer nodes.Close()
	lock := client.Mutex("myapp:lock:report")
	once := func(ctx context.Context, job func(context.Context) error) (bool, error) {
		return quorumlock.Once(ctx, lock, 24*time.Hour, job, quorumlock.ReleaseOnError(),
			quorumlock.Standby(3*time.Hour),  // longer than the longest run
			quorumlock.KeepFor(12*time.Hour)) // shorter than the period minus the latest retry
	}
	ctx, stop := context.WithCancel(context.Background())
	ran, err := once(ctx, func(ctx context.Context) error {
		stop() // SIGTERM
		return ctx.Err()
	})
	fmt.Println("the first:", ran, err)
	ran, err = once(context.Background(), func(context.Context) error { return nil })
	fmt.Println("the second:", ran, err)
	// Output:
	// the first: true context canceled
	// the second: true <nil>
}
