package sick

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// A node frozen for longer than the TTL runs its socket buffers when it thaws. Two seconds later
// the lock is free there, even if the node reads an old connection after a new one.
func TestAThawedNodeHasTheLockForNobody(t *testing.T) {
	const ttl = 20 * time.Second
	kinds := []struct {
		name   string
		former func(c *redlock.Client) quorumlock.Locker // calls while the node is frozen
		next   func(c *redlock.Client) quorumlock.Locker // calls after the thaw
	}{
		{"mutex", mutexOf, mutexOf},
		{"writer", writerOf, readerOf},
		{"reader", readerOf, writerOf},
		{"semaphore", semaphoreOf, semaphoreOf},
	}
	for _, kind := range kinds {
		for name, late := range map[string]time.Duration{"": 0, ", late": 300 * time.Millisecond} {
			locktest.Run(t, kind.name+name, func(t *testing.T) {
				c, servers := locktest.Client(t, 3, quorumlock.WithTTL(ttl))
				other, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
				locktest.Warm(t, c)
				synctest.Wait() // all nodes are connected
				servers[2].Kill()
				servers[1].Stall()
				before := servers[1].Ran()
				ctx := locktest.Within(t, time.Second)
				if _, err := kind.former(c).Lock(ctx); err == nil {
					t.Fatal("granted without a quorum")
				}
				time.Sleep(2 * ttl)
				servers[1].Before(func(r embedded.Run) {
					if r.Script == "acquire" || r.Script == "share" || r.Script == "slot_acquire" {
						time.Sleep(late)
					}
				})
				servers[1].Resume()
				time.Sleep(2 * time.Second)
				servers[1].Before(nil)
				if servers[1].Ran() == before {
					t.Fatal("control: nothing was in the sockets of the node")
				}
				locktest.Unlock(t, locktest.TryLock(t, kind.next(other)))
			})
		}
	}
}

// The same, if the lock was held and waited for when the node froze.
func TestAThawedNodeHasNoWaiterThatHasGone(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		const ttl = 20 * time.Second
		c, servers := locktest.Client(t, 3, quorumlock.WithTTL(ttl))
		waiting, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
		other, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
		held := locktest.Lock(t, c.Mutex("x"))
		ctx := locktest.Within(t, 3*time.Second)
		time.AfterFunc(time.Second, func() { // the waiter refreshes its entry after that
			servers[2].Kill()
			servers[1].Stall()
		})
		if _, err := waiting.Mutex("x").Lock(ctx); err == nil {
			t.Fatal("two have the lock")
		}
		_ = held.Unlock(t.Context()) // one of three confirms
		time.Sleep(2 * ttl)
		servers[1].Resume()
		time.Sleep(2 * time.Second)
		locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
		servers[2].Restart(true)
		time.Sleep(2 * time.Second)
		locktest.Nothing(t, servers)
	})
}

func mutexOf(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") }

func writerOf(c *redlock.Client) quorumlock.Locker { return c.RWMutex("x") }

func readerOf(c *redlock.Client) quorumlock.Locker { return c.RWMutex("x").RLocker() }

func semaphoreOf(c *redlock.Client) quorumlock.Locker { return c.Semaphore("x", 1) }

// An acquire and the release behind it go to a node in one pipeline. The node knows only the script
// of the release, and runs it. The acquire must not run after that.
func TestAnAcquireOfAnUnknownScriptDoesNotRunAfterItsRelease(t *testing.T) {
	for _, unlocks := range []bool{false, true} {
		name := "the caller goes"
		if unlocks {
			name = "the caller unlocks"
		}
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			locktest.Warm(t, c)
			unknowing := servers
			if unlocks { // the others grant
				unknowing = servers[2:]
			}
			locktest.Each(unknowing, func(s *embedded.Server) {
				s.FlushScripts()
				n, err := s.Node()
				locktest.Must(t, err, "Node")
				defer n.Close() //nolint:errcheck // nothing is on its way
				locktest.Must(t, n.Client().ScriptLoad(t.Context(), wire.Release("", "", 0).Script.Source).Err(), "ScriptLoad")
				s.Delay(10 * time.Millisecond)
			})
			// Later requests go in one pipeline.
			go func() { _, _ = c.Mutex("y").Inspect(t.Context()) }()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			released, acquired := servers[2].Ran("release"), servers[2].Ran("acquire")
			lease, err := c.Mutex("x").Lock(ctx)
			switch {
			case unlocks && err == nil:
				locktest.MustUnlock(t, lease)
			case unlocks || !errors.Is(err, context.Canceled):
				t.Errorf("Lock: %v", err)
			}
			time.Sleep(time.Second)
			if servers[2].Ran("release") == released {
				t.Error("control: the release has not run")
			}
			locktest.Equal(t, servers[2].Ran("acquire")-acquired, 0, "runs of the acquire")
			locktest.NoLocks(t, servers)
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			locktest.Nothing(t, servers)
		})
	}
}

// Connecting takes several round trips. If they take longer than one call may, the connection is
// still made, for later calls.
func TestConnectionThatTakesLongerThanTheNodeTimeoutIsMadeAllTheSame(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithWait(2*time.Second))
		// A script takes 24 ms.
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(12 * time.Millisecond) })
		lease := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(time.Second) // by then the late ones have a connection, too
		locktest.Unlock(t, lease)
		// A script that was sent as its time ran out, at a node that was out of reach for its
		// release, is over with its TTL.
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}

