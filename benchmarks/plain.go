package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

// The scripts of a lock that has fencing tokens and re-entry, but no queue.
//
//go:embed plain/acquire.lua
var plainAcquire string

//go:embed plain/release.lua
var plainRelease string

var (
	acquireScript = redis.NewScript(plainAcquire)
	releaseScript = redis.NewScript(plainRelease)
)

// plainClient is the least cost of a lock: an EVALSHA at all nodes in parallel to acquire, and one
// to release, both waiting for all. It has no deadlines and no renewal, and ignores failures.
type plainClient struct{ clients []*redis.Client }

func openPlain(addrs []string, _ int) (client, error) { return &plainClient{plainClients(addrs)}, nil }

// plainClients returns go-redis clients with default options.
func plainClients(addrs []string) []*redis.Client {
	clients := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
	}
	return clients
}

func closeClients(clients []*redis.Client) error {
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (c *plainClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	owner := string(quorumlock.NewOwner())
	keys := []string{name, "token:{" + name + "}"}
	err := c.all(func(rdb *redis.Client) error {
		v, err := acquireScript.Run(ctx, rdb, keys, owner, 10_000, 1, time.Now().UnixMicro()).Int64Slice()
		if err == nil && v[0] != 1 {
			return fmt.Errorf("%q is held already", name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return c.all(func(rdb *redis.Client) error {
			return releaseScript.Run(ctx, rdb, keys[:1], owner, 1, "channel:{"+name+"}").Err()
		})
	}, nil
}

// all runs f for every node at once and waits for all of them.
func (c *plainClient) all(f func(*redis.Client) error) error {
	errs := make(chan error, len(c.clients))
	for _, rdb := range c.clients {
		go func() { errs <- f(rdb) }()
	}
	var err error
	for range c.clients {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (c *plainClient) close() error { return closeClients(c.clients) }
