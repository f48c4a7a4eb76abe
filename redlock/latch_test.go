package redlock_test

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
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// latch is what the latches of package redlock and of package node have in common.
type latch interface {
	Name() string
	Done(ctx context.Context, id string) error
	Wait(ctx context.Context) error
	Count(ctx context.Context) (int, error)
}

func done(t *testing.T, l latch, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Done(t.Context(), id); err != nil {
			t.Fatalf("Done(%q): %v", id, err)
		}
	}
}

func counts(t *testing.T, l latch, want int) {
	t.Helper()
	if n, err := l.Count(t.Context()); n != want || err != nil {
		t.Errorf("Count: %d, %v, want %d", n, err, want)
	}
}

// isOpen checks that a Wait returns at once, and isClosed that it does not return.
func isOpen(t *testing.T, l latch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Errorf("Wait: %v, want it open", err)
	}
}

func isClosed(t *testing.T, l latch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v, want it closed", err)
	}
}

// awaits calls Wait in a goroutine, and returns when it waits at all nodes.
func awaits(t *testing.T, l latch) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- l.Wait(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	select {
	case err := <-got:
		t.Fatalf("Wait returned %v", err)
	default:
	}
	return got
}

// kill cuts servers, or paths to them, off.
func kill(servers ...*embedded.Server) { locktest.Each(servers, (*embedded.Server).Kill) }

func TestALatchOpensWithTheLastOfItsIDs(t *testing.T) {
	for what, make := range map[string]func(t *testing.T) (a, b latch){
		"of a majority": func(t *testing.T) (a, b latch) {
			c, servers := locktest.Client(t, 3)
			d, _ := locktest.Another(t, servers)
			return c.Latch("x", 3), d.Latch("x", 3)
		},
		"of one node": func(t *testing.T) (a, b latch) {
			servers, nodes := locktest.Nodes(t, 1)
			_, others := locktest.Paths(t, servers)
			return nodes[0].Latch("x", 3), others[0].Latch("x", 3)
		},
		"of a client of the caller's": func(t *testing.T) (a, b latch) {
			_, nodes := locktest.Nodes(t, 1)
			n := node.New(nodes[0].Client())
			t.Cleanup(func() { _ = n.Close() })
			return n.Latch("x", 3), nodes[0].Latch("x", 3)
		},
		"under a prefix": func(t *testing.T) (a, b latch) {
			c, servers := locktest.Client(t, 3, quorumlock.WithPrefix("app:"))
			d, _ := locktest.Another(t, servers)
			return c.Latch("x", 3), d.Latch("app:x", 3)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := make(t)
				if a.Name() != "x" {
					t.Errorf("the name is %q", a.Name())
				}
				counts(t, a, 0)
				done(t, a, "1", "2", "1")
				done(t, b, "2")
				counts(t, a, 2)
				counts(t, b, 2)
				isClosed(t, a)
				got := awaits(t, b)
				done(t, a, "3")
				if err := <-got; err != nil {
					t.Errorf("Wait: %v", err)
				}
				done(t, a, "3", "4")
				for _, l := range []latch{a, b} {
					isOpen(t, l)
					counts(t, l, 3)
				}
			})
		})
	}
}

// Those who wait are told. They do not look meanwhile but for a refresh now and then, and are there within a round trip or
// two, wherever they wait.
func TestAWaitIsWokenByAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		var waiters []<-chan error
		for range 3 {
			d, paths := locktest.Another(t, servers)
			locktest.Each(paths, func(s *embedded.Server) { s.Delay(time.Millisecond) })
			waiters = append(waiters, awaits(t, d.Latch("x", 2)))
		}
		done(t, c.Latch("x", 2), "a")
		looked := ran(servers, "latch")
		time.Sleep(5 * time.Minute)
		if n := ran(servers, "latch") - looked; n > 3*3*(5*60/2) {
			t.Errorf("%d looks in five minutes of three who wait, want one in some seconds", n)
		}
		began := time.Now()
		done(t, c.Latch("x", 2), "b")
		for _, got := range waiters {
			if err := <-got; err != nil {
				t.Errorf("Wait: %v", err)
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("told after %v, want a few round trips of 2 ms", took)
		}
	})
}

