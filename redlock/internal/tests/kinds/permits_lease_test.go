package kinds

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// A context of the lease enters as many of its permits as it asks for, and keeps these.
func TestALeaseOfSeveralPermitsIsEntered(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		s := c.Semaphore("x", 4)
		outer := testkit.Lock(t, several{s, 3})
		before := testkit.Ran(servers)
		two := testkit.LockIn(t, outer.Context(), several{s, 2})
		three := testkit.LockIn(t, two.Context(), several{s, 3})
		one := testkit.LockIn(t, two.Context(), s)
		for _, l := range []*quorumlock.Lease{two, three, one} {
			if l.Slot() != outer.Slot() || l.Token() != outer.Token() || l.Owner() != outer.Owner() {
				t.Errorf("%v has slot %d, and the outer lease %v slot %d", l, l.Slot(), outer, outer.Slot())
			}
		}
		testkit.Equal(t, outer.HoldCount(), 4, "the hold count")
		for name, err := range map[string]error{
			"more than the context has": testkit.Err(s.LockN(outer.Context(), 4)),
			"at once":                   testkit.Err(s.TryLockN(two.Context(), 4)),
			"not again":                 testkit.Err(c.Semaphore("x", 4, quorumlock.WithoutReentry()).LockN(outer.Context(), 2)),
			"within another number":     testkit.Err(c.Semaphore("x", 5).LockN(outer.Context(), 2)),
			"in a MultiLock":            testkit.Err(testkit.Multi(t, s, c.Mutex("y")).Lock(outer.Context())),
		} {
			testkit.Is(t, err, quorumlock.ErrDeadlock, "%s", name)
		}
		testkit.Equal(t, testkit.Ran(servers), before, "scripts that ran")
		testkit.UnlockAll(t, outer, three)
		testkit.Unlock(t, testkit.TryLock(t, several{s, 2})) // one of the three is free, and was free
		testkit.Refused(t, several{s, 3})
		testkit.Unlock(t, one)
		testkit.OK(t, two.Extend(t.Context()), "Extend")
		testkit.Unlock(t, two)
		testkit.Unlock(t, testkit.TryLock(t, several{s, 4}))
	})
}

// The loss of one permit is that of all: nobody waits for the others to be unlocked.
func TestALossOfOnePermitIsALossOfAll(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		var lost atomic.Int32
		seen := testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventLost && e.Reason == quorumlock.LossKeysGone && e.Ended {
				lost.Add(1)
			}
		})
		s := c.Semaphore("x", 3, quorumlock.WithObserver(seen))
		lease := testkit.Lock(t, several{s, 3})
		inner := testkit.LockIn(t, lease.Context(), several{s, 2})
		waiting := testkit.Call(t, t.Context(), several{d.Semaphore("x", 3), 3}.Lock)
		testkit.OK(t, d.ForceUnlockOwner(t.Context(), "x", lease.Slots()[2].Owner), "ForceUnlockOwner")
		testkit.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		if loss, ok := errors.AsType[*quorumlock.LostError](context.Cause(lease.Context())); !ok || strings.Contains(loss.Error(), "another permit") {
			t.Errorf("the cause is %v, want that of the permit", loss)
		}
		began := time.Now()
		next := <-waiting
		testkit.Took(t, began, 0, 10*time.Millisecond, "the permits of the next")
		testkit.Lost(t, inner, 0)
		for _, l := range []*quorumlock.Lease{lease, inner} {
			testkit.Is(t, l.Extend(t.Context()), quorumlock.ErrLost, "Extend")
			testkit.Is(t, l.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
			testkit.Is(t, l.Unlock(t.Context()), quorumlock.ErrNotHeld, "a second Unlock")
		}
		testkit.Equal(t, lost.Load(), 3, "losses of permits that the Observer learned of")
		testkit.Held(t, next)
		testkit.Unlock(t, next)
	})
}

func TestALeaseOfSeveralPermitsIsExtendedAndKept(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		s := c.Semaphore("x", 3)
		lease := testkit.Lock(t, several{s, 2})
		testkit.OK(t, lease.ExtendTo(t.Context(), time.Hour), "ExtendTo")
		for _, slot := range lease.Slots() {
			if slot.TTL < 59*time.Minute {
				t.Errorf("%+v is not extended", slot)
			}
		}
		if left := time.Until(lease.ValidUntil()); left < 59*time.Minute {
			t.Errorf("valid for %v", left)
		}
		_, err := lease.Detach(t.Context(), time.Minute)
		testkit.Is(t, err, quorumlock.ErrMisuse, "Detach")
		testkit.Held(t, lease)
		testkit.OK(t, lease.UnlockAfter(t.Context(), time.Minute), "UnlockAfter")
		testkit.Refused(t, several{s, 2})
		time.Sleep(59 * time.Second)
		testkit.Refused(t, several{s, 2})
		time.Sleep(2 * time.Second)
		testkit.Unlock(t, testkit.TryLock(t, several{s, 3}))
	})
}

