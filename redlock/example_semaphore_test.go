package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

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

// several takes n permits of a pool. The gate is a Mutex that lets one caller at a time collect
// them: two callers with one permit each would deadlock. The work must use held: it is done when
// any permit is lost. unlock releases the permits.
func several(ctx context.Context, gate, pool quorumlock.Locker, n int) (held context.Context, unlock func() error, err error) {
	var permits []*quorumlock.Lease
	held, cancel := context.WithCancel(ctx) // the permits' contexts descend from it
	unlock = func() error {
		defer cancel()
		var errs []error
		for _, p := range permits {
			errs = append(errs, p.Unlock(ctx))
		}
		return errors.Join(errs...)
	}
	err = quorumlock.Do(ctx, gate, func(collecting context.Context) error {
		stop := context.AfterFunc(collecting, cancel) // the gate is lost
		for len(permits) < n {
			// Not with collecting, which ends when the gate is unlocked; nor with the context of
			// another permit, which would enter that slot, or be refused WithoutReentry.
			p, err := pool.Lock(held)
			if err != nil {
				return err
			}
			permits = append(permits, p)
			context.AfterFunc(p.Context(), cancel)
		}
		if !stop() {
			return context.Cause(collecting)
		}
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, unlock())
	}
	return held, unlock, nil
}

// Ten jobs need two of three permits each. The first at the gate gets them first.
func ExampleSemaphore_several() {
	client, stop := connect()
	defer stop()

	gate := client.Mutex("myapp:gpus:gate")
	pool := client.Semaphore("myapp:gpus", 3, quorumlock.WithoutReentry())
	var g errgroup.Group
	var done atomic.Int64
	for range 10 {
		g.Go(func() error {
			held, unlock, err := several(context.Background(), gate, pool, 2)
			if err != nil {
				return err
			}
			if held.Err() == nil { // the work watches held
				done.Add(1)
			}
			return unlock()
		})
	}
	fmt.Println(g.Wait(), done.Load())
	// Output:
	// <nil> 10
}