// No message comes through, or may be heard: then they look.
func TestAWaitFindsOutWithoutAMessage(t *testing.T) {
	for what, spoil := range map[string]func(*embedded.Server){
		"messages are lost": func(s *embedded.Server) { s.LoseMessages(true) },
		"nobody may listen": func(s *embedded.Server) { s.Deny("subscribe") },
		"nobody may tell":   func(s *embedded.Server) { s.Deny("publish") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				d, _ := locktest.Another(t, servers)
				locktest.Each(servers, spoil)
				got := awaits(t, d.Latch("x", 1))
				began := time.Now()
				done(t, c.Latch("x", 1), "a")
				if err := <-got; err != nil {
					t.Errorf("Wait: %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The last id comes while a waiter subscribes, at every moment of that.
func TestAWaitMissesNothingWhileItSubscribes(t *testing.T) {
	for after := time.Duration(0); after <= 30*time.Millisecond; after += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			d, paths := locktest.Another(t, servers)
			warm(t, d)
			locktest.Each(paths, func(s *embedded.Server) { s.Delay(2 * time.Millisecond) })
			l := c.Latch("x", 1)
			got := make(chan error, 1)
			go func() { got <- d.Latch("x", 1).Wait(t.Context()) }()
			time.Sleep(after)
			began := time.Now()
			done(t, l, "a")
			if err := <-got; err != nil {
				t.Errorf("Wait: %v", err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("an id that came %v after Wait was noticed after %v", after, took)
			}
		})
	}
}

// What a quorum has is known at every other quorum. Each of three ids is at two of the nodes, and no node has all.
func TestTheNodesCountTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		_, nodes := locktest.Paths(t, servers)
		for i, id := range []string{"a", "b", "c"} { // as calls that died between their rounds leave them
			for _, n := range []*node.Node{nodes[i], nodes[(i+1)%3]} {
				s, err := transport.Of(n).Send(t.Context(), wire.Latch("x", 3, wire.MakeLatch, time.Hour, n.String(), id))[0].Latched(3)
				if err != nil || s.Open {
					t.Fatalf("%+v, %v", s, err)
				}
			}
		}
		servers[0].Kill()
		l := c.Latch("x", 3)
		counts(t, l, 3)
		isOpen(t, l)
		// It was written back before it was told.
		servers[0].Restart(true)
		servers[1].Kill()
		d, _ := locktest.Another(t, servers)
		isOpen(t, d.Latch("x", 3))
	})
}

// An id that only one node has heard of is not done: its Done has not returned nil, and whoever sees it writes it to a
// quorum before it counts.
func TestAnIDThatIsToldIsAtAQuorum(t *testing.T) {
	for what, tell := range map[string]func(t *testing.T, l latch){
		"Count": func(t *testing.T, l latch) { counts(t, l, 1) },
		"Wait":  isOpen,
		"Done":  func(t *testing.T, l latch) { done(t, l, "b") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				c, paths := locktest.Another(t, servers)
				kill(paths[1:]...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.Latch("x", 1).Done(ctx, "a")
				if _, few := errors.AsType[*quorumlock.QuorumError](err); !few || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("Done at one node of three: %v, want DeadlineExceeded and a QuorumError", err)
				}
				d, ways := locktest.Another(t, servers)
				ways[2].Kill()
				tell(t, d.Latch("x", 1))
				synctest.Wait()
				servers[0].Kill()
				e, _ := locktest.Another(t, servers)
				isOpen(t, e.Latch("x", 1))
			})
		})
	}
}

func TestALostReplyCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		l := c.Latch("x", 3)
		done(t, l, "a")
		locktest.Each(servers, func(s *embedded.Server) { s.LoseReplies(2) })
		done(t, l, "b")
		done(t, l, "b")
		counts(t, l, 2)
		isClosed(t, l)
	})
}

