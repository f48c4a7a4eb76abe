package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/locktest"
)

// bill is code under test: it takes a Locker.
func bill(ctx context.Context, lock quorumlock.Locker, charge func(context.Context) error) error {
	lease, err := lock.TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) //nolint:errcheck // the keys are gone at their TTL
	return charge(lease.Context())
}

func Example() {
	ctx, lock := context.Background(), locktest.New("invoice:1042")
	charge := func(context.Context) error { return nil }

	release := lock.Hold()
	fmt.Println("while somebody else has it:", errors.Is(bill(ctx, lock, charge), quorumlock.ErrHeld))
	release()

	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	fmt.Println("while the nodes are down:", bill(ctx, lock, charge))
	lock.Fail(nil)

	fmt.Println("when the lease is lost:", bill(ctx, lock, func(ctx context.Context) error {
		lock.Lose()
		return context.Cause(ctx)
	}))
	// Output:
	// while somebody else has it: true
	// while the nodes are down: quorumlock: no quorum: 0 of the 2 needed
	// when the lease is lost: quorumlock: the lease of the lock "invoice:1042" was lost: the test took it away
}

// A test waits until the code under test waits.
func ExampleLocker_Waiting() {
	lock := locktest.New("invoice:1042")
	release := lock.Hold()
	lock.Delay(10 * time.Millisecond) // each call of the lock takes that long

	done := make(chan error)
	go func() { done <- quorumlock.Do(context.Background(), lock, func(context.Context) error { return nil }) }()
	for lock.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	release()
	fmt.Println(<-done)
	// Output: <nil>
}

// nightly is code under test: it takes its locks by name. The program gives it
// client.Lockers("jobs:").
func nightly(ctx context.Context, lock func(name string) quorumlock.Locker) {
	for _, job := range []string{"report", "cleanup"} {
		lease, err := lock(job).TryLock(ctx)
		if err != nil {
			fmt.Println(job, "is skipped:", errors.Is(err, quorumlock.ErrHeld))
			continue
		}
		fmt.Println(job, "runs:", lease.Unlock(ctx))
	}
}

func ExampleAllUnlocked() {
	test := func(t *testing.T) { // TestBill in a file of tests
		lock := locktest.New("invoice:1042", quorumlock.WithObserver(locktest.AllUnlocked(t)))
		if err := bill(t.Context(), lock, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	_ = test // it fails if bill forgets to unlock
	// Output:
}

func ExampleLocks() {
	locks := locktest.NewLocks()
	defer locks.Get("report").Hold()()
	nightly(context.Background(), locks.Locker)
	fmt.Println(locks.Locker("report") == locks.Get("report"))
	// Output:
	// report is skipped: true
	// cleanup runs: <nil>
	// true
}
