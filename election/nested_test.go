package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// The ctx of Run descends from a lease of another lock. If that lock is lost, the work's ctx ends
// at once, and the leadership ends when the work has returned.
func TestTheLossOfAnotherLockEndsTheWorkFirst(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		outer := locktest.Lock(t, c[0].client.Mutex("outer"))
		w := work{winds: 9 * time.Second}
		ended := make(chan error, 1)
		go func() { ended <- c[0].Run(outer.Context(), w.lead) }()
		time.Sleep(time.Second)
		led := c[1].queues(t)
		time.Sleep(time.Second)
		if err := c[1].client.Mutex("outer").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-outer.Context().Done()
		second := <-led
		if _, inside := w.so(); inside != 0 {
			t.Error("the next leads while the work has not ended")
		}
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Run: %v, want the error of its ctx", err)
		}
		resign(t, second)
		_ = outer.Unlock(t.Context())
		locktest.Nothing(t, servers)
	})
}

func TestResignDoesNotReportTheLossOfAnotherLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		outer := locktest.Lock(t, c[0].client.Mutex("outer"))
		term, err := c[0].Campaign(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := c[0].client.Mutex("outer").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-term.Context().Done()
		if err := term.Err(); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("the term ended with %v, want the loss of the other lock", err)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Errorf("Resign: %v, though this leadership was not lost", err)
		}
		_ = outer.Unlock(t.Context())
		locktest.Nothing(t, servers)
	})
}

// The work of an inner election is a part of the work of the outer one.
func TestTheWorkOfAnInnerElectionMayResignFromTheOuter(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"with its ctx": func(ctx context.Context) context.Context { return ctx },
		"detached":     context.WithoutCancel,
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 1)
			inner := election.New(c[0].client.Mutex("inner"), "inner")
			ctx, cancel := context.WithCancel(t.Context())
			err := c[0].Run(ctx, func(lead context.Context) error {
				outer, _ := election.TermOf(lead)
				return inner.Run(lead, func(both context.Context) error {
					defer cancel()
					began := time.Now()
					if err := outer.Resign(of(both)); err != nil || time.Since(began) > time.Second {
						t.Errorf("Resign: %v after %v, want nil at once", err, time.Since(began))
					}
					return nil
				})
			})
			if !errors.Is(err, context.Canceled) || errors.Is(err, election.ErrNotDrained) {
				t.Errorf("Run: %v", err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

// Work that has entered the lock of its election, and hangs, does not keep the lock forever.
func TestAHungLeadThatEnteredItsLockAgainCostsATTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		lost := make(chan quorumlock.LossReason, 10)
		losses := locktest.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.Lost {
				lost <- e.Reason
			}
		})
		c, servers := start(t, 2, quorumlock.WithObserver(losses))
		hang := make(chan struct{})
		stop := c[0].background(t, func(ctx context.Context) error {
			inner, err := c[0].client.Mutex("job").Lock(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			<-inner.Context().Done()
			<-hang
			if err := inner.Unlock(context.WithoutCancel(ctx)); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock of what was released: %v, want ErrLost", err)
			}
			return nil
		})
		time.Sleep(time.Second)
		began := time.Now()
		if err := c[0].Resign(t.Context()); !errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Resign: %v, want ErrNotDrained", err)
		}
		second := c[1].leads(t)
		if took := time.Since(began); took > quorumlock.DefaultTTL+time.Second {
			t.Errorf("the next leads after %v, want a TTL at most", took)
		}
		if reason := <-lost; reason != quorumlock.LostResigned || len(lost) > 0 {
			t.Errorf("the observer is told %q, and %d more losses", reason, len(lost))
		}
		close(hang)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		resign(t, second)
		locktest.Nothing(t, servers)
	})
}
