package client_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/wallclock"
)

// machine is the computer of a client under test. Its wall clock may step.
type machine struct{ wall, slept atomic.Int64 }

// newMachine returns a world whose client runs on the machine.
func newMachine(t *testing.T, hasBootClock bool) (*world, *machine) {
	w, m := newWorld(t), &machine{}
	began := time.Now()
	var boot func() time.Duration
	if hasBootClock {
		boot = func() time.Duration { return time.Since(began) + time.Duration(m.slept.Load()) }
	}
	w.client.Simulate(m.now, boot, nil)
	return w, m
}

func (m *machine) now() time.Time {
	return wallclock.Now(time.Duration(m.wall.Load() + m.slept.Load()))
}

// step sets the wall clock forward or back.
func (m *machine) step(by time.Duration) { m.wall.Add(int64(by)) }

// suspend stops the monotonic clock, while the other clocks go on.
func (m *machine) suspend(d time.Duration) { m.slept.Add(int64(d)) }

// NTP may set the wall clock while a lock is held. ValidUntil is the time that this clock shows at
// the end of the validity. Without a clock that counts suspends, a step forward counts as elapsed:
// the computer may have been suspended.
func TestValidUntilFollowsAWallClockThatIsSet(t *testing.T) {
	for _, tt := range []struct {
		name string
		boot bool
		step time.Duration
		cost time.Duration
	}{
		{"an hour back", false, -time.Hour, 0},
		{"a second forward", false, time.Second, time.Second},
		{"not at all", false, 0, 0},
		{"an hour back, beside a boot clock", true, -time.Hour, 0},
		{"an hour forward, beside a boot clock", true, time.Hour, 0},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			w, m := newMachine(t, tt.boot)
			lease := testkit.Lock(t, w.lock(t, "x", quorumlock.WithoutRenewal()))
			time.Sleep(3 * time.Second)
			m.step(tt.step)
			want := quorumlock.DefaultTTL*99/100 - 2*time.Millisecond - 3*time.Second - tt.cost
			testkit.Equal(t, lease.ValidUntil().Round(0).Sub(m.now().Round(0)), want, "left by the wall clock")
			testkit.Unlock(t, lease)
		})
	}
}

// A clock that counts suspends tells a step of the wall clock from a suspend: the lease stays.
// Without such a clock, the lease ends.
func TestAStepOfTheWallClockLosesNoLeaseWhereItIsNoSuspend(t *testing.T) {
	for _, tt := range []struct {
		name string
		boot bool
		what func(*machine, time.Duration)
		lost bool
	}{
		{"a step beside a boot clock", true, (*machine).step, false},
		{"a suspend beside a boot clock", true, (*machine).suspend, true},
		{"a step without a boot clock", false, (*machine).step, true},
		{"a suspend without a boot clock", false, (*machine).suspend, true},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			w, m := newMachine(t, tt.boot)
			lease := testkit.Lock(t, w.lock(t, "x"))
			time.Sleep(3*time.Second + time.Millisecond)
			tt.what(m, 30*time.Second)
			if tt.lost {
				testkit.Lost(t, lease, time.Second)
			} else {
				time.Sleep(time.Minute)
				testkit.Held(t, lease)
				testkit.HoldsAll(t, w.servers, lease)
			}
			_ = lease.Unlock(t.Context())
		})
	}
}

// Timers stand still during a suspend. If the validity ends after the suspend, it ends that much
// earlier by the monotonic clock.
func TestALossAfterASuspensionIsNoticedWithinASecond(t *testing.T) {
	for _, tt := range []struct {
		name    string
		asleep  time.Duration
		through bool // beyond the end of the validity
		again   bool // the client had a hold before
	}{
		{"it ends while the computer is suspended", time.Hour, true, false},
		{"it ends after the computer woke up", 5 * time.Second, false, false},
		{"it is the end of a second hold", time.Hour, true, true},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			w, m := newMachine(t, true)
			if tt.again {
				testkit.Unlock(t, testkit.Lock(t, w.lock(t, "x")))
				time.Sleep(time.Minute)
			}
			lease := testkit.Lock(t, w.lock(t, "x", quorumlock.WithoutRenewal()))
			time.Sleep(3 * time.Second)
			m.suspend(tt.asleep)
			left := max(quorumlock.DefaultTTL*99/100-2*time.Millisecond-3*time.Second-tt.asleep, 0)
			if !tt.through {
				time.Sleep(left - time.Millisecond)
				testkit.Held(t, lease)
				until := time.Until(wallclock.Instant(lease.ValidUntil()))
				testkit.Equal(t, until, time.Millisecond, "left of the validity")
				left = time.Millisecond
			}
			testkit.Lost(t, lease, left+time.Second+time.Nanosecond)
			_ = lease.Unlock(t.Context())
		})
	}
}

