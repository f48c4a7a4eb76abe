package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestTwoAddressesOfOneServerCountOnceInAttemptsAndRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 2)
		twin, err := servers[0].Node(node.WithName("twin"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := redlock.New(append(nodes, twin))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })

		lease, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if lease.Context().Err() != nil {
			t.Fatal("lost with both servers healthy")
		}
		servers[1].Kill()
		time.Sleep(quorumlock.DefaultTTL)
		if !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
			t.Error("the lease goes on with one server of three nodes")
		}
		_, err = c.Mutex("y").TryLock(t.Context())
		e, ok := errors.AsType[*quorumlock.QuorumError](err)
		if !ok || e.Granted > 1 || !strings.Contains(err.Error(), "same server") {
			t.Errorf("%v, want one vote at most, since the attempt may be lost before it comes, and to be told of the same server", err)
		}
	})
}

// A writer is refused at the second address of a server by what it has got at the first. Readers refuse nobody who reads, so
// the server itself counts once.
func TestTwoAddressesOfOneServerCountOnceForAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 2)
		twin, err := servers[0].Node(node.WithName("twin"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := redlock.New(append(nodes, twin))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })

		first := rlock(t, c.RWMutex("x"))
		second := rlock(t, c.RWMutex("x"))
		time.Sleep(time.Minute)
		locktest.Held(t, first)
		servers[1].Kill()
		time.Sleep(quorumlock.DefaultTTL)
		for _, l := range []*quorumlock.Lease{first, second} {
			if !errors.Is(context.Cause(l.Context()), quorumlock.ErrLost) {
				t.Error("the lease goes on with one server of three nodes")
			}
		}
		if _, err := c.RWMutex("x").TryRLock(t.Context()); err == nil {
			t.Error("a reader got the lock from one server of three nodes")
		}
	})
}
