package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestALatchOpensWithTheLastOfItsIDs(t *testing.T) {
	for what, make := range map[string]func(t *testing.T) (a, b testkit.Latch){
		"of a majority": func(t *testing.T) (a, b testkit.Latch) {
			c, servers := testkit.Client(t, 3)
			d, _ := testkit.Another(t, servers)
			return c.Latch("x", 3), d.Latch("x", 3)
		},
		"of one node": func(t *testing.T) (a, b testkit.Latch) {
			servers, nodes := testkit.Nodes(t, 1)
			_, others := testkit.Paths(t, servers)
			return testkit.Of(t, nodes).Latch("x", 3), testkit.Of(t, others).Latch("x", 3)
		},
		"of a client of the caller's": func(t *testing.T) (a, b testkit.Latch) {
			_, nodes := testkit.Nodes(t, 1)
			n, err := node.New(nodes[0].Client())
			testkit.Must(t, err, "New")
			t.Cleanup(func() { _ = n.Close() })
			return testkit.Of(t, []*node.Node{n}).Latch("x", 3), testkit.Of(t, nodes).Latch("x", 3)
		},
		"under a prefix": func(t *testing.T) (a, b testkit.Latch) {
			c, servers := testkit.Client(t, 3, quorumlock.WithPrefix("app:"))
			d, _ := testkit.Another(t, servers)
			return c.Latch("x", 3), d.Latch("app:x", 3)
		},
	} {
		testkit.Run(t, what, func(t *testing.T) {
			a, b := make(t)
			testkit.Equal(t, a.Name(), "x", "Name")
			testkit.Counts(t, a, 0)
			testkit.Done(t, a, "1", "2", "1")
			testkit.Done(t, b, "2")
			testkit.Counts(t, a, 2)
			testkit.Counts(t, b, 2)
			testkit.Closed(t, a)
			got := testkit.Awaits(t, b)
			testkit.Done(t, a, "3")
			testkit.OK(t, <-got, "Wait")
			testkit.Done(t, a, "3", "4")
			for _, l := range []testkit.Latch{a, b} {
				testkit.Open(t, l)
				testkit.Counts(t, l, 3)
			}
		})
	}
}

// Waiters are notified. They ask the nodes only for a refresh now and then, and return within a
// round trip or two, wherever they wait.
func TestAWaitIsWokenByAMessage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		var waiters []<-chan error
		for range 3 {
			d, paths := testkit.Another(t, servers)
			testkit.Each(paths, func(s *embedded.Server) { s.Delay(time.Millisecond) })
			waiters = append(waiters, testkit.Awaits(t, d.Latch("x", 2)))
		}
		testkit.Done(t, c.Latch("x", 2), "a")
		looked := testkit.Ran(servers, "latch")
		time.Sleep(5 * time.Minute)
		if n := testkit.Ran(servers, "latch") - looked; n > 3*3*(5*60/2) {
			t.Errorf("%d looks in five minutes of three who wait, want one in some seconds", n)
		}
		began := time.Now()
		testkit.Done(t, c.Latch("x", 2), "b")
		for _, got := range waiters {
			testkit.OK(t, <-got, "Wait")
		}
		testkit.Took(t, began, 0, 10*time.Millisecond, "told")
	})
}

// No message comes through, or may be heard: then they look.
func TestAWaitFindsOutWithoutAMessage(t *testing.T) {
	for what, spoil := range map[string]func(*embedded.Server){
		"messages are lost": func(s *embedded.Server) { s.LoseMessages(true) },
		"nobody may listen": func(s *embedded.Server) { s.Deny("subscribe") },
		"nobody may tell":   func(s *embedded.Server) { s.Deny("publish") },
	} {
		testkit.Run(t, what, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			d, _ := testkit.Another(t, servers)
			testkit.Each(servers, spoil)
			got := testkit.Awaits(t, d.Latch("x", 1))
			began := time.Now()
			testkit.Done(t, c.Latch("x", 1), "a")
			testkit.OK(t, <-got, "Wait")
			testkit.Took(t, began, 0, 5*time.Second, "Wait")
		})
	}
}

