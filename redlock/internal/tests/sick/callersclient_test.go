package sick

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// ownNodes returns a node for each server, over a client of the user's own. Each client has so many
// connections that no call waits for one: see [testkit.RoomyPaths].
func ownNodes(t *testing.T, servers []*embedded.Server) []*node.Node {
	var nodes []*node.Node
	for i, s := range servers {
		own := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("10.0.0.%d:6379", i+1), Dialer: s.DialContext, ContextTimeoutEnabled: true, PoolSize: 4096,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		n, err := node.New(own)
		testkit.Must(t, err, "New")
		t.Cleanup(func() {
			if err := errors.Join(n.Close(), own.Close()); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
	}
	return nodes
}

// Through clients of the user's own, the attempts of a local queue go one after the other. They do
// not pile up at a slow node.
func TestAttemptsDoNotPileUpAtASlowNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		var events testkit.Events
		lock := testkit.Of(t, ownNodes(t, servers), quorumlock.WithObserver(&events)).Mutex("x")
		for i, trip := range []time.Duration{time.Millisecond, time.Millisecond, 30 * time.Millisecond} {
			servers[i].Delay(trip / 2)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 200 {
					testkit.MustUnlock(t, testkit.MustLock(t, lock))
				}
			})
		}
		callers.Wait()
		testkit.Equal(t, events.Of(quorumlock.EventNodeDown), 0, "times that nodes were down")
	})
}

// The attempts of clients that share nodes do not wait for each other, nor do those of MultiLocks
// that share a member. One after the other, many of them would reach their nodes too late.
func TestAttemptsOfDifferentLocalQueuesDoNotWaitForEachOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const trip, connecting = 20 * time.Millisecond, 3
		servers, _ := testkit.Nodes(t, 3)
		nodes := ownNodes(t, servers)
		observer := testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventNodeAsked && (e.Err != nil || e.Took > (connecting+2)*trip) { // 2: the script may be unknown
				t.Errorf("%s took %v: %v", e.Node, e.Took, e.Err)
			}
		})
		var locks []quorumlock.Locker
		for i := range 20 {
			c := testkit.Of(t, nodes, quorumlock.WithObserver(observer), quorumlock.WithNodeTimeout(2*time.Second))
			locks = append(locks, c.Mutex("x"), testkit.Multi(t, c.Mutex("x"), c.Mutex(fmt.Sprint(i))))
		}
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(trip / 2) })
		var callers sync.WaitGroup
		for _, l := range locks {
			callers.Go(func() { testkit.MustUnlock(t, testkit.MustLock(t, l)) })
		}
		callers.Wait()
	})
}
