package fanout

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
)

type client struct{}

func (client) Mutex(name string) quorumlock.Locker { return nil }

func inDo(ctx context.Context, c client) error {
	m := c.Mutex("x")
	return quorumlock.Do(ctx, m, func(ctx context.Context) error {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_ = quorumlock.Do(ctx, m, nothing) // want `this goroutine enters the hold that its context has`
			})
		}
		all.Wait()
		return nil
	})
}

func byHand(ctx context.Context, c client, done chan<- error) error {
	lease, err := c.Mutex("x").Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	limited, cancel := context.WithTimeout(lease.Context(), time.Second)
	defer cancel()
	go func() {
		inner, err := c.Mutex("x").TryLock(limited) // want `this goroutine enters the hold that its context has`
		if err == nil {
			err = inner.Unlock(limited)
		}
		done <- err
	}()
	go quorumlock.Do(lease.Context(), c.Mutex("x"), nothing) // want `this goroutine enters the hold`
	return nil
}

func nothing(context.Context) error { return nil }

// From here on all is well.

func others(ctx context.Context, c client, name string) error {
	m, other := c.Mutex("x"), c.Mutex("y")
	return quorumlock.Do(ctx, m, func(held context.Context) error {
		go quorumlock.Do(held, other, nothing)                      // another lock
		go quorumlock.Do(held, c.Mutex(name), nothing)              // perhaps another
		go quorumlock.Do(context.WithoutCancel(ctx), m, nothing)    // not under the lease
		return quorumlock.Do(held, m, func(context.Context) error { // no goroutine
			return nil
		})
	})
}
