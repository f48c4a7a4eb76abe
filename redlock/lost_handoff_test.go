package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// twoRenewals is how long two regular renewals take, and what a handoff has of its own.
const twoRenewals = 2*quorumlock.DefaultTTL/3 + 100*time.Millisecond

// A node hands the lock over and its message is lost. It is renewed like the others, so it is as good as they are:
// the lease outlives as many other nodes as any lease does.
func TestANodeThatWasNotHeardToHandOverVotesAgainWithinTwoRenewals(t *testing.T) {
	for _, tt := range []struct {
		nodes, unheard int
		after          time.Duration
	}{
		{3, 1, twoRenewals},
		{3, 1, 10 * time.Minute},
		{5, 1, twoRenewals},
		{5, 2, twoRenewals},
		{5, 2, 10 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%d of %d unheard, %v later", tt.unheard, tt.nodes, tt.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, servers := locktest.Client(t, tt.nodes)
				second, paths := locktest.Another(t, servers)
				holder := locktest.Lock(t, first.Mutex("x"))
				warm(t, second)
				got := locktest.Waiter(t, second.Mutex("x"))
				unheard, heard := paths[:tt.unheard], servers[tt.unheard:]
				locktest.Each(unheard, func(p *embedded.Server) { p.LoseMessages(true) })
				locktest.MustUnlock(t, holder)
				lease := <-got
				synctest.Wait()
				locktest.Each(unheard, func(p *embedded.Server) { p.LoseMessages(false) })
				survivesAMinority(t, first.Mutex("x"), lease, servers, heard[:tt.nodes/2], tt.after)
			})
		})
	}
}

// The same for the members of a MultiLock, of which one node holds several.
func TestANodeThatWasNotHeardToHandOverAMultiLockVotesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, servers := locktest.Client(t, 3)
		second, paths := locktest.Another(t, servers)
		both := func(c *redlock.Client) quorumlock.Locker {
			m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		holder := locktest.Lock(t, both(first))
		warm(t, second)
		got := locktest.Waiter(t, both(second))
		paths[0].LoseMessages(true)
		locktest.MustUnlock(t, holder)
		lease := <-got
		synctest.Wait()
		paths[0].LoseMessages(false)
		survivesAMinority(t, first.Mutex("y"), lease, servers, servers[1:2], twoRenewals)
	})
}

// survivesAMinority checks that a lease goes on when some nodes die after a while, and what it leaves.
func survivesAMinority(t *testing.T, other quorumlock.Locker, lease *quorumlock.Lease, servers, minority []*embedded.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	locktest.Held(t, lease)
	locktest.Each(minority, (*embedded.Server).Kill)
	died := time.Now()
	select {
	case <-lease.Context().Done():
		t.Errorf("the lease was lost %v after %d of %d nodes had died, with all others healthy", time.Since(died), len(minority), len(servers))
	case <-time.After(3 * quorumlock.DefaultTTL):
		locktest.Refused(t, other)
		locktest.MustUnlock(t, lease)
	}
	locktest.Each(minority, func(s *embedded.Server) { s.Restart(true) })
	time.Sleep(quorumlock.DefaultTTL)
	locktest.Nothing(t, servers)
}

// addresses is a client of two servers, of which one has two addresses, and the paths by which it goes to each.
type addresses struct {
	client      *redlock.Client
	a, b, again *embedded.Server // a and again lead to the first server, b to the second
}

