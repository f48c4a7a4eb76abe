package node_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 1)
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
		testkit.Run(t, string(owner), func(t *testing.T) {
			servers, nodes := testkit.Nodes(t, 1)
			n := nodes[0]
			mustAcquire(t, n, owner, 1)
			mustAcquire(t, n, owner, 2)
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

// checkSurvival has waiters come and go in every way at the lock x, which owner holds.
func checkSurvival(t *testing.T, s *embedded.Server, n *node.Node, owner quorumlock.Owner) {
	t.Helper()
	m := n.Mutex("x")
	refused := func(lock func(context.Context) (*quorumlock.Lease, error), ctx context.Context, after string, d time.Duration) {
		t.Helper()
		if lease, err := lock(ctx); err == nil {
			t.Fatalf("a waiter was granted token %d", lease.Token())
		}
		time.Sleep(d)
		if got := s.Redis.HGet("x", string(owner)); got != "1" {
			t.Fatalf("after %s, %.40q holds x %q times, want once", after, owner, got)
		}
	}
	for range 3 {
		refused(m.TryLock, t.Context(), "a TryLock", 0)
		for _, d := range []time.Duration{20 * time.Millisecond, 2 * time.Second} { // of one attempt, and of several
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(d, cancel)
			refused(m.Lock, ctx, fmt.Sprintf("a waiter that was cancelled after %v", d), 20*time.Millisecond)
		}
		refused(n.Mutex("x", quorumlock.WithWait(time.Second)).Lock, t.Context(), "a waiter ran out of time", 20*time.Millisecond)
	}
	// Nor do waiters take each other's: the one that is left gets the lock when it is released.
	got := testkit.Waiter(t, m)
	checkCount(t, s, owner, "1")
	testkit.OK(t, testkit.Err(n.Release(t.Context(), "x", owner, 1)), "Release")
	select {
	case lease := <-got:
		if lease != nil {
			testkit.MustUnlock(t, lease)
		}
	case <-time.After(2 * time.Second):
		t.Error("the waiter has not got the lock in 2 s")
	}
	testkit.NoLocks(t, []*embedded.Server{s})
}
