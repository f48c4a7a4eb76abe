package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
)

// A MultiLock keeps its entry at the lock that is free while it waits for the other. When somebody else gives up
// there, the first in the queue is called. It is the MultiLock, which does not come: it knows.
func TestAnEntryAtAFreeLockIsKeptWhileItsWaiterRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, _ := locktest.Fleet(t, 4, 3)
		b := locktest.MustLock(t, cs[0].Mutex("B"))
		m, err := multilock.New([]quorumlock.Locker{cs[1].Mutex("A"), cs[1].Mutex("B")})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := locktest.MustLock(t, m)
			locktest.MustUnlock(t, l)
		}()
		time.Sleep(10 * time.Millisecond)
		if l, err := cs[3].Mutex("A").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("control: %v %v", l, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, err := cs[2].Mutex("A").Lock(ctx); err == nil {
			t.Fatal("control")
		}
		cancel()
		time.Sleep(548 * time.Millisecond)
		l, err := cs[3].Mutex("A").TryLock(t.Context())
		if err == nil {
			t.Errorf("TryLock passed a live waiter that came 560 ms earlier")
			locktest.MustUnlock(t, l)
		}
		locktest.MustUnlock(t, b)
		<-done
	})
}

func TestNamesWithAndWithoutBracesHaveQueuesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, _ := locktest.Fleet(t, 3, 3)
		h := locktest.MustLock(t, cs[0].Mutex("{x}"))
		go func() {
			l := locktest.MustLock(t, cs[1].Mutex("{x}"))
			locktest.MustUnlock(t, l)
		}()
		time.Sleep(10 * time.Millisecond)
		if free, err := cs[2].Mutex("x").TryLock(t.Context()); err != nil {
			t.Errorf("x is free, but TryLock says %v", err)
		} else {
			locktest.MustUnlock(t, free)
		}
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute) // holder of {x} wants x: nobody else has x
		defer cancel()
		if free, err := cs[0].Mutex("x").Lock(ctx); err != nil {
			t.Errorf("a minute for a free lock: %v", err)
		} else {
			locktest.MustUnlock(t, free)
		}
		locktest.MustUnlock(t, h)
		time.Sleep(time.Second)
	})
}

func TestReentryOfAGoodLeaseRidesOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithTTL(10*time.Second))
		l := locktest.MustLock(t, c.Mutex("x"))
		for _, s := range servers {
			s.Kill()
		}
		time.Sleep(8 * time.Second)
		at := time.Now()
		ctx, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		inner, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			t.Errorf("Lock gave up after %v with %v of validity left: %v", time.Since(at), time.Until(l.ValidUntil()), err)
		} else {
			_ = inner.Unlock(t.Context())
		}
		for _, s := range servers {
			s.Restart(true)
		}
		_ = l.Unlock(t.Context()) // go-redis may take a second to find out that the nodes are back
	})
}

func TestAnExhaustedCounterSpoilsNoOtherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		for _, s := range servers {
			if err := s.Redis.Set(wire.TokenKey("bad"), "9007199254740990"); err != nil {
				t.Fatal(err)
			}
		}
		l := locktest.MustLock(t, c.Mutex("bad"))
		locktest.MustUnlock(t, l)
		_, err := c.Mutex("payments").TryLock(t.Context())
		if err != nil {
			t.Errorf("another lock altogether: %v", err)
		}
	})
}

// TryLock pollers and impatient waiters against one MultiLock that came first.
func TestMultiLockIsNotStarvedByPollers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, _ := locktest.Fleet(t, 6, 3)
		m, err := multilock.New([]quorumlock.Locker{cs[0].Mutex("A"), cs[0].Mutex("B")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var jumps atomic.Int64
		hold := map[string]*quorumlock.Lease{"A": locktest.MustLock(t, cs[1].Mutex("A")), "B": locktest.MustLock(t, cs[2].Mutex("B"))}
		finished := make(chan struct{}, 4)
		for i, name := range []string{"A", "B"} {
			l := hold[name]
			go func() { // holds for 1.8 s, then polls with TryLock
				defer func() { finished <- struct{}{} }()
				time.Sleep(time.Duration(i) * 900 * time.Millisecond)
				for {
					time.Sleep(1800 * time.Millisecond)
					locktest.MustUnlock(t, l)
					for {
						if ctx.Err() != nil {
							return
						}
						time.Sleep(5 * time.Millisecond)
						if next, err := cs[1+i].Mutex(name).TryLock(t.Context()); err == nil {
							l = next
							jumps.Add(1)
							break
						}
					}
				}
			}()
			go func() { // comes, and gives up at once
				defer func() { finished <- struct{}{} }()
				for ctx.Err() == nil {
					c, cancel := context.WithTimeout(ctx, time.Millisecond)
					if l, err := cs[3+i].Mutex(name).Lock(c); err == nil {
						locktest.MustUnlock(t, l)
					}
					cancel()
					time.Sleep(50 * time.Millisecond)
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		at := time.Now()
		long, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		l, err := m.Lock(long)
		stop()
		if d := time.Since(at); err != nil || d > 3*time.Second {
			t.Errorf("it waited %v, and others got past it %d times: %v", d, jumps.Load(), err)
		}
		if err == nil {
			locktest.MustUnlock(t, l)
		}
		for range 4 {
			<-finished
		}
		time.Sleep(12 * time.Second)
	})
}

// If the entry of a holder at a node that refused it was not removed, since the request was lost, the release removes
// it: it would hold up those behind it.
func TestAnEntryThatCouldNotBeRemovedIsRemovedWithTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		n, err := servers[2].Node()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() //nolint:errcheck // a test's node
		if _, err := n.Acquire(t.Context(), "x", "other:1", time.Minute, 1); err != nil {
			t.Fatal(err)
		}
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "leave" {
				servers[2].Kill()
			}
		})
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[2].Before(nil)
		servers[2].Restart(true)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Fatal("control: the entry was removed")
		}
		locktest.Unlock(t, lease)
		if servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("the entry is still there")
		}
		servers[2].Redis.Del("x")
		locktest.Nothing(t, servers)
	})
}