// As many nodes forget as may. Those who come then find what was done.
func TestALatchStaysOpenWhenAsManyForgetAsMay(t *testing.T) {
	for _, tt := range []struct{ nodes, quorum int }{{3, 3}, {5, 4}, {5, 5}, {4, 3}} {
		t.Run(fmt.Sprintf("%d of %d", tt.quorum, tt.nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forget := 2*tt.quorum - tt.nodes - 1
				c, servers := locktest.Client(t, tt.nodes, quorumlock.WithQuorum(tt.quorum))
				half, open := c.Latch("half", 2), c.Latch("open", 2)
				done(t, half, "a")
				done(t, open, "a", "b")
				isOpen(t, open)
				locktest.Each(servers[:forget], func(s *embedded.Server) { s.Restart(false) })
				// A quorum that has as little of it as possible.
				for i := range tt.nodes {
					d, paths := locktest.Another(t, servers, quorumlock.WithQuorum(tt.quorum))
					for j := range tt.nodes - tt.quorum {
						paths[(forget+i+j)%tt.nodes].Kill()
					}
					isOpen(t, d.Latch("open", 2))
					counts(t, d.Latch("open", 2), 2)
					counts(t, d.Latch("half", 2), 1)
					locktest.Each(paths, func(s *embedded.Server) { s.Restart(true) })
				}
				done(t, c.Latch("half", 2), "b")
				isOpen(t, half)
			})
		})
	}
}

// One node after the other restarts without its data. Each is given what it forgot by the next call.
func TestALatchIsRestoredWhereItWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithQuorum(4))
		l := c.Latch("x", 3)
		done(t, l, "a", "b")
		for range 3 {
			for i := range servers {
				servers[i].Restart(false)
				d, _ := locktest.Another(t, servers, quorumlock.WithQuorum(4))
				isClosed(t, d.Latch("x", 3))
				counts(t, d.Latch("x", 3), 2)
			}
		}
		done(t, l, "c")
		for i := range servers {
			servers[i].Restart(false)
			d, _ := locktest.Another(t, servers, quorumlock.WithQuorum(4))
			isOpen(t, d.Latch("x", 3))
		}
	})
}

func TestALatchThatIsForgottenSaysSo(t *testing.T) {
	for what, forget := range map[string]func(servers []*embedded.Server){
		"retention": func([]*embedded.Server) { time.Sleep(quorumlock.DefaultRetention + time.Second) },
		"restarts": func(servers []*embedded.Server) {
			locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		},
	} {
		for _, ids := range [][]string{{"a"}, {"a", "b"}} {
			t.Run(fmt.Sprint(what, " with ", len(ids)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 3)
					l, waited := c.Latch("x", 2), c.Latch("x", 2)
					done(t, l, ids...)
					if len(ids) == 2 {
						isOpen(t, waited)
					} else {
						isClosed(t, waited)
					}
					synctest.Wait() // all nodes have answered: what comes later would make it once more
					forget(servers)
					if err := l.Done(t.Context(), "c"); !errors.Is(err, quorumlock.ErrLatchForgotten) {
						t.Errorf("Done: %v, want ErrLatchForgotten", err)
					}
					if len(ids) == 2 {
						isOpen(t, waited) // it has been open
					} else if err := waited.Wait(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
						t.Errorf("Wait: %v, want ErrLatchForgotten", err)
					} else if _, err := waited.Count(t.Context()); !errors.Is(err, quorumlock.ErrLatchForgotten) {
						t.Errorf("Count: %v, want ErrLatchForgotten", err)
					}
					locktest.NoLocks(t, servers) // and nothing was added
					done(t, c.Latch("x", 2), "c")
					counts(t, c.Latch("x", 2), 1) // another latch, as documented
				})
			})
		}
	}
}

// A Wait that waits finds out that the latch is gone, and keeps it otherwise, however long that takes.
func TestAWaitKeepsTheLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithRetention(time.Minute))
		d, _ := locktest.Another(t, servers, quorumlock.WithRetention(time.Minute))
		done(t, c.Latch("x", 2), "a")
		got := awaits(t, d.Latch("x", 2))
		for i := range servers { // none of them is out of reach for long, but each is once
			servers[i].Kill()
			time.Sleep(2 * time.Minute)
			servers[i].Restart(true)
			time.Sleep(time.Minute)
		}
		counts(t, c.Latch("x", 2), 1)
		locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
		if err := <-got; !errors.Is(err, quorumlock.ErrLatchForgotten) {
			t.Errorf("Wait: %v, want ErrLatchForgotten", err)
		}
	})
}

