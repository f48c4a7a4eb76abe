package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncClient is redsync with its default expiry, delays and tries.
type redsyncClient struct {
	clients []*redis.Client
	sync    *redsync.Redsync
}

func openRedsync(addrs []string, _ int) (client, error) {
	c := &redsyncClient{clients: plainClients(addrs)}
	pools := make([]redsyncpool.Pool, len(c.clients))
	for i, rdb := range c.clients {
		pools[i] = goredis.NewPool(rdb)
	}
	c.sync = redsync.New(pools...)
	return c, nil
}

// lock calls redsync again when its tries are used up: its contenders do not give up either.
func (c *redsyncClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		unlock, err := c.once(ctx, name)
		if err == nil {
			return unlock, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// once gives up when redsync does.
func (c *redsyncClient) once(ctx context.Context, name string) (func(context.Context) error, error) {
	m := c.sync.NewMutex(name)
	return unlockOf(m), m.LockContext(ctx)
}

func (c *redsyncClient) try(ctx context.Context, name string) (func(context.Context) error, error) {
	m := c.sync.NewMutex(name)
	return unlockOf(m), m.TryLockContext(ctx)
}

func unlockOf(m *redsync.Mutex) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		return err
	}
}

func (c *redsyncClient) close() error { return closeClients(c.clients) }
