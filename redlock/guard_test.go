package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// guarded is the guard of these tests, for locks with the default TTL. Servers are out for up to two
// seconds more than that, and for the drift.
var guarded = quorumlock.WithRestartGuard(quorumlock.DefaultTTL)

const quarantine = quorumlock.DefaultTTL + 102*time.Millisecond

// longUp lets the servers run for so long that the guard trusts them.
func longUp() { time.Sleep(time.Hour) }

// keepsTwoHolders reports whether b is granted a lock that a holds validly, when two of its three nodes
// restart without data.
func keepsTwoHolders(t *testing.T, opts ...quorumlock.Option) (two bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts = append(opts, quorumlock.WithoutRenewal())
		c, servers := locktest.Client(t, 3, opts...)
		other, _ := locktest.Another(t, servers, opts...)
		longUp()
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Restart(false)
		servers[1].Restart(false)
		var next *quorumlock.Lease
		for next == nil {
			time.Sleep(locktest.Thorough(10*time.Millisecond, 250*time.Millisecond))
			next, _ = other.Mutex("x").TryLock(t.Context())
		}
		two = lease.Context().Err() == nil
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		locktest.Unlock(t, next)
		_ = lease.Unlock(t.Context())
		locktest.Nothing(t, servers)
	})
	return two
}

// The promise holds while no node forgets, with a plain majority: this is what the guard is for.
func TestRestartsWithoutDataMakeTwoHoldersOnlyWithoutTheGuard(t *testing.T) {
	t.Parallel()
	if !keepsTwoHolders(t) {
		t.Error("without the guard: one holder, so this test shows nothing")
	}
	if keepsTwoHolders(t, guarded) {
		t.Error("with the guard: two holders")
	}
}

func TestQuarantinedNodesAreNamedUntilTheyGrantAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, guarded)
		longUp()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("x"))) // connects
		locktest.Each(servers[:3], func(s *embedded.Server) { s.Restart(false) })
		from := time.Now()
		_, _ = c.Inspect(t.Context(), "x") // finds the connections dead
		_, err := c.Mutex("x").TryLock(t.Context())
		e, ok := errors.AsType[*quorumlock.QuorumError](err)
		if !ok || !errors.Is(err, quorumlock.ErrQuarantined) || errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("%v, want a *QuorumError with ErrQuarantined", err)
		}
		for _, n := range e.Nodes {
			if !errors.Is(n, quorumlock.ErrQuarantined) || !strings.Contains(n.Error(), "again in ") {
				t.Errorf("%v, want ErrQuarantined and for how long", n)
			}
		}
		lease := locktest.Lock(t, c.Mutex("x")) // waits
		if out := time.Since(from); out < quarantine || out > quarantine+2200*time.Millisecond {
			t.Errorf("granted after %v, want %v and some", out, quarantine)
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// Where refusals alone decide, the lock is held, and a waiter gets it at its release.
func TestMinorityInQuarantineCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, guarded)
		other, _ := locktest.Another(t, servers, guarded)
		longUp()
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Each(servers[:2], func(s *embedded.Server) { s.Restart(false) })
		time.Sleep(100 * time.Millisecond)
		locktest.Refused(t, other.Mutex("x"))
		granted := make(chan error)
		go func() {
			next, err := other.Mutex("x").Lock(t.Context())
			granted <- err
			granted <- next.Unlock(t.Context())
		}()
		time.Sleep(time.Second)
		released := time.Now()
		locktest.Unlock(t, lease)
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(released); took > 10*time.Millisecond {
			t.Errorf("the handoff took %v", took)
		}
		if err := <-granted; err != nil {
			t.Error(err)
		}
		locktest.Nothing(t, servers)
	})
}

// A waiter may have been queued at a node since before its quarantine.
func TestWinnerLeavesTheQueueOfAQuarantinedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, guarded)
		other, _ := locktest.Another(t, servers, guarded)
		longUp()
		lease := locktest.Lock(t, c.Mutex("x"))
		won := make(chan *quorumlock.Lease)
		go func() {
			next, err := other.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			won <- next
		}()
		time.Sleep(time.Second)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("no line: this test shows nothing")
		}
		servers[2].Promote()
		locktest.Unlock(t, lease)
		next := <-won
		synctest.Wait()
		if locktest.Holds(servers, "x", next.Owner()) != 2 || servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Errorf("node 3 has %q", locktest.Keys(servers[2]))
		}
		locktest.Unlock(t, next)
	})
}

