package locktest_test

import (
	"context"
	"errors"
	"fmt"

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
