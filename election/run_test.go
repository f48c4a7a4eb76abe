package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// runs calls Run in the background.
func (c *candidate) runs(ctx context.Context, lead func(ctx context.Context) error) <-chan error {
	return testkit.Go(func() error { return c.Run(ctx, lead) })
}

// background runs Run until stop, which returns Run's result.
func (c *candidate) background(t *testing.T, lead func(ctx context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := c.runs(ctx, lead)
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// work leads until its context ends, and records the leaders in order.
type work struct {
	mu            sync.Mutex
	terms, inside int
	winds         time.Duration // the time to wind up
}

func (w *work) lead(ctx context.Context) error {
	term, ok := election.TermOf(ctx)
	if lease, leased := quorumlock.LeaseOf(ctx); !ok || !leased || lease.Token() != term.Token() {
		return errors.New("there is no term, or not its lease, in the context")
	}
	w.count(1, 1)
	<-ctx.Done()
	time.Sleep(w.winds)
	w.count(0, -1)
	return ctx.Err()
}

func (w *work) count(terms, inside int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terms, w.inside = w.terms+terms, w.inside+inside
}

// so checks how often lead was called, and how many calls have not returned.
func (w *work) so(t *testing.T, terms, inside int, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.terms != terms || w.inside != inside {
		t.Errorf("%s: %d terms, %d inside, want %d and %d", when, w.terms, w.inside, terms, inside)
	}
}

func TestRun(t *testing.T) {
	elect(t, "campaigns again after a loss and after Resign", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		var w work
		stop := c[0].background(t, w.lead)
		time.Sleep(time.Second)
		for i := range 3 {
			testkit.Kill(c[0].paths...)
			time.Sleep(30 * time.Second)
			w.so(t, i+1, 0, "while the nodes are down")
			testkit.Restart(c[0].paths...)
			time.Sleep(2 * time.Second)
		}
		testkit.OK(t, c[0].Resign(t.Context()), "Resign")
		time.Sleep(time.Second)
		w.so(t, 5, 1, "after Resign")
		testkit.Is(t, stop(), context.Canceled, "Run")
	})
	elect(t, "lets lead resign from within, which must not wait for itself", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		terms := 0
		err := c[0].Run(t.Context(), func(ctx context.Context) error {
			if terms++; terms == 3 {
				return nil
			}
			began := time.Now()
			testkit.OK(t, c[0].Resign(ctx), "Resign")
			if time.Since(began) > 0 || !errors.Is(context.Cause(ctx), election.ErrResigned) {
				t.Errorf("after %v the context has the cause %v", time.Since(began), context.Cause(ctx))
			}
			return nil
		})
		if err != nil || terms != 3 {
			t.Errorf("Run: %v after %d terms", err, terms)
		}
		synctest.Wait()
	})
	elect(t, "returns an error that lead has joined with the end of its context", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		broken := errors.New("the disk is full")
		stop := c[0].background(t, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(ctx.Err(), broken)
		})
		time.Sleep(time.Second)
		err := stop()
		testkit.Is(t, err, context.Canceled, "Run")
		testkit.Is(t, err, broken, "Run")
	})
	elect(t, "releases the lock when lead panics", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		defer func() { testkit.Equal(t, recover(), "lead", "recovered") }()
		_ = c[0].Run(t.Context(), func(context.Context) error { panic("lead") })
	})
	elect(t, "says that the lock was lost as lead returned", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		err := c[0].Run(t.Context(), func(context.Context) error {
			synctest.Wait() // for the nodes beyond the quorum
			testkit.Each(servers, func(s *embedded.Server) { s.Redis.Del("job") })
			return nil
		})
		testkit.Is(t, err, quorumlock.ErrLost, "Run")
	})
	elect(t, "ends with its client", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		var w work
		leads := c[0].runs(t.Context(), w.lead)
		time.Sleep(time.Second)
		waits := c[1].runs(t.Context(), w.lead)
		time.Sleep(time.Second)
		testkit.OK(t, c[0].client.Close(), "Close")
		testkit.Is(t, <-leads, quorumlock.ErrClosed, "Run of the leader")
		testkit.OK(t, c[1].client.Close(), "Close")
		testkit.Is(t, <-waits, quorumlock.ErrClosed, "Run of the other")
		time.Sleep(quorumlock.DefaultTTL)
	})
	elect(t, "ends the work first when an outer lock is lost", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		outer := testkit.Lock(t, c[0].client.Mutex("outer"))
		w := work{winds: 9 * time.Second}
		ended := c[0].runs(outer.Context(), w.lead)
		time.Sleep(time.Second)
		led := c[1].queues(t)
		time.Sleep(time.Second)
		testkit.Must(t, c[1].client.ForceUnlock(t.Context(), "outer"), "ForceUnlock")
		<-outer.Context().Done()
		second := <-led
		w.so(t, 1, 0, "when the next leads")
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Run: %v, want the error of its ctx", err)
		}
		resign(t, second)
		_ = outer.Unlock(t.Context())
	})
}

func TestRunReturnsWhatLeadReturnsByItself(t *testing.T) {
	broken := errors.New("broken")
	for name, want := range map[string]error{"nothing": nil, "an error": broken} {
		elect(t, name, 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
			if err := c[0].Run(t.Context(), func(context.Context) error { return want }); err != want { //nolint:errorlint // it is the very error
				t.Errorf("Run: %v, want %v", err, want)
			}
		})
	}
}

