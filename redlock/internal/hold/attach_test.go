package hold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// inOrder returns a client of the servers in an order, and its paths in the order of the servers.
func inOrder(t *testing.T, servers []*embedded.Server, order []int) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := locktest.Paths(t, servers)
	moved := make([]*node.Node, len(nodes))
	for i, j := range order {
		moved[i] = nodes[j]
	}
	c := locktest.Of(t, moved)
	locktest.Warm(t, c)
	return c, paths
}

func TestTheNodesOfAnAttachMayBeInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{1, 0, 2, 3, 4}, {4, 3, 2, 1, 0}, {1, 2, 3, 4, 0}} {
		locktest.Run(t, fmt.Sprint(order), func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 5)
			text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), time.Hour)
			c, _ := inOrder(t, servers, order)
			next := attach(t, c, text)
			time.Sleep(10 * time.Second)
			locktest.HoldsAll(t, servers, next)
			late(t, clients[1], text)
			text = detach(t, next, time.Hour)
			locktest.Unlock(t, attach(t, clients[1], text))
			locktest.Nothing(t, servers)
		})
	}
}

// Nothing stays parked at a node that was away while the hold was attached and unlocked.
func TestANodeThatWasAwayKeepsNothingParked(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {2, 1, 0}} {
		for how, harm := range map[string]func(*embedded.Server){"frozen": (*embedded.Server).Stall, "dead": (*embedded.Server).Kill} {
			locktest.Run(t, fmt.Sprint(order, how), func(t *testing.T) {
				clients, servers := locktest.Fleet(t, 1, 3)
				text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), 5*time.Minute)
				c, _ := inOrder(t, servers, order)
				harm(servers[2])
				locktest.MustUnlock(t, locktest.Lock(t, c.Mutex("y"))) // the client notices
				time.Sleep(time.Second)
				locktest.MustUnlock(t, attach(t, c, text))
				time.Sleep(3 * time.Second)
				servers[2].Resume()
				if how == "dead" {
					servers[2].Restart(true)
				}
				time.Sleep(2 * time.Second)
				locktest.Nothing(t, servers)
			})
		}
	}
}

// A node whose number differs has counted a token that is late for another cell. Another Attach has
// it for a moment.
func TestATokenIsLateByTheLimitOfItsOwnCell(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {2, 3, 0, 1}} {
		locktest.Run(t, fmt.Sprint(order), func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 1, 4)
			deaf, paths := locktest.Another(t, servers)
			locktest.Warm(t, deaf)
			lease := locktest.Lock(t, clients[0].Mutex("x"))
			locktest.SetCounters(t, servers, "x", lease.Token(), lease.Token(), lease.Token()+2, lease.Token()+2)
			text := detach(t, lease, time.Minute)
			c, slow := inOrder(t, servers, order)
			locktest.Each(slow[2:], func(s *embedded.Server) { s.Delay(3 * time.Millisecond) })
			locktest.Each(paths[:2], (*embedded.Server).Kill)
			locktest.Each(paths[2:], (*embedded.Server).Mute)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan struct{})
			go func() { defer close(ended); _, _ = deaf.Attach(ctx, text) }()
			time.AfterFunc(150*time.Millisecond, func() { locktest.Each(paths[2:], (*embedded.Server).Resume) })
			time.Sleep(10 * time.Millisecond)
			locktest.Unlock(t, attach(t, c, text))
			<-ended
			time.Sleep(2 * time.Second)
		})
	}
}

// Somebody has a quorum of the nodes, does not know it, and passes them back.
func TestAQuorumThatIsPassedBackIsAttached(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		deaf, paths := locktest.Another(t, servers)
		locktest.Warm(t, deaf)
		text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), time.Minute)
		locktest.Each(paths, (*embedded.Server).Mute)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		attempt := make(chan error, 1)
		go func() { _, err := deaf.Attach(ctx, text); attempt <- err }()
		time.Sleep(10 * time.Millisecond)
		time.AfterFunc(20*time.Millisecond, func() { locktest.Each(paths, (*embedded.Server).Resume) })
		locktest.Unlock(t, attach(t, clients[1], text))
		if err := <-attempt; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Attach without answers: %v, want its ctx's error", err)
		}
		time.Sleep(2 * time.Second)
		locktest.Nothing(t, servers)
	})
}

