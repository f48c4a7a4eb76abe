package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockClient is rueidislock on the first server, since it is no lock over independent nodes:
// it keeps all its keys on one Redis or one cluster, and takes a majority of 3 of 5 keys there.
type rueidislockClient struct{ locker rueidislock.Locker }

func openRueidislock(addrs []string, _ int) (client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs[:1]},
		KeyMajority:  3,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockClient{l}, nil
}

func (c *rueidislockClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	_, cancel, err := c.locker.WithContext(ctx, name)
	return unlockBy(cancel), err
}

func (c *rueidislockClient) try(ctx context.Context, name string) (func(context.Context) error, error) {
	_, cancel, err := c.locker.TryWithContext(ctx, name)
	return unlockBy(cancel), err
}

func unlockBy(cancel context.CancelFunc) func(context.Context) error {
	return func(context.Context) error {
		cancel() // returns when the keys are deleted
		return nil
	}
}

func (c *rueidislockClient) close() error {
	c.locker.Close()
	return nil
}