// An id at a quorum is known at every other quorum. Each of three ids is at two nodes, and no node
// has all.
func TestTheNodesCountTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		_, nodes := testkit.Paths(t, servers)
		// The state after calls that died between their rounds.
		for i, id := range []string{"a", "b", "c"} {
			for _, n := range []*node.Node{nodes[i], nodes[(i+1)%3]} {
				s, err := testkit.Send(t.Context(), n, wire.Latch("x", 3, wire.MakeLatch, time.Hour, n.String(), id))[0].Latched(3)
				if err != nil || s.Open {
					t.Fatalf("%+v, %v", s, err)
				}
			}
		}
		servers[0].Kill()
		l := c.Latch("x", 3)
		testkit.Counts(t, l, 3)
		testkit.Open(t, l)
		// It was written back before it was told.
		servers[0].Restart(true)
		servers[1].Kill()
		d, _ := testkit.Another(t, servers)
		testkit.Open(t, d.Latch("x", 3))
	})
}

// While the nodes agree, Done costs one round trip, however many ids there are, even in a process
// that has not seen the latch.
func TestADoneTakesOneRoundWhileTheNodesAgree(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		l := c.Latch("x", 4096)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() { testkit.Done(t, l, fmt.Sprint(i)) })
		}
		all.Wait()
		synctest.Wait()
		if n := testkit.Ran(servers, "latch"); n > 2*3 {
			t.Errorf("300 calls of one process at once ran %d scripts, want two rounds at three nodes", n)
		}
		other, _ := testkit.Another(t, servers)
		before := testkit.Ran(servers, "latch")
		testkit.Done(t, other.Latch("x", 4096), "last")
		synctest.Wait()
		testkit.Equal(t, testkit.Ran(servers, "latch")-before, 3, "scripts of a Done at three nodes")
		testkit.Counts(t, l, 301)
	})
}

// Nodes learn of the ids of many processes in different orders. No call waits for the end of the
// others.
func TestManyDonesAtOnceTakeAFewRoundsEach(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const processes = 32
		clients, servers := testkit.Fleet(t, processes, 5)
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
				testkit.Done(t, c.Latch("x", processes+1), fmt.Sprint(i))
			})
		}
		all.Wait()
		synctest.Wait()
		if n := testkit.Ran(servers, "latch"); n > processes*5*5 {
			t.Errorf("%d calls ran %d scripts at five nodes, want at most a round and two repairs each", processes, n)
		}
		testkit.Counts(t, clients[0].Latch("x", processes+1), processes)
	})
}

func TestASlowNodeDelaysNoLatch(t *testing.T) {
	for what, fall := range map[string]func(*embedded.Server){"frozen": (*embedded.Server).Stall, "mute": (*embedded.Server).Mute, "dead": (*embedded.Server).Kill} {
		testkit.Run(t, what, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 5)
			c, paths := testkit.Another(t, servers)
			d, _ := testkit.Another(t, servers)
			testkit.Warm(t, c)
			testkit.Each(paths[:2], fall)
			got := testkit.Awaits(t, d.Latch("x", 2))
			began := time.Now()
			l := c.Latch("x", 2)
			testkit.Done(t, l, "a", "b")
			testkit.Open(t, l)
			testkit.Counts(t, l, 2)
			testkit.OK(t, <-got, "Wait")
			testkit.Took(t, began, 0, 0, "Wait")
			testkit.Each(paths, (*embedded.Server).Resume)
		})
	}
}

// Calls ride out a time without a quorum, log it once, and return the reason when they fail.
func TestALatchRidesOutAnOutage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, logger := testkit.Logger()
		c, servers := testkit.Client(t, 3, logger)
		l := c.Latch("x", 2)
		testkit.Done(t, l, "a")
		got := testkit.Awaits(t, c.Latch("x", 2))
		testkit.Kill(servers[:2]...)
		ctx := testkit.Within(t, 10*time.Second)
		err := l.Done(ctx, "b")
		if few, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || few.Granted > 1 || few.Needed != 2 || len(few.Nodes) != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Done: %v, want DeadlineExceeded and a QuorumError with two nodes", err)
		}
		if _, err := l.Count(t.Context()); err == nil {
			t.Error("Count without a quorum succeeds")
		}
		if lines := log.Lines("no quorum", `latch=x`); len(lines) < 1 || len(lines) > 2 {
			t.Errorf("%d lines %q, want one of Done and one of Wait", len(lines), lines)
		}
		testkit.Each(servers[:2], func(s *embedded.Server) { time.AfterFunc(10*time.Second, func() { s.Restart(true) }) })
		testkit.Done(t, l, "b")
		testkit.OK(t, <-got, "Wait")
	})
}

func TestWithWaitBoundsALatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithWait(time.Minute))
		l := c.Latch("x", 3)
		testkit.Done(t, l, "a", "b")
		began := time.Now()
		err := l.Wait(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `the latch "x" has 2 of 3 ids`) {
			t.Errorf("Wait: %v, want DeadlineExceeded and what is missing", err)
		}
		testkit.Kill(servers...)
		testkit.Is(t, l.Done(t.Context(), "c"), context.DeadlineExceeded, "Done")
		testkit.Took(t, began, 2*time.Minute, 2*time.Minute, "a minute each")
	})
}

// Pending calls, calls to silent nodes and later calls end with ErrClosed, and nothing is left.
func TestALatchEndsWithItsClient(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, c *redlock.Client) error{
		"Close":    func(_ *testing.T, c *redlock.Client) error { return c.Close() },
		"Shutdown": func(t *testing.T, c *redlock.Client) error { return c.Shutdown(t.Context()) },
	} {
		for _, at := range []string{"waiting", "frozen", "dead"} {
			testkit.Run(t, how+" while "+at, func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 3)
				c, paths := testkit.Another(t, servers)
				switch at {
				case "frozen":
					testkit.Warm(t, c)
					testkit.Each(paths, (*embedded.Server).Stall)
				case "dead":
					testkit.Kill(paths...)
				}
				got := testkit.Awaits(t, c.Latch("x", 2))
				var ends <-chan error
				if at != "waiting" {
					ends = testkit.Go(func() error { return c.Latch("x", 2).Done(t.Context(), "a") })
					time.Sleep(10 * time.Millisecond)
				}
				began := time.Now()
				testkit.OK(t, end(t, c), "%s", how)
				testkit.Took(t, began, 0, time.Second, "%s", how)
				testkit.Is(t, <-got, quorumlock.ErrClosed, "Wait")
				if at != "waiting" {
					testkit.Is(t, <-ends, quorumlock.ErrClosed, "Done")
				}
				l := c.Latch("x", 2)
				for call, err := range map[string]error{"Done": l.Done(t.Context(), "a"), "Wait": l.Wait(t.Context()), "Count": testkit.Err(l.Count(t.Context()))} {
					testkit.Is(t, err, quorumlock.ErrClosed, "%s after %s", call, how)
				}
				if left := testkit.Goroutines(); len(left) > 0 {
					t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				testkit.Each(paths, (*embedded.Server).Resume)
			})
		}
	}
}

func TestACancelledWaitLeavesNothingButTheLatch(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		got := testkit.Go(func() error { return c.Latch("x", 2).Wait(ctx) })
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("Wait: %v after %v, want Canceled at once", err, time.Since(began))
		}
		time.Sleep(24 * time.Hour)
	})
}

// As many nodes forget as may. Later callers still find all ids.
func TestALatchStaysOpenWhenAsManyForgetAsMay(t *testing.T) {
	for _, tt := range []struct{ nodes, quorum int }{{3, 3}, {5, 4}, {5, 5}, {4, 3}} {
		testkit.Run(t, fmt.Sprintf("%d of %d", tt.quorum, tt.nodes), func(t *testing.T) {
			forget := 2*tt.quorum - tt.nodes - 1
			c, servers := testkit.Client(t, tt.nodes, quorumlock.WithQuorum(tt.quorum))
			half, open := c.Latch("half", 2), c.Latch("open", 2)
			testkit.Done(t, half, "a")
			testkit.Done(t, open, "a", "b")
			testkit.Open(t, open)
			testkit.Each(servers[:forget], func(s *embedded.Server) { s.Restart(false) })
			// A quorum that has as little of it as possible.
			for i := range tt.nodes {
				d, paths := testkit.Another(t, servers, quorumlock.WithQuorum(tt.quorum))
				for j := range tt.nodes - tt.quorum {
					paths[(forget+i+j)%tt.nodes].Kill()
				}
				testkit.Open(t, d.Latch("open", 2))
				testkit.Counts(t, d.Latch("open", 2), 2)
				testkit.Counts(t, d.Latch("half", 2), 1)
				testkit.Restart(paths...)
			}
			testkit.Done(t, c.Latch("half", 2), "b")
			testkit.Open(t, half)
		})
	}
}