// A process that has died while attaching has two nodes of five, and another node is silent.
func TestADeadAttacherIsNamedSoon(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		dead, paths := locktest.Another(t, servers)
		locktest.Warm(t, dead)
		text := detach(t, locktest.Lock(t, c.Mutex("x")), time.Minute)
		locktest.Each(paths[:2], (*embedded.Server).Mute)
		locktest.Each(paths[2:], (*embedded.Server).Kill)
		attempt := make(chan error)
		go func() { _, err := dead.Attach(t.Context(), text); attempt <- err }()
		time.Sleep(time.Millisecond)
		locktest.Each(paths, (*embedded.Server).Kill)
		<-attempt
		servers[4].Stall()
		began := time.Now()
		_, err := c.Attach(t.Context(), text)
		if held, ok := errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder == "" || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Attach: %v, want who is in the way, and the silent node", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Attach took %v", took)
		}
		servers[4].Resume()
		time.Sleep(2 * time.Second)
		locktest.Unlock(t, attach(t, c, text)) // three nodes have it
	})
}

// A text that is delivered twice is late also while the hold moves on from process to process.
func TestAHoldThatMovesOnQuicklyIsLost(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, _ := locktest.Fleet(t, 2, 3)
		text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), time.Minute)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for next := text; ; {
				lease, err := clients[0].Attach(t.Context(), next)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					locktest.MustUnlock(t, lease)
					return
				case <-time.After(50 * time.Millisecond):
				}
				if next, err = lease.Detach(t.Context(), time.Minute); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		time.Sleep(time.Second)
		late(t, clients[1], text)
		close(stop)
		<-done
		time.Sleep(time.Second)
	})
}

// An Attach that wins in the moment of a Shutdown, or of a Close, leaves the hold to others, for as
// long as it was to be kept.
func TestAnAttachThatNobodyWantsAnyMore(t *testing.T) {
	for how, end := range map[string]func(*redlock.Client) error{
		"Shutdown": func(c *redlock.Client) error { return c.Shutdown(context.Background()) }, "Close": (*redlock.Client).Close,
	} {
		locktest.Run(t, how, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			lease := locktest.Lock(t, c.Mutex("x"))
			for range 60 {
				d, paths := locktest.Another(t, servers)
				locktest.Warm(t, d)
				locktest.Each(paths, func(s *embedded.Server) { s.Delay(time.Millisecond) })
				text := detach(t, lease, time.Hour)
				ended := make(chan error)
				go func() {
					time.Sleep(2 * time.Millisecond)
					ended <- end(d)
				}()
				next, err := d.Attach(t.Context(), text)
				if err == nil {
					if text, err = next.Detach(t.Context(), time.Hour); err != nil { // it was closed
						<-ended
						time.Sleep(time.Minute)
						lease = locktest.Lock(t, c.Mutex("x"))
						continue
					}
				} else if !errors.Is(err, quorumlock.ErrClosed) {
					t.Fatal("Attach:", err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				lease = attach(t, c, text)
			}
			locktest.Unlock(t, lease)
			locktest.Nothing(t, servers)
		})
	}
}

// A Park that runs late, when the attached hold has been released, stays nowhere for its whole time.
func TestALateParkDoesNotStay(t *testing.T) {
	for name, delay := range map[string]time.Duration{"on its way": 80 * time.Millisecond, "after the node timeout": 200 * time.Millisecond, "frozen": 0} {
		locktest.Run(t, name, func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 1, 3)
			far, paths := locktest.Another(t, servers)
			lease := locktest.Lock(t, far.Mutex("x"))
			if paths[2].Delay(delay); delay == 0 {
				servers[2].Stall()
			}
			text := detach(t, lease, time.Hour)
			locktest.MustUnlock(t, attach(t, clients[0], text))
			time.Sleep(time.Second)
			servers[2].Resume()
			time.Sleep(3 * time.Second)
			locktest.NoLocks(t, servers)
		})
	}
}

// A Detach for a short time does not wait for a silent node until that is over.
func TestAShortDetachDoesNotWaitForASilentNode(t *testing.T) {
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second} {
		locktest.Run(t, d.String(), func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3)
			lease := locktest.Lock(t, clients[0].Mutex("x"))
			servers[2].Stall()
			text := detach(t, lease, d)
			locktest.MustUnlock(t, attach(t, clients[1], text))
			servers[2].Resume()
			time.Sleep(5 * time.Second)
			locktest.Nothing(t, servers)
		})
	}
}

func TestADetachAndAnUnlockAfterCloseAreOneEvent(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		var events locktest.Events
		c, _ := locktest.Client(t, 3, quorumlock.WithObserver(&events))
		lease := locktest.Lock(t, c.Mutex("x"))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := lease.Detach(t.Context(), time.Minute); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Detach: %v, want ErrLost", err)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Unlock: %v, want ErrNotHeld", err)
		}
		if n := events.Of(quorumlock.Released); n != 1 {
			t.Errorf("%d events Released, want 1", n)
		}
	})
}
