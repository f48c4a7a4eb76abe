package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// A Wait that was cut short leaves a latch without ids at one node. A Count that sees it does not make it one that a
// quorum has.
func TestACountOfALatchThatAMinorityHasIsNoMemoryOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, paths := locktest.Another(t, servers)
		kill(paths[1:]...)
		isClosed(t, other.Latch("x", 2))
		l := c.Latch("x", 2)
		counts(t, l, 0)
		kill(servers[0])
		done(t, l, "1")
		counts(t, l, 1)
	})
}

// Callers may keep a latch for different times. Its ids last as long as the latch.
func TestTheIDsOfALatchLastAsLongAsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers)
		isClosed(t, c.Latch("x", 2, quorumlock.WithRetention(48*time.Hour)))
		done(t, other.Latch("x", 2, quorumlock.WithRetention(24*time.Hour)), "1")
		synctest.Wait()
		time.Sleep(25 * time.Hour)
		counts(t, other.Latch("x", 2), 1)
	})
}

// While the nodes agree, Done costs one round trip, however many ids there are, even in a process
// that has not seen the latch.
func TestADoneTakesOneRoundWhileTheNodesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		l := c.Latch("x", 4096)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() { done(t, l, fmt.Sprint(i)) })
		}
		all.Wait()
		synctest.Wait()
		if n := ran(servers, "latch"); n > 2*3 {
			t.Errorf("300 calls of one process at once ran %d scripts, want two rounds at three nodes", n)
		}
		other, _ := locktest.Another(t, servers)
		before := ran(servers, "latch")
		done(t, other.Latch("x", 4096), "last")
		synctest.Wait()
		if n := ran(servers, "latch") - before; n != 3 {
			t.Errorf("a Done ran %d scripts at three nodes", n)
		}
		counts(t, l, 301)
	})
}

// Nodes learn of the ids of many processes in different orders. No call waits until the others have ended.
func TestManyDonesAtOnceTakeAFewRoundsEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes = 32
		clients, servers := locktest.Fleet(t, processes, 5)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
				done(t, c.Latch("x", processes+1), fmt.Sprint(i))
			})
		}
		all.Wait()
		synctest.Wait()
		if n := ran(servers, "latch"); n > processes*5*5 {
			t.Errorf("%d calls ran %d scripts at five nodes, want at most a round and two repairs each", processes, n)
		}
		counts(t, clients[0].Latch("x", processes+1), processes)
	})
}

// A latch that is gone may be made again, by a caller that has not seen it. Those who have seen it are told.
func TestACountOfALatchThatWasMadeAgainIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		l := c.Latch("x", 9)
		done(t, l, "1", "2")
		synctest.Wait()
		locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		isClosed(t, c.Latch("x", 9))
		if n, err := l.Count(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
			t.Errorf("Count: %d, %v, want ErrLatchForgotten", n, err)
		}
	})
}
