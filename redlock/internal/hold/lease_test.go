package hold

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// A lease without renewal ends by itself, on time, and Extend prolongs it.
func TestLeaseWithoutRenewalEndsAtItsTTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		m := c.Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithTTL(time.Second))
		lease := locktest.Lock(t, m)
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatal("Extend:", err)
			}
			if left := time.Until(lease.ValidUntil()); left != 988*time.Millisecond {
				t.Errorf("%v left after Extend, want 988 ms: a TTL less the drift", left)
			}
		}
		deadline := lease.ValidUntil()
		locktest.Lost(t, lease, time.Minute)
		if now := time.Now(); !now.Equal(deadline) {
			t.Errorf("ended %v after its deadline", now.Sub(deadline))
		}
		locktest.Refused(t, other.Mutex("x")) // the drift
		time.Sleep(12 * time.Millisecond)
		locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
		for _, s := range servers {
			if n := s.Ran("renew"); n != 5 {
				t.Errorf("%d renewals ran at %s, want those 5 that were asked for", n, s.Name)
			}
		}
		locktest.Nothing(t, servers)
	})
}

// A lease that is unlocked while another goroutine extends it is not lost.
func TestExtendOfALeaseThatIsUnlockedMeanwhileIsNotHeld(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		extended := make(chan error)
		go func() { extended <- lease.Extend(t.Context()) }()
		time.Sleep(time.Millisecond)
		locktest.MustUnlock(t, lease)
		if err := <-extended; !errors.Is(err, quorumlock.ErrNotHeld) || errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Extend: %v, want ErrNotHeld", err)
		}
	})
}

// The replies to a renewal come after the deadline: a lost lease stays lost, to the nanosecond.
func TestRenewalAnsweredAfterTheDeadlineChangesNothing(t *testing.T) {
	for _, after := range []time.Duration{0, 1, time.Millisecond, 100 * time.Millisecond} {
		locktest.Run(t, after.String(), func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			lease := locktest.Lock(t, c.Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithTTL(time.Second)))
			deadline := lease.ValidUntil()
			time.Sleep(968 * time.Millisecond)
			locktest.Each(servers, func(s *embedded.Server) {
				s.After(func(r embedded.Run) {
					if r.Script == "renew" {
						time.Sleep(time.Until(deadline) + after)
					}
				})
			})
			if err := lease.Extend(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Extend: %v, want ErrLost", err)
			}
			synctest.Wait() // the timer of the deadline may be due at this very moment
			locktest.Lost(t, lease, 0)
			if !lease.ValidUntil().Equal(deadline) {
				t.Errorf("the deadline of a lost lease has moved by %v", lease.ValidUntil().Sub(deadline))
			}
			if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

// WithWait bounds the wait and nothing else.
func TestWaitIsBoundedAndTheLeaseIsNot(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		m := other.Mutex("x", quorumlock.WithWait(3*time.Second))
		holder := locktest.Lock(t, c.Mutex("x"))
		start := time.Now()
		_, err := m.Lock(t.Context())
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Lock took %v, want 3 s", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("Lock: %v, want DeadlineExceeded joined with ErrHeld", err)
		}
		time.AfterFunc(2*time.Second, func() { _ = holder.Unlock(context.WithoutCancel(t.Context())) })
		lease := locktest.Lock(t, m)
		if _, bounded := lease.Context().Deadline(); bounded {
			t.Error("the lease's context has the deadline of the wait")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// The holder of a lock that was freed by force learns of it when it next renews.
func TestForceUnlockIsToldAtTheNextRenewal(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x"))
		start := time.Now()
		waiting := make(chan *quorumlock.Lease)
		go func() {
			l, err := other.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Error("Lock:", err)
			}
			waiting <- l
		}()
		time.Sleep(100 * time.Millisecond)
		if err := other.Mutex("x").ForceUnlock(t.Context()); err != nil {
			t.Error("ForceUnlock:", err)
		}
		next := <-waiting
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("a waiter got the lock after %v, want to be woken", took)
		}
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		// The nodes that were forced last refused it: one renewal finds that out, the next restores
		// them.
		time.Sleep(quorumlock.DefaultTTL)
		locktest.HoldsAll(t, servers, next)
		locktest.Unlock(t, next)
		if err := c.Mutex("x").ForceUnlock(t.Context()); err != nil {
			t.Error("ForceUnlock of a free lock:", err)
		}
		locktest.Nothing(t, servers)
	})
}

