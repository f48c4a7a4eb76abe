package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
)

// The label identifies a client in refusals, Inspect and the logs.
func ExampleWithLabel() {
	client, nodes := connect(quorumlock.WithLabel("billing-7")) // redlock.New with this option
	defer nodes.Close()

	lease, err := client.Mutex("invoice:1042").TryLock(context.Background())
	exitOn(err)
	fmt.Println(lease.Owner().Label())
	exitOn(lease.Unlock(context.Background()))
	// Output: billing-7
}

// Two services that share servers have prefixes, and so locks, of their own.
func ExampleWithPrefix() {
	client, nodes := connect()
	defer nodes.Close()
	ctx := context.Background()

	mine, err := client.Mutex("nightly", quorumlock.WithPrefix("billing:")).TryLock(ctx)
	exitOn(err)
	theirs, err := client.Mutex("nightly", quorumlock.WithPrefix("search:")).TryLock(ctx)
	exitOn(err)
	fmt.Println("both are held")
	exitOn(mine.Unlock(ctx))
	exitOn(theirs.Unlock(ctx))
	// Output: both are held
}

// A program that takes names from its users checks them at once.
func ExampleValidateName() {
	fmt.Println(quorumlock.ValidateName("myapp:lock:invoice:1042"))
	fmt.Println(quorumlock.ValidateName(""))
	// Output:
	// <nil>
	// quorumlock: the name of the lock is empty: use a name
}

// Nodes that may restart without their data are quarantined until all leases that they forgot have
// ended.
func ExampleWithRestartGuard() {
	const longest = 30 * time.Second // no client uses a longer TTL
	client, nodes := connect(quorumlock.WithRestartGuard(longest))
	defer nodes.Close()

	_, err := client.Mutex("migration").TryLock(context.Background())
	fmt.Println(errors.Is(err, quorumlock.ErrQuarantined)) // these nodes have just started
	// Output: true
}

// A holder that hangs loses the lock after an hour, and the next waiter acquires it.
func ExampleWithMaxHold() {
	client, nodes := connect()
	defer nodes.Close()
	err := quorumlock.Do(context.Background(), client.Mutex("report", quorumlock.WithMaxHold(time.Hour)), func(ctx context.Context) error {
		return ctx.Err() // ctx is cancelled then
	})
	fmt.Println(err)
	// Output: <nil>
}

// A refusal says what the holder does.
func ExampleWithData() {
	client, nodes := connect()
	defer nodes.Close()
	ctx := context.Background()
	lease, err := client.Mutex("deploy", quorumlock.WithData("release 4.2, by ann")).Lock(ctx)
	exitOn(err)
	defer lease.Unlock(ctx)

	_, err = client.Mutex("deploy", quorumlock.WithData("release 4.3, by bob")).TryLock(ctx)
	if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
		fmt.Println(held.Data)
	}
	// Output: release 4.2, by ann
}

func ExampleWithRetention() {
	client, nodes := connect()
	defer nodes.Close()
	ctx := context.Background()
	// read for a week
	shards := client.Latch("import:2026-11", 2, quorumlock.WithRetention(7*24*time.Hour))
	exitOn(shards.Done(ctx, "a"))
	exitOn(shards.Done(ctx, "b"))
	fmt.Println(shards.Wait(ctx))
	// Output: <nil>
}

// A job that runs once an hour keeps its lock for a while, so that a host with a slow clock does
// not run it again.
func ExampleLease_UnlockAfter() {
	client, nodes := connect()
	defer nodes.Close()
	ctx := context.Background()
	lease, err := client.Mutex("hourly").TryLock(ctx)
	exitOn(err)
	exitOn(lease.UnlockAfter(ctx, 10*time.Minute)) // after the grant, not from now on

	_, err = client.Mutex("hourly").TryLock(ctx)
	fmt.Println(errors.Is(err, quorumlock.ErrHeld))
	// Output: true
}

func ExampleOwner_Validate() {
	fmt.Println(quorumlock.NewOwner().Validate())
	fmt.Println(quorumlock.Owner("").Validate() != nil)
	// Output:
	// <nil>
	// true
}

// Goroutines with a lease's context would all enter: the lock is re-entrant by context.
func ExampleWithoutReentry() {
	client, nodes := connect()
	defer nodes.Close()
	lock := client.Mutex("invoice:1042", quorumlock.WithoutReentry())
	err := quorumlock.Do(context.Background(), lock, func(ctx context.Context) error {
		var g errgroup.Group
		for range 3 {
			g.Go(func() error { return quorumlock.Do(ctx, lock, func(context.Context) error { return nil }) })
		}
		return g.Wait()
	})
	fmt.Println(errors.Is(err, quorumlock.ErrDeadlock))
	// Output: true
}

// audit is an Observer that prints the events of locks.
type audit struct{}

func (audit) Begin(ctx context.Context, _ string) context.Context { return ctx }

func (audit) Observe(_ context.Context, e quorumlock.Event) {
	switch e.Kind {
	case quorumlock.EventAcquired:
		fmt.Println("acquired", e.Lock, "with", e.Attempts, "attempt")
	case quorumlock.EventRefused:
		fmt.Println("refused", e.Lock, "since it is", e.ErrorType())
	case quorumlock.EventLost:
		fmt.Println("lost", e.Lock, "because its keys are gone:", e.Reason == quorumlock.LossKeysGone)
	}
}

// Observers that write traces and metrics are in contrib/otel and contrib/prometheus.
func ExampleObserver() {
	client, nodes := connect()
	defer nodes.Close()
	ctx, lock := context.Background(), client.Mutex("invoice:1042", quorumlock.WithObserver(audit{}))
	lease, err := lock.TryLock(ctx)
	exitOn(err)
	_, _ = lock.TryLock(ctx)                     // it is refused
	exitOn(client.ForceUnlock(ctx, lock.Name())) // an operator takes the lock away
	_ = lease.Extend(ctx)                        // it fails: the holder learns of it
	<-lease.Context().Done()
	// Output:
	// acquired invoice:1042 with 1 attempt
	// refused invoice:1042 since it is held
	// lost invoice:1042 because its keys are gone: true
}

// A job that must not be renewed, such as one that is paused with its process, extends its lease.
func ExampleLease_ExtendTo() {
	client, nodes := connect()
	defer nodes.Close()
	ctx := context.Background()
	lease, err := client.Mutex("backup", quorumlock.WithoutRenewal()).Lock(ctx)
	exitOn(err)
	exitOn(lease.ExtendTo(ctx, time.Hour))
	fmt.Println(time.Until(lease.ValidUntil()).Round(time.Minute)) // the TTL without the drift
	exitOn(lease.Unlock(ctx))
	// Output: 59m0s
}