func TestALatchThatIsForgottenSaysSo(t *testing.T) {
	for what, forget := range map[string]func(servers []*embedded.Server){
		"retention": func([]*embedded.Server) { time.Sleep(24*time.Hour + time.Second) },
		"restarts": func(servers []*embedded.Server) {
			testkit.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		},
	} {
		for _, ids := range [][]string{{"a"}, {"a", "b"}} {
			testkit.Run(t, fmt.Sprint(what, " with ", len(ids)), func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				l, waited, counted := c.Latch("x", 2), c.Latch("x", 2), c.Latch("x", 2)
				testkit.Done(t, l, ids...)
				testkit.Counts(t, counted, len(ids))
				if len(ids) == 2 {
					testkit.Open(t, waited)
				} else {
					testkit.Closed(t, waited)
				}
				// All nodes have answered: a later answer would make the latch once more.
				synctest.Wait()
				forget(servers)
				testkit.Is(t, l.Done(t.Context(), "c"), quorumlock.ErrLatchForgotten, "Done")
				if len(ids) == 2 {
					testkit.Open(t, waited) // it has been open
				} else {
					testkit.Is(t, waited.Wait(t.Context()), quorumlock.ErrLatchForgotten, "Wait")
					testkit.Is(t, testkit.Err(waited.Count(t.Context())), quorumlock.ErrLatchForgotten, "Count")
				}
				testkit.NoLocks(t, servers)        // and nothing was added
				testkit.Closed(t, c.Latch("x", 2)) // makes it again, as a caller may that has not seen it
				if len(ids) == 1 {
					testkit.Is(t, testkit.Err(counted.Count(t.Context())), quorumlock.ErrLatchForgotten, "Count")
				}
				testkit.Done(t, c.Latch("x", 2), "c")
				testkit.Counts(t, c.Latch("x", 2), 1) // another latch, as documented
			})
		}
	}
}

// A pending Wait notices if the latch is gone, and otherwise keeps it for as long as it waits.
func TestAWaitKeepsTheLatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithRetention(time.Minute))
		d, _ := testkit.Another(t, servers, quorumlock.WithRetention(time.Minute))
		testkit.Done(t, c.Latch("x", 2), "a")
		got := testkit.Awaits(t, d.Latch("x", 2))
		for i := range servers { // none of them is out of reach for long, but each is once
			servers[i].Kill()
			time.Sleep(2 * time.Minute)
			servers[i].Restart(true)
			time.Sleep(time.Minute)
		}
		testkit.Counts(t, c.Latch("x", 2), 1)
		testkit.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		testkit.Is(t, <-got, quorumlock.ErrLatchForgotten, "Wait")
	})
}

// A node that is out of reach for longer than the retention has forgotten its ids. So a quorum
// keeps a latch in use as a whole, not one id here and the other there.
func TestALatchThatIsUsedIsKeptAsAWhole(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		c, paths := testkit.Another(t, servers, quorumlock.WithRetention(time.Minute))
		l := c.Latch("x", 3)
		paths[1].Kill()
		testkit.Done(t, l, "a") // at 1 and 3
		paths[1].Restart(true)
		paths[2].Kill()
		time.Sleep(50 * time.Second)
		testkit.Done(t, l, "b") // at 1 and 2
		time.Sleep(50 * time.Second)
		paths[2].Restart(true)
		paths[0].Kill()
		testkit.Counts(t, l, 2)
	})
}

// Callers may keep a latch for different times. Its ids last as long as the latch.
func TestTheIDsOfALatchLastAsLongAsIt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, _ := testkit.Another(t, servers)
		testkit.Closed(t, c.Latch("x", 2, quorumlock.WithRetention(48*time.Hour)))
		testkit.Done(t, other.Latch("x", 2, quorumlock.WithRetention(24*time.Hour)), "1")
		synctest.Wait()
		time.Sleep(25 * time.Hour)
		testkit.Counts(t, other.Latch("x", 2), 1)
	})
}