// The holder keeps its lease, by the nodes that have it; one that forgot takes it back after its time.
func TestHolderGetsALostKeyBackAfterTheQuarantineOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, guarded)
		longUp()
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Restart(false)
		for from := time.Now(); time.Since(from) < quarantine; time.Sleep(100 * time.Millisecond) {
			if servers[0].Redis.Exists("x") {
				t.Fatalf("the node has granted %v after its restart", time.Since(from))
			}
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.HoldsAll(t, servers, lease)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// Nodes that come back with the key renew it: the holder notices nothing.
func TestRestartsWithDataCostTheHolderNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, guarded)
		other, _ := locktest.Another(t, servers, guarded)
		longUp()
		lease := locktest.Lock(t, c.Mutex("x"))
		for range 10 {
			locktest.Each(servers, func(s *embedded.Server) { s.Restart(true) })
			_, _ = other.Inspect(t.Context(), "x") // finds the connections dead
			time.Sleep(quorumlock.DefaultTTL / 2)
			locktest.Held(t, lease)
			locktest.Refused(t, other.Mutex("x"))
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// A vote that a node has given lasts until that lease is over, also when the node has lost it, and not
// even the holder may have it before: B gets the vote of node 3 while A is cut off; 3 forgets it; A comes
// back. If A got 3 now, it would extend its lease on 1, 2 and 3 while B is granted its third node.
func TestQuarantineHoldsForTheHolderToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := quorumlock.WithNodeTimeout(5 * time.Second)
		_, servers := locktest.Client(t, 5)
		a, pathsA := locktest.Another(t, servers, guarded)
		b, pathsB := locktest.Another(t, servers, guarded, slow)
		longUp()
		locktest.Unlock(t, locktest.Lock(t, b.Mutex("other"))) // connects

		pathsA[2].Kill()
		pathsA[4].Kill()
		leaseA := locktest.Lock(t, a.Mutex("x")) // on 1, 2 and 4
		locktest.Each(pathsA, (*embedded.Server).Kill)
		servers[3].Restart(false)
		_, _ = b.Inspect(t.Context(), "x") // finds the connection dead
		time.Sleep(7500 * time.Millisecond)
		_, _ = b.Inspect(t.Context(), "x") // connects again
		pathsB[3].Stall()                  // what B sends to 4 arrives when its quarantine is over
		locktest.Each(pathsB[:2], (*embedded.Server).Kill)
		granted := make(chan *quorumlock.Lease, 1)
		go func() {
			lease, err := b.Mutex("x").TryLock(t.Context())
			if err != nil {
				t.Logf("B: %v", err)
			}
			granted <- lease
		}()
		time.Sleep(500 * time.Millisecond)
		if !servers[2].Redis.Exists("x") || !servers[4].Redis.Exists("x") {
			t.Error("3 and 5 have not granted to B: this test shows nothing")
		}
		servers[2].Restart(false)
		locktest.Each(pathsA[:3], func(s *embedded.Server) { s.Restart(true) })
		time.Sleep(4200 * time.Millisecond)
		pathsB[3].Resume()
		leaseB := <-granted
		if leaseB == nil {
			t.Fatal("B was not granted: this test shows nothing")
		}
		if leaseA.Context().Err() == nil && leaseB.Context().Err() == nil {
			t.Errorf("both hold: A until %v, B until %v, now %v", leaseA.ValidUntil(), leaseB.ValidUntil(), time.Now())
		}
		_ = leaseB.Unlock(t.Context())
		_ = leaseA.Unlock(t.Context())
		locktest.Each(pathsA[3:], func(s *embedded.Server) { s.Restart(true) })
		locktest.Each(pathsB[:2], func(s *embedded.Server) { s.Restart(true) })
	})
}

