package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// whose is the key of a value in the ctx of a caller.
type whose struct{}

// callers is a redis.Hook that notes the callers of scripts, in the order of the scripts.
type callers struct {
	mu    sync.Mutex
	asked []string
}

func (*callers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *callers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		h.note(ctx, c)
		return next(ctx, c)
	}
}

func (h *callers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cs []redis.Cmder) error {
		h.note(ctx, cs...)
		return next(ctx, cs)
	}
}

func (h *callers) note(ctx context.Context, cs ...redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range cs {
		if strings.HasPrefix(c.Name(), "eval") {
			h.asked = append(h.asked, fmt.Sprint(ctx.Value(whose{})))
		}
	}
}

// take returns the callers since the last take, each once.
func (h *callers) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := slices.Compact(h.asked)
	h.asked = nil
	return asked
}

// The hooks of a client given to New see the values of the waiting caller's ctx. In calls without a
// waiting caller, they see none.
func TestHooksSeeTheCallersContext(t *testing.T) {
	as := func(t *testing.T, name string) context.Context { return context.WithValue(t.Context(), whose{}, name) }
	locked := func(t *testing.T, l quorumlock.Locker) *quorumlock.Lease {
		lease, err := l.Lock(as(t, "Lock"))
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	for name, use := range map[string]func(t *testing.T, n *node.Node, h *callers) error{
		"Lock": func(t *testing.T, n *node.Node, _ *callers) error {
			_, err := n.Mutex("x").Lock(as(t, "Lock"))
			return err
		},
		"a Lock that waits": func(t *testing.T, n *node.Node, h *callers) error {
			lease := locked(t, n.Mutex("x"))
			h.take()
			ctx := as(t, "a Lock that waits")
			time.AfterFunc(time.Second, func() { _ = lease.Unlock(ctx) })
			_, err := n.Mutex("x").Lock(ctx)
			return err
		},
		"TryLock": func(t *testing.T, n *node.Node, _ *callers) error {
			_, err := n.Mutex("x").TryLock(as(t, "TryLock"))
			return err
		},
		"Extend": func(t *testing.T, n *node.Node, h *callers) error {
			lease := locked(t, n.Mutex("x"))
			h.take()
			return lease.Extend(as(t, "Extend"))
		},
		"Downgrade": func(t *testing.T, n *node.Node, h *callers) error {
			m := n.RWMutex("x")
			lease := locked(t, m)
			h.take()
			return m.Downgrade(as(t, "Downgrade"), lease)
		},
		"Unlock": func(t *testing.T, n *node.Node, h *callers) error {
			lease := locked(t, n.Mutex("x"))
			h.take()
			return lease.Unlock(as(t, "Unlock"))
		},
		"Done": func(t *testing.T, n *node.Node, _ *callers) error {
			return n.Latch("x", 2).Done(as(t, "Done"), "a")
		},
		"Inspect": func(t *testing.T, n *node.Node, _ *callers) error {
			_, err := transport.Of(n).Inspect(as(t, "Inspect"), "x")
			return err
		},
		"<nil>": func(t *testing.T, n *node.Node, h *callers) error { // the watchdog renews
			locked(t, n.Mutex("x"))
			h.take()
			settle(time.Minute)
			return nil
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 1)
			h := &callers{}
			client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext})
			client.AddHook(h)
			n := over(t, client)
			if err := use(t, n, h); err != nil {
				t.Fatal(err)
			}
			if got := h.take(); !slices.Equal(got, []string{name}) {
				t.Errorf("the calls are those of %q, want %q", got, name)
			}
		})
	}
}