// Waiters that died while the lock was held for long do not keep the living far back, where entries are refreshed
// seldom.
func TestManyDeadInTheQueueDoNotDelayTheNextWhenTheHolderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 1)
		n, err := servers[0].Node()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() //nolint:errcheck // a test's node
		const ttl = 31 * time.Second
		if _, err := n.Acquire(t.Context(), "x", "holder:1", ttl, 1); err != nil {
			t.Fatal(err)
		}
		died := time.Now()
		for i := range 90 {
			p := wire.Entry{Waiter: quorumlock.Owner(fmt.Sprintf("dead:%d", i)), Ticket: int64(i), TTL: 2 * time.Second}
			if r := transport.Of(n).Send(t.Context(), wire.AcquireInTurn("x", "dead:0", ttl, 1, p))[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		lease := locktest.MustLock(t, c.Mutex("x"))
		if late := time.Since(died) - ttl; late > 100*time.Millisecond {
			t.Errorf("served %v after the holder's TTL", late)
		}
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

// The queue costs no subscription to those who need not wait.
func TestUncontendedLockSubscribesToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, servers := locktest.Fleet(t, 2, 3)
		locktest.Unlock(t, locktest.Lock(t, cs[0].Mutex("x")))
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) > 0 || s.Ran() != 2 {
				t.Errorf("%s: %d scripts and subscriptions to %q, want two and none", s.Name, s.Ran(), channels)
			}
		}
		lease := locktest.Lock(t, cs[0].Mutex("x"))
		go func() { locktest.MustUnlock(t, locktest.MustLock(t, cs[1].Mutex("x"))) }()
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) != 1 {
				t.Errorf("%s: subscriptions to %q, want that of the one who waits", s.Name, channels)
			}
		}
		locktest.MustUnlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

func TestWhoIsNextRefreshesNoLaterForBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, servers := locktest.Fleet(t, 2, 3)
		holder := locktest.MustLock(t, cs[0].Mutex("x"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			locktest.MustUnlock(t, locktest.MustLock(t, cs[1].Mutex("x")))
		}()
		time.Sleep(500 * time.Millisecond)
		before := servers[0].Ran("acquire")
		for _, s := range servers {
			line, err := s.Redis.ZMembers(wire.QueueKey("x"))
			if err != nil || len(line) != 1 {
				t.Fatalf("control: %v %v", line, err)
			}
			for _, waiter := range line {
				client, _, _ := strings.Cut(waiter, ":")
				if s.Redis.Publish(wire.WakeChannel(client), "next "+waiter+" x") != 1 {
					t.Fatal("control: nobody listens")
				}
			}
		}
		time.Sleep(150 * time.Millisecond) // it was due after 600 ms
		if servers[0].Ran("acquire") == before {
			t.Error("the refresh was put off")
		}
		locktest.MustUnlock(t, holder)
		<-done
	})
}

// blocks holds back one run of a script at a server, counted from 1, until the channel is closed.
func blocks(s *embedded.Server, script string, nth int32, until <-chan struct{}) {
	var runs atomic.Int32
	s.Before(func(r embedded.Run) {
		if r.Script == script && runs.Add(1) == nth {
			<-until
		}
	})
}

// The request of an attempt may be so late that a later attempt has the lock when it joins the queue. Its answer was
// not waited for, so the winner leaves every queue.
func TestAWinnerLeavesTheQueueThatAnEarlierAttemptJoinedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs, servers := locktest.Fleet(t, 2, 3)
		holder := locktest.MustLock(t, cs[0].Mutex("y"))
		y := locktest.Waiter(t, cs[1].Mutex("y")) // it hears its turn from now on
		locktest.MustUnlock(t, holder)
		locktest.MustUnlock(t, <-y)
		holder = locktest.MustLock(t, cs[0].Mutex("x"))
		synctest.Wait() // the third node has granted it, too
		joins, decides := make(chan struct{}), make(chan struct{})
		blocks(servers[0], "acquire", 2, decides)
		blocks(servers[1], "acquire", 2, decides)
		blocks(servers[2], "acquire", 1, joins)
		// Without renewal nothing is handed over: it takes a second attempt.
		got := make(chan *quorumlock.Lease)
		go func() {
			got <- locktest.MustLock(t, cs[1].Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithNodeTimeout(50*time.Millisecond)))
		}()
		time.Sleep(100 * time.Millisecond) // the third node has not answered the first attempt in time
		locktest.MustUnlock(t, holder)
		time.Sleep(10 * time.Millisecond) // the second attempt has the third node, and waits for the others
		close(joins)
		time.Sleep(10 * time.Millisecond)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("control: the first attempt has not joined the queue")
		}
		close(decides)
		lease := <-got
		time.Sleep(20 * time.Millisecond)
		for _, s := range servers {
			if s.Redis.Exists(wire.QueueKey("x")) {
				t.Errorf("the holder is queued at %s", s.Name)
			}
		}
		locktest.MustUnlock(t, lease)
	})
}