// Drain first: while lead winds up, no other candidate leads, and the lock is renewed. The lock is
// free as soon as lead has returned.
func TestTheLockIsReleasedWhenLeadHasReturnedAndNotBefore(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *candidate, stop func() error){
		"Resign": func(t *testing.T, c *candidate, _ func() error) {
			began := time.Now()
			testkit.OK(t, c.Resign(t.Context()), "Resign")
			testkit.Took(t, began, 9*time.Second, time.Minute, "Resign returns when lead has")
		},
		"ctx": func(t *testing.T, _ *candidate, stop func() error) {
			testkit.Is(t, stop(), context.Canceled, "Run")
		},
	} {
		elect(t, name, 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
			w := work{winds: 9 * time.Second} // most of a TTL
			stop := c[0].background(t, w.lead)
			time.Sleep(8 * time.Second)
			next := c[1].queues(t)
			time.Sleep(time.Second)
			began := time.Now()
			go end(t, c[0], stop)
			<-next
			testkit.Took(t, began, 9*time.Second, 9*time.Second+10*time.Millisecond, "the next leads when lead returns")
			w.so(t, 1, 0, "when the next leads")
			_ = stop()
		})
	}
}

func TestALeadThatDoesNotReturnCostsATTL(t *testing.T) {
	log, logger := testkit.Logger()
	elect(t, "while it winds up", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		w := work{winds: time.Minute}
		stop := c[0].background(t, w.lead)
		time.Sleep(time.Second)
		began := time.Now()
		testkit.Is(t, c[0].Resign(testkit.Within(t, 30*time.Second)), election.ErrNotDrained, "Resign")
		testkit.Took(t, began, quorumlock.DefaultTTL, quorumlock.DefaultTTL+time.Second, "Resign")
		second := c[1].leads(t)
		says(t, c[0].Health(9*time.Second), "still at work", "Health")
		testkit.OK(t, c[0].Health(time.Hour), "Health within its grace")
		synctest.Wait()
		testkit.Equal(t, len(log.Lines("released while the leader was still at work")), 1, "lines in the log")
		time.Sleep(time.Minute)
		testkit.OK(t, c[0].Health(0), "Health after lead returned")
		w.so(t, 1, 0, "while somebody else leads")
		resign(t, second)
		_ = stop()
	}, logger)
	var lost []quorumlock.LossReason
	losses := testkit.Observer(func(e quorumlock.Event) {
		if e.Kind == quorumlock.EventLost {
			lost = append(lost, e.Reason)
		}
	})
	elect(t, "while it hangs, though it has entered its lock again", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		hang := make(chan struct{})
		stop := c[0].background(t, func(ctx context.Context) error {
			inner, err := c[0].client.Mutex("job").Lock(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			<-inner.Context().Done()
			<-hang
			testkit.Is(t, inner.Unlock(context.WithoutCancel(ctx)), quorumlock.ErrLost, "Unlock of what was released")
			return nil
		})
		time.Sleep(time.Second)
		began := time.Now()
		testkit.Is(t, c[0].Resign(t.Context()), election.ErrNotDrained, "Resign")
		c[1].leads(t)
		testkit.Took(t, began, 0, quorumlock.DefaultTTL+time.Second, "the next leads")
		if len(lost) != 1 || lost[0] != quorumlock.LossResigned {
			t.Errorf("the observer is told of the losses %q", lost)
		}
		close(hang)
		testkit.Is(t, stop(), context.Canceled, "Run")
	}, quorumlock.WithObserver(losses))
}

func TestWhatLeadReturnsAfterALossIsLogged(t *testing.T) {
	log, logger := testkit.Logger()
	elect(t, "once", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		broken := errors.New("the disk is full")
		stop := c[0].background(t, func(ctx context.Context) error {
			<-ctx.Done()
			return broken
		})
		time.Sleep(time.Second)
		testkit.Kill(c[0].paths...)
		time.Sleep(30 * time.Second)
		testkit.Restart(c[0].paths...)
		time.Sleep(2 * time.Second)
		err := stop()
		testkit.Is(t, err, context.Canceled, "Run")
		testkit.Is(t, err, broken, "Run")
		synctest.Wait()
		testkit.Equal(t, len(log.Lines("the disk is full")), 1, "lines in the log")
	}, logger)
}

func TestRunWithWait(t *testing.T) {
	elect(t, "goes on after it", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		var w work
		stop := c[1].background(t, w.lead)
		time.Sleep(10 * time.Second)
		resign(t, term)
		time.Sleep(time.Second)
		w.so(t, 1, 1, "after the end of the other term")
		_ = stop()
	}, quorumlock.WithWait(time.Second))
	elect(t, "does not mistake the timeout of a node for the end of it", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		occupy(t, wire.LeaderKey("job"), servers[:3]...)
		c[0].paths[3].Stall()
		began := time.Now()
		err := c[0].Run(testkit.Within(t, time.Hour), func(context.Context) error { return errors.New("it has led") })
		if _, few := errors.AsType[*quorumlock.QuorumError](err); !few || !errors.Is(err, quorumlock.ErrNotALock) || time.Since(began) > 5*time.Second {
			t.Errorf("Run after %v: %v, want a QuorumError soon", time.Since(began), err)
		}
		c[0].paths[3].Resume()
		time.Sleep(quorumlock.DefaultTTL)
		testkit.Each(servers, func(s *embedded.Server) { s.Redis.Del(wire.LeaderKey("job")) })
	}, quorumlock.WithWait(time.Minute))
}

// The work of an inner election is a part of the work of the outer one.
func TestTheWorkOfAnInnerElectionMayResignFromTheOuter(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"with its ctx": func(ctx context.Context) context.Context { return ctx },
		"detached":     context.WithoutCancel,
	} {
		elect(t, name, 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
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
		})
	}
}
