package kinds

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// As many nodes forget as may. Later callers still find all ids.
func TestALatchStaysOpenWhenAsManyForgetAsMay(t *testing.T) {
	for _, tt := range []struct{ nodes, quorum int }{{3, 3}, {5, 4}, {5, 5}, {4, 3}} {
		locktest.Run(t, fmt.Sprintf("%d of %d", tt.quorum, tt.nodes), func(t *testing.T) {
			forget := 2*tt.quorum - tt.nodes - 1
			c, servers := locktest.Client(t, tt.nodes, quorumlock.WithQuorum(tt.quorum))
			half, open := c.Latch("half", 2), c.Latch("open", 2)
			locktest.Done(t, half, "a")
			locktest.Done(t, open, "a", "b")
			locktest.Open(t, open)
			locktest.Each(servers[:forget], func(s *embedded.Server) { s.Restart(false) })
			// A quorum that has as little of it as possible.
			for i := range tt.nodes {
				d, paths := locktest.Another(t, servers, quorumlock.WithQuorum(tt.quorum))
				for j := range tt.nodes - tt.quorum {
					paths[(forget+i+j)%tt.nodes].Kill()
				}
				locktest.Open(t, d.Latch("open", 2))
				locktest.Counts(t, d.Latch("open", 2), 2)
				locktest.Counts(t, d.Latch("half", 2), 1)
				locktest.Each(paths, func(s *embedded.Server) { s.Restart(true) })
			}
			locktest.Done(t, c.Latch("half", 2), "b")
			locktest.Open(t, half)
		})
	}
}

func TestALatchThatIsForgottenSaysSo(t *testing.T) {
	for what, forget := range map[string]func(servers []*embedded.Server){
		"retention": func([]*embedded.Server) { time.Sleep(quorumlock.DefaultRetention + time.Second) },
		"restarts": func(servers []*embedded.Server) {
			locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		},
	} {
		for _, ids := range [][]string{{"a"}, {"a", "b"}} {
			locktest.Run(t, fmt.Sprint(what, " with ", len(ids)), func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				l, waited := c.Latch("x", 2), c.Latch("x", 2)
				locktest.Done(t, l, ids...)
				if len(ids) == 2 {
					locktest.Open(t, waited)
				} else {
					locktest.Closed(t, waited)
				}
				// All nodes have answered: a later answer would make the latch once more.
				synctest.Wait()
				forget(servers)
				if err := l.Done(t.Context(), "c"); !errors.Is(err, quorumlock.ErrLatchForgotten) {
					t.Errorf("Done: %v, want ErrLatchForgotten", err)
				}
				if len(ids) == 2 {
					locktest.Open(t, waited) // it has been open
				} else if err := waited.Wait(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
					t.Errorf("Wait: %v, want ErrLatchForgotten", err)
				} else if _, err := waited.Count(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
					t.Errorf("Count: %v, want ErrLatchForgotten", err)
				}
				locktest.NoLocks(t, servers) // and nothing was added
				locktest.Done(t, c.Latch("x", 2), "c")
				locktest.Counts(t, c.Latch("x", 2), 1) // another latch, as documented
			})
		}
	}
}

// A pending Wait notices if the latch is gone, and otherwise keeps it for as long as it waits.
func TestAWaitKeepsTheLatch(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithRetention(time.Minute))
		d, _ := locktest.Another(t, servers, quorumlock.WithRetention(time.Minute))
		locktest.Done(t, c.Latch("x", 2), "a")
		got := locktest.Awaits(t, d.Latch("x", 2))
		for i := range servers { // none of them is out of reach for long, but each is once
			servers[i].Kill()
			time.Sleep(2 * time.Minute)
			servers[i].Restart(true)
			time.Sleep(time.Minute)
		}
		locktest.Counts(t, c.Latch("x", 2), 1)
		locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		if err := <-got; !errors.Is(err, quorumlock.ErrLatchForgotten) {
			t.Errorf("Wait: %v, want ErrLatchForgotten", err)
		}
	})
}

// A node that is out of reach for longer than the retention has forgotten its ids. So a quorum
// keeps a latch in use as a whole, not one id here and the other there.
func TestALatchThatIsUsedIsKeptAsAWhole(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		c, paths := locktest.Another(t, servers, quorumlock.WithRetention(time.Minute))
		l := c.Latch("x", 3)
		paths[1].Kill()
		locktest.Done(t, l, "a") // at 1 and 3
		paths[1].Restart(true)
		paths[2].Kill()
		time.Sleep(50 * time.Second)
		locktest.Done(t, l, "b") // at 1 and 2
		time.Sleep(50 * time.Second)
		paths[2].Restart(true)
		paths[0].Kill()
		locktest.Counts(t, l, 2)
	})
}

// Callers may keep a latch for different times. Its ids last as long as the latch.
func TestTheIDsOfALatchLastAsLongAsIt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers)
		locktest.Closed(t, c.Latch("x", 2, quorumlock.WithRetention(48*time.Hour)))
		locktest.Done(t, other.Latch("x", 2, quorumlock.WithRetention(24*time.Hour)), "1")
		synctest.Wait()
		time.Sleep(25 * time.Hour)
		locktest.Counts(t, other.Latch("x", 2), 1)
	})
}

// A latch that is gone may be made again, by a caller that has not seen it. Others get an error.
func TestACountOfALatchThatWasMadeAgainIsForgotten(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		l := c.Latch("x", 9)
		locktest.Done(t, l, "1", "2")
		synctest.Wait()
		locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		locktest.Closed(t, c.Latch("x", 9))
		if n, err := l.Count(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
			t.Errorf("Count: %d, %v, want ErrLatchForgotten", n, err)
		}
	})
}
