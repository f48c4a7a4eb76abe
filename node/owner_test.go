package node_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

const uuid = "8743c9c0-0795-4907-87fd-6c719a6b4586"

// goodOwners have the form of all owners: they end in a colon and a number.
var goodOwners = []quorumlock.Owner{
	alice, quorumlock.NewOwner(),
	uuid + ":42", // of a thread of Redisson's
	uuid + ":1", "b5bf3b5c:44", "web-7.example.com-4711~" + uuid + ":18446744073709551615", "a:b:c:0", "A_b+c=d@e,f;g?h!i#j%k&l(m)n[o]p{q}r|s^t'u\"v<w>x$y\\z:1",
}

// badOwners are owners that scripts and messages could mistake for something else.
var badOwners = []quorumlock.Owner{
	"*", "", "a b:1", "x/1", uuid + ":3/1", uuid + ":3/", "x/1:1", quorumlock.Owner(strings.Repeat("a", 298) + ":1"),
	"**:1", "a*:1", "*:1", "a", "a:", "a:b", "a:1x", "a:-1", "a:+1", "a:1.5", "a:0x1", "a:1e3", " a:1", "a:1 ", "a\t:1", "a:1\n", "\x00a:1", "a\x7f:1", "é:1", "a:١", "\xff:1", "🔒:1",
}

// short is enough of an owner to know it by.
func short(o quorumlock.Owner) string {
	return strings.Trim(strconv.Quote(string(o[:min(len(o), 16)])), `"`)
}

func TestAcquireRefusesAnOwnerThatIsNoneAndSendsNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 1)
		for _, owner := range badOwners {
			a, err := nodes[0].Acquire(t.Context(), "x", owner, ttl, 1)
			_, sent := errors.AsType[*quorumlock.NodeError](err)
			if err == nil || a.Granted || sent || !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), "owner") || !strings.Contains(err.Error(), short(owner)) {
				t.Errorf("Acquire for %.40q: %+v, %v, want an error about the owner that is no node's", owner, a, err)
			}
		}
		if sent := servers[0].Ran(); sent > 0 || len(servers[0].Redis.Keys()) > 0 {
			t.Errorf("%d scripts were sent, and there are the keys %q, want none", sent, servers[0].Redis.Keys())
		}
	})
}

// Every owner that ends in a number holds the lock. Waiters that come, try again, are cancelled or
// run out of time do not release it, nor do waiters with the owner's number.
func TestAHoldOfAnyOwnerSurvivesTheWaitersThatComeAndGo(t *testing.T) {
	for _, owner := range goodOwners {
		locktest.Run(t, string(owner), func(t *testing.T) {
			servers, nodes := locktest.Nodes(t, 1)
			n := nodes[0]
			for hold := 1; hold <= 2; hold++ {
				if a, err := n.Acquire(t.Context(), "x", owner, time.Hour, hold); err != nil || !a.Granted {
					t.Fatalf("Acquire %d: %+v, %v", hold, a, err)
				}
			}
			if ok, err := n.Renew(t.Context(), "x", owner, time.Hour); !ok || err != nil {
				t.Errorf("Renew: %v, %v", ok, err)
			}
			if got, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil || got.Owner != owner || got.HoldCount != 2 {
				t.Errorf("Inspect: %+v, %v", got, err)
			}
			if left, err := n.Release(t.Context(), "x", owner, 2); left != 1 || err != nil {
				t.Errorf("Release: %d left, %v, want 1", left, err)
			}
			checkSurvival(t, servers[0], n, owner)
		})
	}
}

// A waiter's number is known to others in the same queue, and the next ones are easily guessed. An
// owner that looks like a waiter's successor must be refused, or must be safe.
func TestAnOwnerThatLooksLikeAWaitersOwnIsRefusedOrSafe(t *testing.T) {
	for ahead := range 4 {
		locktest.Run(t, fmt.Sprint("the waiter's number and ", ahead), func(t *testing.T) {
			servers, nodes := locktest.Nodes(t, 1)
			s, n := servers[0], nodes[0]
			mustAcquire(t, n, alice, 1)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = n.Mutex("x").Lock(ctx) })
			time.Sleep(20 * time.Millisecond)
			in, err := transport.Of(n).Inspect(t.Context(), "x")
			if err != nil || len(in.Queue) != 1 {
				t.Fatalf("control: nobody waits: %+v, %v", in, err)
			}
			cancel()
			wg.Wait()
			time.Sleep(20 * time.Millisecond)
			if _, err := n.Release(t.Context(), "x", alice, 1); err != nil {
				t.Fatal(err)
			}
			colon := strings.LastIndexByte(string(in.Queue[0].Owner), ':')
			number, err := strconv.Atoi(string(in.Queue[0].Owner)[colon+1:])
			if err != nil {
				t.Fatal(err)
			}
			owner := quorumlock.Owner(fmt.Sprintf("%s:%d/1", in.Queue[0].Owner[:colon], number+ahead))
			a, err := n.Acquire(t.Context(), "x", owner, time.Hour, 1)
			if err != nil || !a.Granted {
				return
			}
			checkSurvival(t, s, n, owner)
		})
	}
}

// checkSurvival has waiters come and go in every way at the lock x, which owner holds.
func checkSurvival(t *testing.T, s *embedded.Server, n *node.Node, owner quorumlock.Owner) {
	t.Helper()
	check := func(what string) {
		t.Helper()
		if got := s.Redis.HGet("x", string(owner)); got != "1" {
			t.Fatalf("after %s, %.40q holds x %q times, want once", what, owner, got)
		}
	}
	m := n.Mutex("x")
	for range 3 {
		if lease, err := m.TryLock(t.Context()); err == nil {
			t.Fatalf("TryLock was granted token %d", lease.Token())
		}
		check("a TryLock")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if lease, err := m.Lock(ctx); err == nil {
				t.Errorf("Lock was granted token %d", lease.Token())
			}
		})
		time.Sleep(20 * time.Millisecond)
		check("a waiter's first attempt")
		time.Sleep(2 * time.Second)
		check("a waiter's further attempts")
		cancel()
		wg.Wait()
		time.Sleep(20 * time.Millisecond)
		check("a waiter was cancelled")
		if lease, err := n.Mutex("x", quorumlock.WithWait(time.Second)).Lock(t.Context()); err == nil {
			t.Errorf("Lock was granted token %d", lease.Token())
		}
		time.Sleep(20 * time.Millisecond)
		check("a waiter ran out of time")
	}
	// Nor do waiters take each other's: the one that is left gets the lock when it is released.
	got := make(chan *quorumlock.Lease, 1)
	go func() {
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	time.Sleep(20 * time.Millisecond)
	check("another waiter came")
	if _, err := n.Release(t.Context(), "x", owner, 1); err != nil {
		t.Errorf("Release: %v", err)
	}
	select {
	case lease := <-got:
		if lease != nil {
			locktest.MustUnlock(t, lease)
		}
	case <-time.After(2 * time.Second):
		t.Error("the waiter has not got the lock in 2 s")
	}
	locktest.NoLocks(t, []*embedded.Server{s})
}
