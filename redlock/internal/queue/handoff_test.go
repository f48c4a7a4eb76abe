package queue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

func TestALockIsHandedOverWithoutAnotherAttempt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		locktest.Warm(t, clients[1])
		got := locktest.Waiter(t, clients[1].Mutex("x"))
		attempts := locktest.Ran(servers, "acquire")
		locktest.MustUnlock(t, holder)
		lease := <-got
		if n := locktest.Ran(servers, "acquire") - attempts; n != 0 {
			t.Errorf("%d attempts after Unlock, want none", n)
		}
		if lease.Token() <= holder.Token() {
			t.Errorf("token %d after %d", lease.Token(), holder.Token())
		}
		left := time.Until(lease.ValidUntil())
		if left <= 0 || left > 1800*time.Millisecond {
			t.Errorf("valid for %v, want no more than what was handed over", left)
		}
		time.Sleep(60 * time.Millisecond)
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v a little later, want it renewed for the whole TTL", left)
		}
		locktest.HoldsAll(t, servers, lease)
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

func TestWithoutRenewalNothingIsHandedOver(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, _ := locktest.Fleet(t, 2, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		got := locktest.Waiter(t, clients[1].Mutex("x", quorumlock.WithoutRenewal()))
		locktest.MustUnlock(t, holder)
		lease := <-got
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v, want the whole TTL", left)
		}
		locktest.MustUnlock(t, lease)
	})
}

// A waiter that dies during a handoff keeps the next one waiting for the TTL of the handoff.
func TestALockThatWasHandedToADeadWaiterGoesOn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		first, servers := locktest.Client(t, 5)
		second, dying := locktest.Another(t, servers)
		third, _ := locktest.Another(t, servers)
		holder := locktest.MustLock(t, first.Mutex("x"))
		ctx, cancel := context.WithCancel(t.Context())
		dead := locktest.Call(t, ctx, second.Mutex("x").Lock)
		got := locktest.Waiter(t, third.Mutex("x"))
		locktest.Kill(dying...)
		start := time.Now()
		locktest.MustUnlock(t, holder)
		lease := <-got
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("it took %v, want the 1.8 s of the dead waiter and no more than 2 s", d)
		}
		locktest.MustUnlock(t, lease)
		cancel()
		if lease := <-dead; lease != nil {
			t.Errorf("the dead one has got %v", lease)
		}
		locktest.Restart(dying...)
	})
}

// The members of a MultiLock may have their own nodes for the same servers. Then the client hears
// every message twice, once for each node, and long after: the second time changes nothing.
func TestAHandoffThatIsHeardTwiceIsKept(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 4, 3)
		for i, s := range servers {
			// So that the copies come before the quorum has spoken.
			s.Delay(time.Duration(i+1) * 200 * time.Microsecond)
		}
		both := locktest.Multi(t, clients[1].Mutex("A"), clients[2].Mutex("B"))
		check := func(l quorumlock.Locker, names ...string) {
			var holds []*quorumlock.Lease
			for _, name := range names {
				holds = append(holds, locktest.MustLock(t, clients[0].Mutex(name)))
			}
			got := locktest.Waiter(t, l)
			for _, h := range holds {
				go locktest.MustUnlock(t, h)
			}
			lease := <-got
			for _, name := range names {
				locktest.Refused(t, clients[3].Mutex(name))
			}
			time.Sleep(time.Minute)
			locktest.Held(t, lease)
			locktest.MustUnlock(t, lease)
		}
		for range 5 {
			check(both, "A", "B")
			check(clients[1].Mutex("x"), "x")
		}
		locktest.NoLocks(t, servers)
	})
}

// A lock is handed over for a short time. Nodes that stall just then do not cost the lease.
func TestWhatWasHandedOverOutlivesAStall(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		for phase := time.Duration(0); phase < 600*time.Millisecond; phase += 100 * time.Millisecond {
			holder := locktest.MustLock(t, clients[0].Mutex("x"))
			got := locktest.Waiter(t, clients[1].Mutex("x"))
			time.Sleep(phase)
			locktest.MustUnlock(t, holder)
			lease := <-got
			locktest.Each(servers, (*embedded.Server).Stall)
			time.Sleep(quorumlock.DefaultTTL / 20)
			locktest.Each(servers, (*embedded.Server).Resume)
			time.Sleep(time.Minute)
			locktest.Held(t, lease)
			locktest.MustUnlock(t, lease)
		}
	})
}

// If a handoff is heard so late that the first renewal might come too late, another attempt takes
// it over, for the whole TTL.
func TestAHandoffOfWhichTooLittleIsLeftIsNotTaken(t *testing.T) {
	for late, want := range map[time.Duration]bool{0: true, 15 * time.Millisecond: false} {
		locktest.Run(t, late.String(), func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(485*time.Millisecond))
			holder := locktest.MustLock(t, clients[0].Mutex("x"))
			locktest.Warm(t, clients[1])
			got := locktest.Waiter(t, clients[1].Mutex("x"))
			// 480 ms since it came; a node hands over for half a second.
			time.Sleep(460 * time.Millisecond)
			for _, s := range servers {
				s.Delay(late)
			}
			locktest.MustUnlock(t, holder)
			lease := <-got
			if _, handed, _ := strings.Cut(string(lease.Owner()), "/"); (handed != "") != want {
				t.Errorf("held by %s", lease.Owner())
			}
			locktest.MustUnlock(t, lease)
			locktest.NoLocks(t, servers)
		})
	}
}