func TestInspectSeesWhatTheQuorumSees(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		m := c.Mutex("x")
		if in, err := m.Inspect(t.Context()); err != nil || in.State.Held() || in.State.Token != 0 {
			t.Errorf("a lock nobody had: %+v, %v", in.State, err)
		}
		lease := locktest.Lock(t, m)
		time.Sleep(time.Second)
		in, err := m.Inspect(t.Context())
		if err != nil || in.State.Owner != lease.Owner() || in.State.HoldCount != 1 || in.State.TTL != 9*time.Second || in.State.Token != lease.Token() {
			t.Errorf("a held lock: %+v, %v", in.State, err)
		}
		servers[0].Redis.Del("x")
		servers[1].Kill()
		if in, err = m.Inspect(t.Context()); err != nil || in.State.Owner != lease.Owner() {
			t.Errorf("a lock that three nodes know: %+v, %v", in.State, err)
		}
		if in.Nodes[0].State.Held() || in.Nodes[1].Err == nil || in.Nodes[2].State.Owner != lease.Owner() {
			t.Errorf("node by node: %+v", in.Nodes)
		}
		servers[2].Redis.Del("x")
		if in, err = m.Inspect(t.Context()); err != nil || in.State.Held() {
			t.Errorf("a lock that two nodes know: %+v, %v", in.State, err)
		}
		servers[3].Kill()
		servers[4].Kill()
		_, err = m.Inspect(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || len(q.Nodes) != 3 {
			t.Errorf("with three nodes dead: %v, want a QuorumError that names them", err)
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestALeaseThatIsOverIsNotValid(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		lost := locktest.Lock(t, c.Mutex("x"))
		outer, began := locktest.Lock(t, c.Mutex("y")), time.Now()
		inner, err := c.Mutex("y").Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := d.Mutex("x").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lost.Extend(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Fatal(err)
		}
		if until := lost.ValidUntil(); until.After(time.Now()) {
			t.Errorf("a lost lease is valid for another %v", time.Until(until))
		}
		locktest.Unlock(t, inner)
		if until := outer.ValidUntil(); !until.After(time.Now()) {
			t.Errorf("a lease is valid until %v, though only an inner one was unlocked", until)
		}
		locktest.Unlock(t, outer)
		over := time.Now()
		time.Sleep(time.Second)
		if until := outer.ValidUntil(); until.After(over) || until.Before(began) {
			t.Errorf("a lease that was unlocked at %v is valid until %v", over, until)
		}
		_ = lost.Unlock(t.Context())
	})
}

// A copy of a lease is the same lease: its Unlock releases the lock, and its Downgrade shares it.
func TestACopyOfALeaseReleases(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		lease := *locktest.Lock(t, c.Mutex("x"))
		inner, err := c.Mutex("x").Lock(lease.Context())
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, inner)
		locktest.Unlock(t, &lease)
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))

		rw := c.RWMutex("y")
		writer := *locktest.Lock(t, rw)
		if err := rw.Downgrade(t.Context(), &writer); err != nil {
			t.Errorf("Downgrade of a copy: %v", err)
		}
		locktest.Unlock(t, locktest.TryLock(t, rw.RLocker()))
		locktest.Unlock(t, &writer)
		locktest.Nothing(t, servers)
	})
}

func TestMaxHoldEndsALeaseThatIsForgotten(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		began := time.Now()
		lease := locktest.Lock(t, c.Mutex("x", quorumlock.WithMaxHold(time.Minute)))
		<-lease.Context().Done()
		if held := time.Since(began); held < time.Minute || held > time.Minute+quorumlock.DefaultTTL {
			t.Errorf("held for %v, want a minute and a TTL at most", held)
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
		locktest.Nothing(t, servers)
	})
}

func TestTheCauseOfALossSaysWhyAndWhichNodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []quorumlock.Option
		lose   func(servers []*embedded.Server)
		reason string
		nodes  int
	}{
		{"nodes down", nil, func(s []*embedded.Server) { locktest.Each(s[:2], (*embedded.Server).Kill) }, "not renewed in time", 2},
		{"keys gone", nil, func(s []*embedded.Server) { locktest.Each(s[:2], func(s *embedded.Server) { s.Redis.Del("x") }) }, "too many nodes no longer have its key", 0},
		{"not extended", []quorumlock.Option{quorumlock.WithoutRenewal()}, func([]*embedded.Server) {}, "not extended in time", 0},
		{"held for too long", []quorumlock.Option{quorumlock.WithMaxHold(time.Minute)}, func([]*embedded.Server) {}, "WithMaxHold(1m0s)", 0},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3, tt.opts...)
			lease := locktest.Lock(t, c.Mutex("x"))
			tt.lose(servers)
			<-lease.Context().Done()
			for what, err := range map[string]error{"the cause": context.Cause(lease.Context()), "Unlock": lease.Unlock(t.Context())} {
				lost, ok := errors.AsType[*quorumlock.LostError](err)
				if !ok || !errors.Is(err, quorumlock.ErrLost) {
					t.Errorf("%s: %v, want a LostError", what, err)
					continue
				}
				if lost.Name != "x" || lost.Owner != lease.Owner() || !strings.Contains(lost.Reason, tt.reason) || len(lost.Nodes) != tt.nodes {
					t.Errorf("%s: %+v, want %q and %d nodes", what, lost, tt.reason, tt.nodes)
				}
			}
		})
	}
}