// A node that is out of reach for longer than the retention has forgotten what it had. So what is used is kept by a quorum
// as a whole, not one id here and the other there.
func TestALatchThatIsUsedIsKeptAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		c, paths := locktest.Another(t, servers, quorumlock.WithRetention(time.Minute))
		l := c.Latch("x", 3)
		paths[1].Kill()
		done(t, l, "a") // at 1 and 3
		paths[1].Restart(true)
		paths[2].Kill()
		time.Sleep(50 * time.Second)
		done(t, l, "b") // at 1 and 2
		time.Sleep(50 * time.Second)
		paths[2].Restart(true)
		paths[0].Kill()
		counts(t, l, 2)
	})
}

func TestASlowNodeDelaysNoLatch(t *testing.T) {
	for what, fall := range map[string]func(*embedded.Server){"frozen": (*embedded.Server).Stall, "mute": (*embedded.Server).Mute, "dead": (*embedded.Server).Kill} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 5)
				c, paths := locktest.Another(t, servers)
				d, _ := locktest.Another(t, servers)
				warm(t, c)
				locktest.Each(paths[:2], fall)
				got := awaits(t, d.Latch("x", 2))
				began := time.Now()
				l := c.Latch("x", 2)
				done(t, l, "a", "b")
				isOpen(t, l)
				counts(t, l, 2)
				if err := <-got; err != nil {
					t.Errorf("Wait: %v", err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
				locktest.Each(paths, (*embedded.Server).Resume)
			})
		})
	}
}

// Calls ride out a time without a quorum, log it once, and say why they failed.
func TestALatchRidesOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logging()
		c, servers := locktest.Client(t, 3, logger)
		l := c.Latch("x", 2)
		done(t, l, "a")
		got := awaits(t, c.Latch("x", 2))
		kill(servers[:2]...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := l.Done(ctx, "b")
		if few, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || few.Granted > 1 || few.Needed != 2 || len(few.Nodes) != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Done: %v, want DeadlineExceeded and a QuorumError with two nodes", err)
		}
		if _, err := l.Count(t.Context()); err == nil {
			t.Error("Count without a quorum succeeds")
		}
		if lines := log.lines("no quorum", `latch=x`); len(lines) < 1 || len(lines) > 2 {
			t.Errorf("%d lines %q, want one of Done and one of Wait", len(lines), lines)
		}
		locktest.Each(servers[:2], func(s *embedded.Server) { time.AfterFunc(10*time.Second, func() { s.Restart(true) }) })
		done(t, l, "b")
		if err := <-got; err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestTwoAddressesOfOneServerHaveOneVoteOnALatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 2)
		twin, err := servers[0].Node(node.WithName("twin"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := redlock.New(append(nodes, twin))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		done(t, c.Latch("x", 2), "a")
		servers[1].Kill()
		for _, name := range []string{"x", "y"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := c.Latch(name, 2).Done(ctx, "b"); err == nil || !strings.Contains(err.Error(), "same server") {
				t.Errorf("Done of %s at one server of three nodes: %v, want an error that says so", name, err)
			}
		}
	})
}

// Many processes with many ids, at the same time. Whoever waits has exactly as long to wait as there are ids.
func TestALatchOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, each := locktest.Thorough(8, 3), 20
		clients, servers := locktest.Fleet(t, processes, 5)
		_ = servers
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				if err := c.Latch("x", processes*each).Wait(t.Context()); err != nil {
					t.Errorf("Wait: %v", err)
				}
				counts(t, c.Latch("x", processes*each), processes*each)
			})
			wg.Go(func() {
				for j := range each {
					if n, err := c.Latch("x", processes*each).Count(t.Context()); err != nil || n >= processes*each {
						t.Errorf("Count before the last: %d, %v", n, err)
					}
					done(t, c.Latch("x", processes*each), fmt.Sprintf("%d/%d", i, j))
				}
			})
		}
		wg.Wait()
	})
}