// Two nodes of five are far away, or do not answer for a while. If a hold ends before its attempt
// is sent to such a node, neither the attempt nor a release is sent there, and nothing is left
// behind. The client notices that a node does not answer, and that it answers again.
func TestShortHoldsAreNotSentToNodesThatAreBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		fall func(*embedded.Server)
		down int  // so many nodes are noticed to be down
		late bool // an attempt that was given up may run when the node goes on, after its release
	}{
		{"far away", func(s *embedded.Server) { s.Delay(50 * time.Millisecond) }, 0, false},
		{"stalled", (*embedded.Server).Stall, 2, true},
		{"silent", (*embedded.Server).Mute, 2, false},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			const callers, holds = 8, 100
			of := &locktest.Events{}
			c, servers := locktest.Client(t, 5, quorumlock.WithObserver(of))
			locktest.Warm(t, c)
			var before [5]int
			for i, s := range servers {
				before[i] = s.Ran("acquire") + s.Ran("release")
			}
			locktest.Each(servers[3:], tt.fall)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for range holds {
						lease, err := c.Mutex(fmt.Sprint("own-", i)).Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Millisecond)
						locktest.MustUnlock(t, lease)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second)
			asked, down := of.Of(quorumlock.NodeAsked), of.Of(quorumlock.NodeDown)
			if all := 5 * 2 * callers * holds; down != tt.down || asked > all*3/4 {
				t.Errorf("%d nodes are said to be down, want %d; %d calls of %d were sent, or failed", down, tt.down, asked, all)
			}
			locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(0); s.Resume() })
			if tt.late {
				time.Sleep(quorumlock.DefaultTTL)
			}
			time.Sleep(2 * time.Second)
			locktest.NoLocks(t, servers)
			for i, s := range servers {
				n := s.Ran("acquire") + s.Ran("release") - before[i]
				if all := 2 * callers * holds; i < 3 && n != all {
					t.Errorf("%s ran %d scripts, want %d", s.Name, n, all)
				} else if i >= 3 && n > all/3 {
					t.Errorf("%s ran %d scripts of %d, want a third at most", s.Name, n, all)
				}
			}
			locktest.Unlock(t, locktest.TryLock(t, c.Mutex("after")))
			time.Sleep(quorumlock.DefaultTTL)
			locktest.Equal(t, of.Of(quorumlock.NodeUp), tt.down, "nodes are said to be up again")
			locktest.Nothing(t, servers)
		})
	}
}

// The reply to a script is lost after it ran. At a minority this costs nothing; at more nodes the
// caller gets an error, and a grant without its knowledge is released. No script takes effect
// twice.
func TestAScriptWhoseReplyIsLostTakesEffectOnce(t *testing.T) {
	for _, script := range []string{"acquire", "raise", "renew", "release"} {
		for _, lost := range []int{2, 3, 5} {
			locktest.Run(t, fmt.Sprintf("%s at %d of 5", script, lost), func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				other, _ := locktest.Another(t, servers)
				if script == "raise" {
					locktest.SetCounters(t, servers, "x", locktest.Ahead(10), locktest.Ahead(20), locktest.Ahead(30), locktest.Ahead(40), locktest.Ahead(50))
				}
				var mu sync.Mutex
				raised := make(map[string]int) // by server and owner
				locktest.Each(servers, func(s *embedded.Server) {
					s.After(func(r embedded.Run) {
						mu.Lock()
						defer mu.Unlock()
						if r.Script == "raise" {
							raised[s.Name+" "+r.Args[0]]++
						}
					})
				})
				for _, s := range servers[:lost] {
					s.Before(func(r embedded.Run) {
						if r.Script == script {
							s.Before(nil)
							s.LoseReplies(1)
						}
					})
				}
				few := func(what string, err error) {
					t.Helper()
					q, ok := errors.AsType[*quorumlock.QuorumError](err)
					if ok != (lost > 2) || (err != nil) != ok || errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrLost) || ok && (q.Needed != 3 || len(q.Nodes) < 3) {
						t.Errorf("%s: %v, want a QuorumError of 3 nodes if a majority did not answer", what, err)
					}
				}
				// With lost raises, in its next attempt.
				lease, err := c.Mutex("x").TryLock(t.Context())
				if script == "acquire" {
					few("TryLock", err)
				} else if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err == nil {
					if n := locktest.AtLeast(t, servers, "x", lease.Token()); n < 3 {
						t.Errorf("%d nodes count on from the token, want 3", n)
					}
					time.Sleep(2 * quorumlock.DefaultTTL)
					locktest.Held(t, lease)
					for i, s := range servers {
						if n := s.Redis.HGet("x", string(wire.OfCell(lease.Owner(), i))); n != "1" {
							t.Errorf("the hold count at %s is %q, want 1", s.Name, n)
						}
					}
					if err := lease.Unlock(t.Context()); script == "release" {
						few("Unlock", err)
					} else if err != nil {
						t.Error("Unlock:", err)
					}
				}
				synctest.Wait()
				if n := locktest.Ran(servers, script); n > 5 && script != "renew" && script != "raise" {
					t.Errorf("%s ran %d times at 5 nodes", script, n)
				}
				// A second attempt may raise once more, under its own owner.
				for of, n := range raised {
					if n > 1 {
						t.Errorf("raise ran %d times at a node for %s", n, of)
					}
				}
				locktest.NoLocks(t, servers)
				locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
				locktest.Nothing(t, servers)
			})
		}
	}
}
