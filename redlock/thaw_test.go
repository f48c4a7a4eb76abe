package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// A node frozen for longer than the TTL runs its socket buffers when it thaws. Two seconds later the lock is free there, even if
// the node reads an old connection after a new one.
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
			t.Run(kind.name+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 3, quorumlock.WithTTL(ttl))
					other, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
					warm(t, c)
					synctest.Wait() // all nodes are connected
					servers[2].Kill()
					servers[1].Stall()
					before := servers[1].Ran()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
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
			})
		}
	}
}

// The same, if the lock was held and waited for when the node froze.
func TestAThawedNodeHasNoWaiterThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 20 * time.Second
		c, servers := locktest.Client(t, 3, quorumlock.WithTTL(ttl))
		waiting, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
		other, _ := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
		held := locktest.Lock(t, c.Mutex("x"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
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

func mutexOf(c *redlock.Client) quorumlock.Locker     { return c.Mutex("x") }
func writerOf(c *redlock.Client) quorumlock.Locker    { return c.RWMutex("x") }
func readerOf(c *redlock.Client) quorumlock.Locker    { return c.RWMutex("x").RLocker() }
func semaphoreOf(c *redlock.Client) quorumlock.Locker { return c.Semaphore("x", 1) }
