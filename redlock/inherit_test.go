package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func ran(servers []*embedded.Server, script string) (n int) {
	for _, s := range servers {
		n += s.Ran(script)
	}
	return n
}

func TestALockIsHandedOverWithoutAnotherAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		warm(t, clients[1])
		got := locktest.Waiter(t, clients[1].Mutex("x"))
		attempts := ran(servers, "acquire")
		locktest.MustUnlock(t, holder)
		lease := <-got
		if n := ran(servers, "acquire") - attempts; n != 0 {
			t.Errorf("%d attempts after Unlock, want none", n)
		}
		if lease.Token() <= holder.Token() {
			t.Errorf("token %d after %d", lease.Token(), holder.Token())
		}
		left := time.Until(lease.ValidUntil())
		if left <= 0 || left > 1800*time.Millisecond {
			t.Errorf("valid for %v, want no more than what was handed over", left)
		}
		time.Sleep(60 * time.Millisecond)
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v a little later, want it renewed for the whole TTL", left)
		}
		locktest.HoldsAll(t, servers, lease)
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

func TestWithoutRenewalNothingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _ := locktest.Fleet(t, 2, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		got := locktest.Waiter(t, clients[1].Mutex("x", quorumlock.WithoutRenewal()))
		locktest.MustUnlock(t, holder)
		lease := <-got
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v, want the whole TTL", left)
		}
		locktest.MustUnlock(t, lease)
	})
}

// A waiter that dies as the lock is handed to it keeps the next one waiting for as long as it was handed over.
func TestALockThatWasHandedToADeadWaiterGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		through := func() ([]*embedded.Server, *redlock.Client) {
			paths, nodes := locktest.Paths(t, servers)
			c, err := redlock.New(nodes)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return paths, c
		}
		_, first := through()
		dying, second := through()
		_, third := through()
		holder := locktest.MustLock(t, first.Mutex("x"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if lease, err := second.Mutex("x").Lock(ctx); err == nil {
				t.Errorf("the dead one has got %v", lease)
			}
		})
		time.Sleep(20 * time.Millisecond)
		got := locktest.Waiter(t, third.Mutex("x"))
		for _, p := range dying {
			p.Kill()
		}
		start := time.Now()
		locktest.MustUnlock(t, holder)
		lease := <-got
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("it took %v, want the 1.8 s of the dead waiter and no more than 2 s", d)
		}
		locktest.MustUnlock(t, lease)
		cancel()
		wg.Wait()
		for _, p := range dying {
			p.Restart(true)
		}
	})
}

// A server with two addresses hands over once, and renews for one node.
func TestTwoAddressesOfOneServerHandOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		client := func() *redlock.Client {
			var nodes []*node.Node
			for _, s := range []*embedded.Server{servers[0], servers[1], servers[0]} {
				n, err := s.Node(node.WithName(string(rune('a' + len(nodes)))))
				if err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, n)
			}
			c, err := redlock.New(nodes)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		first, second := client(), client()
		holder := locktest.MustLock(t, first.Mutex("x"))
		got := locktest.Waiter(t, second.Mutex("x"))
		servers[1].Stall()
		go holder.Unlock(context.Background()) //nolint:errcheck // one server of three nodes does not confirm
		time.Sleep(100 * time.Millisecond)
		select {
		case <-got:
			t.Fatal("one server has handed over for two nodes")
		default:
		}
		servers[1].Resume()
		locktest.MustUnlock(t, <-got)

		holder = locktest.MustLock(t, first.Mutex("y"))
		got = locktest.Waiter(t, second.Mutex("y"))
		locktest.MustUnlock(t, holder)
		lease := <-got
		time.Sleep(time.Minute)
		if lease.Context().Err() != nil {
			t.Fatal("lost with both servers healthy")
		}
		servers[1].Kill()
		time.Sleep(quorumlock.DefaultTTL)
		if !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
			t.Error("the lease goes on with one server of three nodes")
		}
	})
}

func TestAMultiLockIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		both := func(c *redlock.Client) quorumlock.Locker {
			m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		holder := locktest.MustLock(t, both(clients[0]))
		got := locktest.Waiter(t, both(clients[1]))
		attempts := ran(servers, "acquire")
		locktest.MustUnlock(t, holder)
		lease := <-got
		// A subscription that is confirmed as the lock is handed over may cost an attempt more: six scripts.
		if n := ran(servers, "acquire") - attempts; n > 6 {
			t.Errorf("%d acquires after Unlock, want none, or those of one attempt", n)
		}
		time.Sleep(time.Minute)
		locktest.Held(t, lease)
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

// One node hands over late: the lease has it, too, and needs it when another goes.
func TestANodeThatHandsOverLateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		got := locktest.Waiter(t, clients[1].Mutex("x"))
		servers[2].Delay(5 * time.Millisecond)
		locktest.MustUnlock(t, holder)
		lease := <-got
		time.Sleep(7 * time.Millisecond)
		servers[0].Kill()
		time.Sleep(time.Minute)
		locktest.Held(t, lease)
		locktest.MustUnlock(t, lease)
	})
}