func threeAddresses(t *testing.T, servers []*embedded.Server) addresses {
	t.Helper()
	paths := []*embedded.Server{servers[0].Path("a"), servers[1].Path("b"), servers[0].Path("again")}
	var nodes []*node.Node
	for _, p := range paths {
		t.Cleanup(p.Close)
		n, err := p.Node()
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	c, err := redlock.New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return addresses{c, paths[0], paths[1], paths[2]}
}

// answerLost are the ways in which one of two addresses of a server says less than the other.
var answerLost = []struct {
	name  string
	begin func(first, again *embedded.Server) // before the lock is granted or handed over
	then  func(first, again *embedded.Server) // when it has been
}{
	{"none", nil, nil},
	{"messages of the first", func(a, _ *embedded.Server) { a.LoseMessages(true) }, nil},
	{"messages of the second", func(_, c *embedded.Server) { c.LoseMessages(true) }, nil},
	{"messages of both", func(a, c *embedded.Server) { a.LoseMessages(true); c.LoseMessages(true) }, nil},
	{"the next reply of the first", func(a, _ *embedded.Server) { a.LoseReplies(1) }, nil},
	{"the next reply of the second", func(_, c *embedded.Server) { c.LoseReplies(1) }, nil},
	{"a later reply of the first", nil, func(a, _ *embedded.Server) { a.LoseReplies(1) }},
	{"a later reply of the second", nil, func(_, c *embedded.Server) { c.LoseReplies(1) }},
	{"three later replies of the first", nil, func(a, _ *embedded.Server) { a.LoseReplies(3) }},
	{"three later replies of the second", nil, func(_, c *embedded.Server) { c.LoseReplies(3) }},
	{"messages and later replies of the first",
		func(a, _ *embedded.Server) { a.LoseMessages(true) }, func(a, _ *embedded.Server) { a.LoseReplies(2) }},
	{"messages and later replies of the second",
		func(_, c *embedded.Server) { c.LoseMessages(true) }, func(_, c *embedded.Server) { c.LoseReplies(2) }},
	{"messages of the first and later replies of the second",
		func(a, _ *embedded.Server) { a.LoseMessages(true) }, func(_, c *embedded.Server) { c.LoseReplies(2) }},
	{"messages of the second and later replies of the first",
		func(_, c *embedded.Server) { c.LoseMessages(true) }, func(a, _ *embedded.Server) { a.LoseReplies(2) }},
}

// However a node gets its vote back, a server with two addresses has one, and a lease ends when it is the last of two.
// One of the addresses may have said less than the other when the lock was granted: it is the same server still.
func TestTwoAddressesOfOneServerCountOnceThoughAnAnswerOfOneWasLost(t *testing.T) {
	t.Parallel()
	for _, handed := range []bool{false, true} {
		for _, slower := range []string{"first", "second"} {
			for _, tt := range answerLost {
				name := fmt.Sprintf("handed over %v, %s slower, lost %s", handed, slower, tt.name)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						servers, _ := locktest.Nodes(t, 2)
						first, second := threeAddresses(t, servers), threeAddresses(t, servers)
						warm(t, first.client)
						warm(t, second.client)
						arrive(map[string]*embedded.Server{"first": second.a, "second": second.again}[slower], time.Millisecond)
						var got <-chan *quorumlock.Lease
						if handed {
							holder := locktest.Lock(t, first.client.Mutex("x"))
							got = locktest.Waiter(t, second.client.Mutex("x"))
							lose(tt.begin, second)
							locktest.MustUnlock(t, holder)
						} else {
							lose(tt.begin, second)
							got = locktest.Waiter(t, second.client.Mutex("x"))
						}
						lease := <-got
						lose(tt.then, second)
						time.Sleep(20 * time.Millisecond)
						locktest.Each([]*embedded.Server{second.a, second.again}, func(p *embedded.Server) { p.LoseMessages(false) })
						time.Sleep(time.Minute)
						if lease.Context().Err() != nil {
							t.Error("lost with both servers healthy")
						}
						servers[1].Kill()
						time.Sleep(2 * quorumlock.DefaultTTL)
						if !errors.Is(lease.Unlock(t.Context()), quorumlock.ErrLost) {
							t.Error("the lease goes on with one server of three nodes")
						}
						servers[1].Restart(true)
						time.Sleep(quorumlock.DefaultTTL)
						locktest.NoLocks(t, servers)
					})
				})
			}
		}
	}
}

func lose(how func(first, again *embedded.Server), at addresses) {
	if how != nil {
		how(at.a, at.again)
	}
}
