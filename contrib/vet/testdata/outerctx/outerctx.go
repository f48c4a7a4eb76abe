package outerctx

import (
	"context"
	"log"
	"time"

	"github.com/quorumlock/quorumlock"
)

func charge(context.Context) error { return nil }

func do(ctx context.Context, m quorumlock.Locker) error {
	return quorumlock.Do(ctx, m, func(held context.Context) error {
		if err := charge(held); err != nil {
			return err
		}
		return charge(ctx) // want `ctx is not cancelled when the lock is lost: use the context that the function gets from Do`
	})
}

func once(ctx context.Context, m quorumlock.Locker) (bool, error) {
	return quorumlock.Once(ctx, m, time.Minute, func(context.Context) error {
		return charge(ctx) // want `the context that the function gets from Once`
	})
}

func derived(ctx context.Context, m quorumlock.Locker) error {
	return quorumlock.Do(ctx, m, func(held context.Context) error {
		sub, cancel := context.WithTimeout(ctx, time.Second) // want `the context that the function gets from Do`
		defer cancel()
		return charge(sub)
	})
}

// From here on all is well.

func shadowed(ctx context.Context, m quorumlock.Locker) error {
	return quorumlock.Do(ctx, m, func(ctx context.Context) error { return charge(ctx) })
}

func asked(ctx context.Context, m quorumlock.Locker) error {
	return quorumlock.Do(ctx, m, func(held context.Context) error {
		err := charge(held)
		if ctx.Err() == nil && context.Cause(ctx) == nil {
			log.Println("the lock was lost")
		}
		return err
	})
}

func detached(ctx context.Context, m quorumlock.Locker) error {
	return quorumlock.Do(ctx, m, func(held context.Context) error {
		return charge(context.WithoutCancel(ctx))
	})
}

func ofSomebodyElse(ctx context.Context, m quorumlock.Locker) error {
	each := func(_ context.Context, f func(context.Context) error) error { return f(context.Background()) }
	return each(ctx, func(context.Context) error { return charge(ctx) })
}
