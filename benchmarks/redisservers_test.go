package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestServersSettleWhenTheClientsHaveGone(t *testing.T) {
	f := needRedis(t, inMemory)
	settle := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return f.redis.settle(ctx)
	}
	worker := plainClients(f.redis.addrs[nodes-1:])
	if err := worker[0].Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := settle(100 * time.Millisecond); err == nil {
		t.Error("they settle beside a client")
	}
	if err := errors.Join(closeClients(worker), settle(time.Minute)); err != nil {
		t.Error(err)
	}
}
