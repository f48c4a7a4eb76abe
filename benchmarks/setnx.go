package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The yardsticks of a crowd: what a majority of keys costs.
const (
	setnxName    = "plain SETNX"
	setnxDelName = "plain SETNX and DEL"
)

// yardsticks are no locks.
var yardsticks = []design{
	{setnxName, onRedis, nodes, []string{"set", "setnx"}, openSetnx(false)},
	{setnxDelName, onRedis, nodes, []string{"set", "setnx", "del"}, openSetnx(true)},
}

// setnxClient sets a key at each node, one after the other. There is no owner, no queue and no
// renewal.
type setnxClient struct {
	clients  []*redis.Client
	releases bool // with DEL, at each node
}

func openSetnx(releases bool) func([]string, int) (client, error) {
	return func(addrs []string, _ int) (client, error) {
		c := &setnxClient{releases: releases}
		for _, addr := range addrs {
			// However many wait for a connection, none gives up: it is a measure for others.
			c.clients = append(c.clients, redis.NewClient(&redis.Options{Addr: addr, PoolTimeout: time.Minute}))
		}
		return c, nil
	}
}

func (c *setnxClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	set := 0
	var errs error
	for _, rdb := range c.clients {
		ok, err := rdb.SetNX(ctx, name, "held", time.Minute).Result()
		if ok {
			set++
		}
		errs = errors.Join(errs, err)
	}
	if set <= len(c.clients)/2 {
		return nil, errors.Join(fmt.Errorf("%d of %d keys were set", set, len(c.clients)), errs)
	}
	return func(ctx context.Context) (err error) {
		if c.releases {
			for _, rdb := range c.clients {
				err = errors.Join(err, rdb.Del(ctx, name).Err())
			}
		}
		return err
	}, nil
}

func (c *setnxClient) close() error { return closeClients(c.clients) }
