package integration

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// A client waits for its server for ever, and ignores the context. Yet every call on the node has a
// limit.
func TestCallsAtAFrozenServerEndThoughTheClientNeverGivesUp(t *testing.T) {
	needServers(t)
	const limit, ttl = 200 * time.Millisecond, 3 * time.Second
	s := five[0]
	t.Cleanup(func() { noLocks(t, five[:1], patience) })
	own := redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: -1, WriteTimeout: -1, PoolSize: 30})
	t.Cleanup(func() { must(t, own.Close()) })
	n, err := node.New(own, node.WithTimeout(limit))
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })

	opts := []quorumlock.Option{quorumlock.WithTTL(ttl), quorumlock.WithNodeTimeout(limit)}
	extended, err := n.Mutex("extended", opts...).Lock(t.Context())
	must(t, err)
	unlocked, err := n.Mutex("unlocked", opts...).Lock(t.Context())
	must(t, err)
	owner := quorumlock.NewOwner()
	calls := map[string]func(context.Context) error{
		"TryLock": func(ctx context.Context) error {
			_, err := n.Mutex("new", opts...).TryLock(ctx)
			return err
		},
		"Lock": func(ctx context.Context) error {
			_, err := n.Mutex("new", append(opts, quorumlock.WithWait(limit))...).Lock(ctx)
			return err
		},
		"Extend": extended.Extend,
		"Unlock": unlocked.Unlock,
		"Acquire": func(ctx context.Context) error {
			_, err := n.Acquire(ctx, "primitive", owner, ttl, 1)
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := n.Renew(ctx, "primitive", owner, ttl)
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := n.Release(ctx, "primitive", owner, 1)
			return err
		},
		"ForceRelease": func(ctx context.Context) error {
			_, err := transport.Of(n).ForceRelease(ctx, "primitive")
			return err
		},
		"Inspect": func(ctx context.Context) error {
			_, err := transport.Of(n).Inspect(ctx, "primitive")
			return err
		},
	}

	s.pause(t)
	type end struct {
		call string
		err  error
	}
	ends := make(chan end, len(calls))
	for name, call := range calls {
		go func() { ends <- end{name, call(context.Background())} }()
	}
	// Until then the server is silent.
	giveUp := time.After(patience)
	for range len(calls) {
		select {
		case e := <-ends:
			if e.err == nil {
				t.Errorf("%s succeeded at a frozen server", e.call)
			}
			delete(calls, e.call)
		case <-giveUp:
			for name := range calls {
				t.Errorf("%s waits for the frozen server", name)
			}
			return
		}
	}
	told(t, extended)
	s.resume(t)
}