// The permits that come first are renewed while the others are awaited. The lease begins with all.
func TestTheOptionsOfALeaseCountFromItsLastPermit(t *testing.T) {
	const limit = time.Minute
	for name, tt := range map[string]struct {
		opt   quorumlock.Option
		lasts time.Duration
	}{
		"WithoutRenewal": {quorumlock.WithoutRenewal(), quorumlock.DefaultTTL},
		"WithMaxHold":    {quorumlock.WithMaxHold(limit), limit + quorumlock.DefaultTTL},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			d, _ := testkit.Another(t, servers)
			other := testkit.Lock(t, c.Semaphore("x", 3))
			var lost atomic.Int32
			seen := testkit.Observer(func(e quorumlock.Event) {
				if e.Kind == quorumlock.EventLost {
					lost.Add(1)
				}
			})
			waiting := testkit.Call(t, t.Context(), several{d.Semaphore("x", 3, tt.opt, quorumlock.WithObserver(seen)), 3}.Lock)
			time.Sleep(10*limit + quorumlock.DefaultTTL/6) // between two renewals
			testkit.Equal(t, lost.Load(), 0, "permits that were lost meanwhile")
			testkit.Unlock(t, other)
			lease := <-waiting
			if left := time.Until(lease.ValidUntil()); name == "WithoutRenewal" && left < quorumlock.DefaultTTL*9/10 {
				t.Errorf("valid for %v", left)
			}
			time.Sleep(tt.lasts - quorumlock.DefaultTTL*2/5)
			testkit.Held(t, lease)
			testkit.Lost(t, lease, quorumlock.DefaultTTL*2/5)
			time.Sleep(time.Second)
			testkit.Unlock(t, testkit.TryLock(t, several{c.Semaphore("x", 3), 3}))
			testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
			testkit.Nothing(t, servers)
		})
	}
}

// A process that dies while it collects permits delays the next by its TTL, and not for ever.
func TestADeadCollectorIsPassed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, paths := testkit.Another(t, servers)
		other := testkit.Lock(t, c.Semaphore("x", 3))
		ctx, cancel := context.WithCancel(t.Context())
		dead := testkit.Call(t, ctx, several{d.Semaphore("x", 3), 3}.Lock)
		waiting := testkit.Call(t, t.Context(), several{c.Semaphore("x", 3), 2}.Lock)
		time.Sleep(time.Minute)
		testkit.Kill(paths...)
		began := time.Now()
		lease := <-waiting
		testkit.Took(t, began, quorumlock.DefaultTTL*3/5, quorumlock.DefaultTTL*3/2, "the permits of the next")
		// Its calls go on when it is connected again, with a new gate.
		testkit.Restart(paths...)
		time.Sleep(time.Minute)
		if len(dead) > 0 {
			t.Error("the collector has permits that others hold")
		}
		testkit.UnlockAll(t, lease, other)
		late := <-dead
		if late == nil || len(late.Slots()) != 3 {
			t.Fatalf("the collector has %v in the end", late)
		}
		testkit.Held(t, late)
		testkit.Unlock(t, late)
		cancel()
		testkit.Nothing(t, servers)
	})
}

// A rate: k slots, each of which is kept for the period. No period of that length has more than k.
func TestSlotsThatAreKeptLimitARate(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		const limit, period = 3, 5 * time.Minute
		d, _ := testkit.Another(t, servers)
		began := time.Now()
		var starts []time.Time
		for i := range 3*limit + 1 {
			s := []*redlock.Client{c, d}[i%2].Semaphore("calls", limit)
			permit := testkit.Lock(t, s)
			starts = append(starts, time.Now())
			testkit.OK(t, permit.UnlockAfter(t.Context(), period), "UnlockAfter")
			if i%limit == limit-1 {
				_, err := s.TryLock(t.Context())
				held, ok := errors.AsType[*quorumlock.HeldError](err)
				if !ok || held.TTL < period-limit*10*time.Second || held.TTL > period {
					t.Errorf("TryLock: %v", err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		for i, at := range starts[limit:] {
			if between := at.Sub(starts[i]); between < period || between > period+5*time.Second {
				t.Errorf("call %d is %v after call %d", i+limit, between, i)
			}
		}
		testkit.Took(t, began, 3*period, 3*period+30*time.Second, "the calls")
		time.Sleep(period)
	})
}
