package forgery

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// A minority hands the lock over from another holder. Their messages count for them alone.
func TestAHandoffReplayedAtTheOtherNodesFakesNoHold(t *testing.T) {
	forging(t, 2, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		const stranger quorumlock.Owner = "stranger:1"
		var minority []*node.Node
		for _, s := range servers[:(len(servers)-1)/2] {
			n, err := s.Node()
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close() //nolint:errcheck // a test's node
			if a, err := n.Acquire(t.Context(), "x", stranger, time.Hour, 1); err != nil || !a.Granted {
				t.Fatalf("Acquire: %+v, %v", a, err)
			}
			minority = append(minority, n)
		}
		_, first := f.handOver(c[0], c[1], "first") // it listens from then on
		locktest.MustUnlock(t, first)
		holder := locktest.MustLock(t, c[0].Mutex("x"))
		got := locktest.Waiter(t, c[1].Mutex("x"))
		g := genuine{name: "x", waiter: waiterFor(t, c[0], "x")}
		g.channel = f.channelOf(g.waiter)
		f.take("")
		for _, n := range minority {
			if _, err := n.Release(t.Context(), "x", stranger, 1); err != nil {
				t.Fatal(err)
			}
		}
		g.messages = f.take(g.channel)
		if len(g.messages) < len(minority) {
			t.Fatalf("control: %d nodes told the waiter %+v", len(minority), g.messages)
		}
		for _, m := range g.messages {
			for i := range servers {
				if i == m.server {
					continue
				}
				f.tell(i, g.channel, m.message)
				for _, forgery := range g.renumbered(m, i) {
					f.tell(i, g.channel, forgery)
				}
			}
		}
		none(t, got, holder)
		time.Sleep(time.Minute)
		none(t, got, holder)
		locktest.Held(t, holder)
		locktest.MustUnlock(t, holder)
		locktest.MustUnlock(t, locktest.Served(t, got, holder))
		locktest.NoLocks(t, servers)
	})
}

// One node has handed the lock over, and the others are about to. The message of the first is sent
// again, with another token.
func TestAHandoffReplayedWithAnotherTokenDoesNotChangeTheToken(t *testing.T) {
	forging(t, 2, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		g, lease := f.handOver(c[0], c[1], "template") // shows which number is the token
		locktest.MustUnlock(t, lease)
		holder := locktest.MustLock(t, c[0].Mutex("x"))
		got := locktest.Waiter(t, c[1].Mutex("x"))
		g.waiter, g.name = waiterFor(t, c[0], "x"), "x"
		late := make(chan struct{})
		for _, s := range servers[1:] {
			locktest.Block(s, "release", 1, late)
		}
		f.take("")
		unlocked := make(chan error, 1)
		go func() { unlocked <- holder.Unlock(t.Context()) }()
		g.messages = f.take(g.channel)
		if len(g.messages) == 0 {
			t.Fatal("control: the first node has told nothing")
		}
		v, err := servers[0].Redis.Get(wire.TokenKey("x"))
		if err != nil {
			t.Fatal(err)
		}
		if g.token, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
		for _, m := range g.messages {
			for _, token := range []uint64{highToken, g.token + 1, g.token - 1, 1, 0} {
				f.tell(m.server, g.channel, g.forged(m, g.waiter, token, "x"))
				synctest.Wait()
			}
			// Once more, as the last.
			f.tell(m.server, g.channel, g.forged(m, g.waiter, highToken, "x"))
		}
		synctest.Wait()
		close(late)
		next := locktest.Served(t, got, holder)
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock: %v", err)
		}
		synctest.Wait()
		locktest.Sane(t, servers, "x")
		locktest.MustUnlock(t, next)
		locktest.NoLocks(t, servers)
	})
}

// A subscription was down when the lock was handed over. Before the waiter has looked for itself,
// the forger repeats the missed messages, with another token.
func TestAHandoffThatTheWaiterMissedIsNotBelievedFromAForger(t *testing.T) {
	for _, n := range []int{3, 5} {
		locktest.Run(t, fmt.Sprint(n, " nodes"), func(t *testing.T) {
			c, servers := locktest.Client(t, n)
			deaf, paths := locktest.Another(t, servers)
			f := eavesdrop(t, servers)
			g, lease := f.handOver(c, deaf, "template")
			locktest.MustUnlock(t, lease)
			holder := locktest.MustLock(t, c.Mutex("x"))
			got := locktest.Waiter(t, deaf.Mutex("x"))
			g.waiter, g.name = waiterFor(t, c, "x"), "x"
			f.take("")
			locktest.Each(paths, func(p *embedded.Server) { p.Kill() })
			locktest.MustUnlock(t, holder)
			g.messages = f.take(g.channel)
			if len(g.messages) == 0 {
				t.Fatal("control: nothing was told")
			}
			v, err := servers[0].Redis.Get(wire.TokenKey("x"))
			if err != nil {
				t.Fatal(err)
			}
			if g.token, err = strconv.ParseUint(v, 10, 64); err != nil {
				t.Fatal(err)
			}
			locktest.Each(paths, func(p *embedded.Server) { p.Restart(true) })
			var next *quorumlock.Lease
			for range 4000 { // until it is back, and has looked
				for _, m := range g.messages {
					f.tell(m.server, g.channel, g.forged(m, g.waiter, highToken, "x"))
				}
				select {
				case next = <-got:
				case <-time.After(500 * time.Microsecond):
					continue
				}
				break
			}
			if next == nil {
				next = <-got
			}
			if next == nil {
				t.FailNow()
			}
			if next.Token() <= holder.Token() {
				t.Errorf("token %d after %d", next.Token(), holder.Token())
			}
			locktest.Near(t, "the waiter", next.Token())
			synctest.Wait()
			locktest.Sane(t, servers, "x")
			locktest.MustUnlock(t, next)
		})
	}
}

// A server with two addresses has one vote, even if a forger numbers the other address.
func TestAHandoffReplayedForAnotherCellDoesNotMakeASecondAddressCount(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		first, _ := locktest.Twin(t, servers)
		second, _ := locktest.Twin(t, servers)
		f := eavesdrop(t, servers)
		g, lease := f.handOver(first, second, "x")
		for _, m := range g.messages {
			for cell := range 3 {
				for _, forgery := range g.renumbered(m, cell) {
					f.tell(m.server, g.channel, forgery)
				}
			}
		}
		time.Sleep(time.Minute)
		locktest.Held(t, lease)
		servers[1].Kill()
		time.Sleep(2 * quorumlock.DefaultTTL)
		if lease.Context().Err() == nil {
			t.Error("the lease goes on with one server of three nodes")
		}
	})
}
