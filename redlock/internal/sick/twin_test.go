package sick

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// A server with two addresses has one vote, for every kind of grant, and even if one of the
// addresses missed messages. With both servers the lease goes on, and with the one it ends. The
// next call's error names the reason.
func TestTwoAddressesOfOneServerCountOnce(t *testing.T) {
	loseReplies := func(n int) func(p *embedded.Server) { return func(p *embedded.Server) { p.LoseReplies(n) } }
	loseMessages := func(p *embedded.Server) { p.LoseMessages(true) }
	nothing := func(*embedded.Server) {}
	mutex := func(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") }
	reader := func(c *redlock.Client) quorumlock.Locker { return c.RWMutex("x").RLocker() }
	for _, tt := range []struct {
		name       string
		kind       func(c *redlock.Client) quorumlock.Locker
		handed     bool
		slower, at int  // addresses: which of the two is slower, and which misses something
		then       bool // when the lock was granted or handed over, and not before
		miss       func(p *embedded.Server)
	}{
		{"acquired", mutex, false, 0, 0, false, nothing},
		{"handed over", mutex, true, 2, 0, false, nothing},
		{"a reader", reader, false, 0, 0, false, nothing},
		{"the first grant is not heard", mutex, false, 0, 0, false, loseReplies(1)},
		{"the second grant is not heard", mutex, false, 0, 2, false, loseReplies(1)},
		{"the second grant of a reader is not heard", reader, false, 0, 2, false, loseReplies(1)},
		{"the first handoff is not heard", mutex, true, 2, 0, false, loseMessages},
		{"the second handoff is not heard", mutex, true, 0, 2, false, loseMessages},
		{"renewals by the first are not heard", mutex, true, 0, 0, true, loseReplies(3)},
		{"renewals by the second are not heard", mutex, false, 2, 2, true, loseReplies(3)},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 2)
			first, _ := locktest.Twin(t, servers)
			second, paths := locktest.Twin(t, servers)
			locktest.Warm(t, first)
			locktest.Warm(t, second)
			locktest.Arrive(paths[tt.slower], time.Millisecond)
			if !tt.handed && !tt.then {
				tt.miss(paths[tt.at])
			}
			var holder *quorumlock.Lease
			if tt.handed {
				holder = locktest.Lock(t, tt.kind(first))
			}
			got := locktest.Waiter(t, tt.kind(second))
			if tt.handed {
				if !tt.then {
					tt.miss(paths[tt.at])
				}
				locktest.MustUnlock(t, holder)
			}
			lease := <-got
			if tt.then {
				tt.miss(paths[tt.at])
			}
			time.Sleep(20 * time.Millisecond)
			locktest.Each(paths, func(p *embedded.Server) { p.LoseMessages(false) })
			time.Sleep(time.Minute)
			locktest.Held(t, lease)
			servers[1].Kill()
			time.Sleep(2 * quorumlock.DefaultTTL)
			if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
				t.Errorf("the lease goes on with one server of three nodes: %v", cause)
			}
			_ = lease.Unlock(t.Context()) // it is lost
			_, err := tt.kind(second).TryLock(t.Context())
			if few, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || few.Granted > 1 || !strings.Contains(err.Error(), "same server") {
				t.Errorf("TryLock at one server of three nodes: %v, want a QuorumError that says so", err)
			}
			servers[1].Restart(true)
			time.Sleep(quorumlock.DefaultTTL)
			locktest.NoLocks(t, servers)
		})
	}
}

// A server hands over once. Its two addresses are no quorum for a handoff, nor for a latch.
func TestTwoAddressesOfOneServerAreNoQuorum(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		first, _ := locktest.Twin(t, servers)
		second, _ := locktest.Twin(t, servers)
		holder := locktest.Lock(t, first.Mutex("x"))
		got := locktest.Waiter(t, second.Mutex("x"))
		locktest.Done(t, first.Latch("latch", 2), "a")
		servers[1].Stall()
		go holder.Unlock(context.Background()) //nolint:errcheck // one server of three nodes does not confirm
		if locktest.Has(got) {
			t.Fatal("one server has handed over for two nodes")
		}
		for i, latch := range []*redlock.Latch{first.Latch("latch", 2), first.Latch("another", 2)} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := latch.Done(ctx, fmt.Sprint(i)); err == nil || !strings.Contains(err.Error(), "same server") {
				t.Errorf("Done of latch %d at one server of three nodes: %v, want an error that says so", i, err)
			}
		}
		servers[1].Resume()
		locktest.MustUnlock(t, <-got)
	})
}
