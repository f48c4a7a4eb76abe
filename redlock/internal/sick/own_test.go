package sick

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/node"
)

// Through clients of the user's own, the attempts of a local queue go one after the other. They do
// not pile up at a slow node.
func TestAttemptsDoNotPileUpAtASlowNode(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		var nodes []*node.Node
		for i, s := range servers {
			own := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("10.0.0.%d:6379", i+1), Dialer: s.DialContext, ContextTimeoutEnabled: true, PoolSize: 100,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
			n := node.New(own)
			t.Cleanup(func() {
				if err := errors.Join(n.Close(), own.Close()); err != nil {
					t.Error(err)
				}
			})
			nodes = append(nodes, n)
		}
		var down atomic.Int32
		observer := locktest.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.NodeDown {
				down.Add(1)
			}
		})
		lock := locktest.Of(t, nodes, quorumlock.WithObserver(observer)).Mutex("x")
		for i, trip := range []time.Duration{time.Millisecond, time.Millisecond, 30 * time.Millisecond} {
			servers[i].Delay(trip / 2)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 200 {
					locktest.MustUnlock(t, locktest.MustLock(t, lock))
				}
			})
		}
		callers.Wait()
		if n := down.Load(); n > 0 {
			t.Errorf("nodes were down %d times", n)
		}
	})
}
