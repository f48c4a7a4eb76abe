package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// A listener that comes to a channel which stands already is told at once, by the call that listens, that it may have
// missed something. So must nobody who listens wait for himself, whenever the channel is confirmed.
func TestCallersOfOneLockListenWhileItsChannelIsConfirmed(t *testing.T) {
	for _, after := range []time.Duration{0, 5, 10, 15, 19, 20, 21, 25, 30, 35, 39, 40, 41, 45, 50, 60, 80, 1000} {
		synctest.Test(t, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			c, paths := another(t, servers, quorumlock.WithRedissonWakeups())
			other, _ := another(t, servers)
			warm(t, c)
			holder := locktest.Lock(t, other.Mutex("x"))
			each(paths, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
			first := waits(t, c.Mutex("x"))
			time.Sleep(after * time.Millisecond)
			second := waits(t, c.Mutex("x"))
			time.Sleep(time.Second)
			locktest.Unlock(t, holder)
			mustUnlock(t, served(t, first, holder))
			mustUnlock(t, served(t, second, holder))
			locktest.Nothing(t, servers)
		})
	}
}

// The subscription of a client is closed some time after its last waiter has gone. A waiter that comes at that moment
// hears its node all the same.
func TestACallerWhoListensWhenTheSubscriptionIsClosedHearsOfItsTurn(t *testing.T) {
	const linger = 10 * time.Second
	for _, off := range []time.Duration{-time.Millisecond, 0, 0, 0, 0, 0, 0, 0, 0, time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond} {
		for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				c, paths := another(t, servers)
				other, _ := another(t, servers)
				warm(t, c)
				holder := locktest.Lock(t, other.Mutex("x"))
				first := waits(t, c.Mutex("x"))
				time.Sleep(time.Second + 100*time.Millisecond)
				locktest.Unlock(t, holder)
				lease := served(t, first, holder) // its waiter has gone: the time runs
				mustUnlock(t, lease)
				holder = mustLock(t, other.Mutex("x"))
				each(paths, func(s *embedded.Server) { s.Delay(delay) })
				time.Sleep(linger + off - 2*delay) // an attempt comes before the wait
				next := waits(t, c.Mutex("x"))
				time.Sleep(5*time.Second + 300*time.Millisecond)
				before := ran(servers, "acquire")
				locktest.Unlock(t, holder)
				last := served(t, next, holder)
				if n := ran(servers, "acquire") - before; n > 0 {
					t.Errorf("%v from the close, %v away: %d attempts after Unlock, want the message of a handoff to be heard", off, delay, n)
				}
				mustUnlock(t, last)
				locktest.Nothing(t, servers)
			})
		}
	}
}
