package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
)

// Two licences for three callers. The number of the slot is the number of the licence.
func ExampleSemaphore() {
	client, stop := connect()
	defer stop()

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

// Ten jobs need two of three GPUs each. The slots are the numbers of the GPUs.
func ExampleSemaphore_LockN() {
	client, stop := connect()
	defer stop()

	gpus := client.Semaphore("myapp:gpus", 3)
	var g errgroup.Group
	var done atomic.Int64
	for range 10 {
		g.Go(func() error {
			ctx := context.Background()
			lease, err := gpus.LockN(ctx, 2)
			if err != nil {
				return err
			}
			for _, slot := range lease.Slots() { // the work watches lease.Context()
				done.Add(1)
				_ = slot.Number // the GPU; slot.Token is its fencing token
			}
			return lease.Unlock(ctx)
		})
	}
	fmt.Println(g.Wait(), done.Load())

	ctx := context.Background()
	all, err := gpus.TryLockN(ctx, 3) // without waiting
	exitOn(err)
	_, err = gpus.TryLockN(ctx, 2)
	fmt.Println(errors.Is(err, quorumlock.ErrHeld))
	exitOn(all.Unlock(ctx))

	_, err = gpus.LockN(ctx, 4)
	fmt.Println(err)
	// Output:
	// <nil> 20
	// true
	// quorumlock: LockN: n is 4, and the semaphore "myapp:gpus" has 3 permits: use 1 to 3
}

// At most two calls in any minute, on the whole fleet: each takes a slot, which is kept for the
// minute.
func ExampleSemaphore_rateLimit() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	calls := client.Semaphore("myapp:calls:geocoder", 2)
	for range 3 {
		permit, err := calls.TryLock(ctx) // Lock waits for the next permit instead
		if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
			fmt.Println("too many calls; try again in", held.TTL.Round(time.Minute))
			continue
		}
		exitOn(err)
		exitOn(permit.UnlockAfter(ctx, time.Minute))
		fmt.Println("calling")
	}
	// Output:
	// calling
	// calling
	// too many calls; try again in 1m0s
}