// A caller with the same owner does not wait for an ended hold with an unnoticed end.
func TestALockByOwnerDoesNotSpinOnALossThatNobodyHasNoticed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w, m := newMachine(t, true)
		l := w.lock(t, "x", quorumlock.WithOwner(quorumlock.NewOwner()))
		first := testkit.Lock(t, l)
		time.Sleep(time.Second + 500*time.Millisecond)
		for _, s := range w.servers { // the keys have expired
			s.StepClock(time.Hour)
		}
		m.suspend(time.Hour)
		asked := time.Now()
		second := testkit.Lock(t, l)
		testkit.Took(t, asked, 0, 0, "Lock")
		testkit.Lost(t, first, 0)
		testkit.Rises(t, first, second)
		_ = first.Unlock(t.Context())
		testkit.HoldsAll(t, w.servers, second)
		testkit.Unlock(t, second)
	})
}

// A Detach succeeds only while the validity lasts. A suspend may end it while the nodes' answers are on
// their way.
func TestADetachThatASuspendOutlastsFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w, m := newMachine(t, true)
		l := w.lock(t, "x")
		l.AllowDetach()
		lease := testkit.Lock(t, l)
		for _, s := range w.servers {
			s.Delay(100 * time.Millisecond)
		}
		time.AfterFunc(50*time.Millisecond, func() { m.suspend(time.Hour) })
		if token, err := lease.Detach(t.Context(), time.Minute); err == nil {
			t.Errorf("Detach returned %q after a suspend of an hour", token)
		}
	})
}

// After a suspend, a call with the context of an ended lease notifies the holder and returns at
// once. It does not wait for the ended hold.
func TestACallWithTheContextOfALeaseThatIsOverReturnsAtOnce(t *testing.T) {
	for name, call := range map[string]func(*client.Lock, context.Context) (*quorumlock.Lease, error){
		"Lock": (*client.Lock).Lock, "TryLock": (*client.Lock).TryLock,
	} {
		testkit.Run(t, name, func(t *testing.T) {
			w, m := newMachine(t, true)
			l := w.lock(t, "x")
			lease := testkit.Lock(t, l)
			m.suspend(time.Hour)
			began := time.Now()
			testkit.Is(t, testkit.Err(call(l, lease.Context())), context.Canceled, "%s", name)
			testkit.Took(t, began, 0, 0, "%s", name)
			testkit.Lost(t, lease, 0)
			_ = lease.Unlock(t.Context())
		})
	}
}

// slowContext is the context of a caller that the process delays just when it waits for the lock.
type slowContext struct {
	context.Context
	delays int
}

func (c *slowContext) Done() <-chan struct{} {
	if c.delays--; c.delays >= 0 {
		time.Sleep(2 * quorumlock.DefaultTTL)
	}
	return c.Context.Done()
}

// A validity may end between the grant and the return of Lock. Nobody would tell that holder of the
// loss.
func TestLockReturnsNoLeaseThatHasEnded(t *testing.T) {
	for delays := range 12 {
		testkit.Run(t, fmt.Sprint(delays, " delays"), func(t *testing.T) {
			w := newWorld(t)
			lease, err := w.lock(t, "x", quorumlock.WithoutRenewal()).Lock(&slowContext{t.Context(), delays})
			testkit.Must(t, err, "Lock")
			if left := time.Until(lease.ValidUntil()); left <= 0 {
				t.Errorf("the validity of the lease has ended %v ago", -left)
			}
			testkit.Unlock(t, lease)
		})
	}
}
