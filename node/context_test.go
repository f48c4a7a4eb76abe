package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// The hooks of a client given to New see the values of the waiting caller's ctx. In calls without a
// waiting caller, they see none.
func TestHooksSeeTheCallersContext(t *testing.T) {
	type caller struct{} // the key of a value
	for name, use := range map[string]func(ctx context.Context, n *node.Node, c *redlock.Client, held *quorumlock.Lease) error{
		"Lock": func(ctx context.Context, n *node.Node, _ *redlock.Client, _ *quorumlock.Lease) error {
			return testkit.Err(n.Mutex("free").Lock(ctx))
		},
		"a Lock that waits": func(ctx context.Context, _ *node.Node, c *redlock.Client, held *quorumlock.Lease) error {
			time.AfterFunc(time.Second, func() { _ = held.Unlock(ctx) })
			return testkit.Err(c.RWMutex("held").Lock(ctx))
		},
		"TryLock": func(ctx context.Context, n *node.Node, _ *redlock.Client, _ *quorumlock.Lease) error {
			return testkit.Err(n.Mutex("free").TryLock(ctx))
		},
		"Extend": func(ctx context.Context, _ *node.Node, _ *redlock.Client, held *quorumlock.Lease) error {
			return held.Extend(ctx)
		},
		"Downgrade": func(ctx context.Context, _ *node.Node, c *redlock.Client, held *quorumlock.Lease) error {
			return c.RWMutex("held").Downgrade(ctx, held)
		},
		"Unlock": func(ctx context.Context, _ *node.Node, _ *redlock.Client, held *quorumlock.Lease) error {
			return held.Unlock(ctx)
		},
		"Done": func(ctx context.Context, _ *node.Node, c *redlock.Client, _ *quorumlock.Lease) error {
			return c.Latch("latch", 2).Done(ctx, "a")
		},
		"Inspect": func(ctx context.Context, n *node.Node, _ *redlock.Client, _ *quorumlock.Lease) error {
			return testkit.Err(n.Inspect(ctx, "held"))
		},
		"<nil>": func(context.Context, *node.Node, *redlock.Client, *quorumlock.Lease) error { // the watchdog renews
			settle(time.Minute)
			return nil
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext})
			var mu sync.Mutex
			var callers []string // of scripts, in their order
			client.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
				for _, cmd := range cmds {
					if isScript(cmd) {
						mu.Lock()
						callers = append(callers, fmt.Sprint(ctx.Value(caller{})))
						mu.Unlock()
					}
				}
				return next()
			}))
			n := over(t, client)
			c := testkit.Of(t, []*node.Node{n})
			held := testkit.Lock(t, c.RWMutex("held"))
			mu.Lock()
			callers = nil
			mu.Unlock()
			ctx := context.WithValue(t.Context(), caller{}, name)
			testkit.Must(t, use(ctx, n, c, held), "%s", name)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Compact(callers); !slices.Equal(got, []string{name}) {
				t.Errorf("the calls are those of %q, want %q", got, name)
			}
		})
	}
}