// The members of a MultiLock may have nodes of their own for the same servers. Then the client hears every
// message twice, once for each node, and long after: the second time changes nothing.
func TestAHandoffThatIsHeardTwiceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 4, 3)
		for i, s := range servers {
			s.Delay(time.Duration(i+1) * 200 * time.Microsecond) // so that the copies come before the quorum has spoken
		}
		both, err := multilock.New([]quorumlock.Locker{clients[1].Mutex("A"), clients[2].Mutex("B")})
		if err != nil {
			t.Fatal(err)
		}
		check := func(l quorumlock.Locker, names ...string) {
			var holds []*quorumlock.Lease
			for _, name := range names {
				holds = append(holds, locktest.MustLock(t, clients[0].Mutex(name)))
			}
			got := locktest.Waiter(t, l)
			for _, h := range holds {
				go locktest.MustUnlock(t, h)
			}
			lease := <-got
			for _, name := range names {
				locktest.Refused(t, clients[3].Mutex(name))
			}
			time.Sleep(time.Minute)
			locktest.Held(t, lease)
			locktest.MustUnlock(t, lease)
		}
		for range 5 {
			check(both, "A", "B")
			check(clients[1].Mutex("x"), "x")
		}
		locktest.NoLocks(t, servers)
	})
}

// A lock is handed over for a short time. Nodes that stall just then do not cost the lease.
func TestWhatWasHandedOverOutlivesAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		for phase := time.Duration(0); phase < 600*time.Millisecond; phase += 100 * time.Millisecond {
			holder := locktest.MustLock(t, clients[0].Mutex("x"))
			got := locktest.Waiter(t, clients[1].Mutex("x"))
			time.Sleep(phase)
			locktest.MustUnlock(t, holder)
			lease := <-got
			for _, s := range servers {
				s.Stall()
			}
			time.Sleep(quorumlock.DefaultTTL / 20)
			for _, s := range servers {
				s.Resume()
			}
			time.Sleep(time.Minute)
			locktest.Held(t, lease)
			locktest.MustUnlock(t, lease)
		}
	})
}

// Two waiters are handed a part each, where all nodes are needed. They do not sleep on it: the lower ticket gets all.
func TestPartsThatAreHandedToTwoComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := overtaking(t, 3, 3, quorumlock.WithQuorum(3))
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		warm(t, clients[1])
		late := make(chan struct{})
		for _, s := range servers[:2] { // where the first attempt of the one who comes first is late
			blocks(s, "acquire", 1, late)
		}
		lower := locktest.Waiter(t, clients[1].Mutex("x"))
		higher := locktest.Waiter(t, clients[2].Mutex("x"))
		start := time.Now()
		locktest.MustUnlock(t, holder)
		synctest.Wait() // each has a part
		close(late)
		select {
		case lease := <-lower:
			locktest.MustUnlock(t, lease)
			locktest.MustUnlock(t, <-higher)
		case lease := <-higher:
			t.Error("the one with the higher ticket had it first")
			locktest.MustUnlock(t, lease)
			locktest.MustUnlock(t, <-lower)
		}
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("both had the lock after %v: they slept on their parts", d)
		}
		locktest.NoLocks(t, servers)
	})
}

// If a handoff is heard so late that the first renewal might come too late, another attempt takes it over, for the whole
// TTL.
func TestAHandoffOfWhichTooLittleIsLeftIsNotTaken(t *testing.T) {
	for late, want := range map[time.Duration]bool{0: true, 15 * time.Millisecond: false} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients, servers := locktest.Fleet(t, 2, 3, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(485*time.Millisecond))
				holder := locktest.MustLock(t, clients[0].Mutex("x"))
				warm(t, clients[1])
				got := locktest.Waiter(t, clients[1].Mutex("x"))
				time.Sleep(460 * time.Millisecond) // 480 ms since it came; a node hands over for half a second
				for _, s := range servers {
					s.Delay(late)
				}
				locktest.MustUnlock(t, holder)
				lease := <-got
				if _, handed, _ := strings.Cut(string(lease.Owner()), "/"); (handed != "") != want {
					t.Errorf("held by %s", lease.Owner())
				}
				locktest.MustUnlock(t, lease)
				locktest.NoLocks(t, servers)
			})
		})
	}
}

// An attempt whose answer was not waited for may join a queue where the lock has been handed to the successor of a later
// attempt.
func TestAHandoffLeavesTheQueueThatAnEarlierAttemptJoinedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := overtaking(t, 2, 3, quorumlock.WithNodeTimeout(50*time.Millisecond))
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		warm(t, clients[1])
		synctest.Wait()
		joins, releases := make(chan struct{}), make(chan struct{})
		blocks(servers[2], "acquire", 1, joins)
		blocks(servers[0], "release", 1, releases)
		blocks(servers[1], "release", 1, releases)
		got := locktest.Waiter(t, clients[1].Mutex("x"))
		time.Sleep(650 * time.Millisecond) // the second attempt has joined all lines
		unlocked := make(chan error)
		go func() { unlocked <- holder.Unlock(t.Context()) }()
		synctest.Wait() // the third node has handed over
		close(joins)
		synctest.Wait()
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("control: the first attempt has not joined the queue")
		}
		close(releases)
		lease := <-got
		if err := <-unlocked; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("the holder is queued")
		}
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}