func TestGuardedAttemptWhoseReplyIsLostLeavesNothing(t *testing.T) {
	for _, up := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3, guarded)
			time.Sleep(up)
			locktest.Each(servers, func(s *embedded.Server) { s.LoseReplies(1) })
			if _, err := c.Mutex("x").TryLock(t.Context()); err == nil {
				t.Error("granted without a reply")
			}
			time.Sleep(quorumlock.DefaultTTL)
			locktest.Nothing(t, servers)
		})
	}
}

func TestMultiLockHasTheGuardOfItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, guarded)
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := both.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrQuarantined) {
			t.Errorf("nodes that have just started: %v, want ErrQuarantined", err)
		}
		locktest.Unlock(t, locktest.Lock(t, both))
		locktest.Nothing(t, servers)
	})
}

func TestTTLBeyondTheGuardIsAnErrorWhereverItIsGiven(t *testing.T) {
	nodes := func() []*node.Node {
		n, err := node.Dial("redis://h")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return []*node.Node{n}
	}
	const long = 20 * time.Second
	told := func(where string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "WithTTL(20s) is longer than WithRestartGuard(10s)") {
			t.Errorf("%s: %v", where, err)
		}
	}
	_, err := redlock.New(nodes(), quorumlock.WithTTL(long), guarded)
	told("redlock.New", err)
	for what, opts := range map[string][2]quorumlock.Option{
		"guard at New, TTL at Mutex": {guarded, quorumlock.WithTTL(long)},
		"TTL at New, guard at Mutex": {quorumlock.WithTTL(long), guarded},
	} {
		c, err := redlock.New(nodes(), opts[0])
		if err != nil {
			t.Fatal(err)
		}
		m := c.Mutex("x", opts[1])
		_, err = m.TryLock(t.Context())
		told(what, err)
		_, err = multilock.New([]quorumlock.Locker{m})
		told(what+", as a member", err)
	}
	_, err = nodes()[0].Mutex("x", quorumlock.WithTTL(long), guarded).Lock(t.Context())
	told("node", err)
}

// The keys of such a lock would be at several servers of the cluster, which refuses scripts then.
func TestANameThatAClusterCannotKeepTogetherIsAnError(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = client.Close() })
	n := node.New(client)
	c, err := redlock.New([]*node.Node{n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, name := range []string{"a}b", "a{b", "{}x", "}", "x{}{y}"} {
		told := func(where string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "makes no hash tag") || !strings.Contains(err.Error(), "cluster h:1") {
				t.Fatalf("%s of %q: %v", where, name, err)
			}
		}
		_, err := c.Mutex(name).TryLock(t.Context())
		told("TryLock", err)
		_, err = c.Mutex(name).Lock(t.Context())
		told("Lock", err)
		_, err = c.Inspect(t.Context(), name)
		told("Inspect", err)
		told("ForceUnlock", c.Mutex(name).ForceUnlock(t.Context()))
		_, err = n.Mutex(name).TryLock(t.Context())
		told("a node's TryLock", err)
		_, err = n.Acquire(t.Context(), name, quorumlock.NewOwner(), time.Second, 1)
		told("Acquire", err)
		_, err = transport.Of(n).Inspect(t.Context(), name)
		told("a node's Inspect", err)
		_, err = multilock.New([]quorumlock.Locker{n.Mutex(name)})
		told("multilock.New", err)
	}
	if err := transport.Of(n).CheckName("{billing}:7"); err != nil {
		t.Errorf("CheckName of a name with a tag: %v", err)
	}
	if single, _ := node.Dial("redis://h"); transport.Of(single).CheckName("a}b") != nil {
		t.Error("a single server refuses a name with a brace")
	}
}

func TestGuardOfAClusterIsAnError(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = client.Close() })
	n := node.New(client)
	t.Cleanup(func() { _ = n.Close() })
	told := func(where string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "WithRestartGuard cannot watch over node cluster h:1") {
			t.Errorf("%s: %v", where, err)
		}
	}
	_, err := redlock.New([]*node.Node{n}, guarded)
	told("redlock.New", err)
	_, err = n.Mutex("x", guarded).TryLock(t.Context())
	told("node", err)
	_, err = multilock.New([]quorumlock.Locker{n.Mutex("x")}, guarded)
	told("multilock.New", err)
}
