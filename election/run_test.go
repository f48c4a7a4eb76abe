package election_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// background runs Run until stop, which returns Run's result.
func (c *candidate) background(t *testing.T, lead func(ctx context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, lead) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// work leads until its context ends, and records the leaders in order.
type work struct {
	mu     sync.Mutex
	tokens []uint64
	inside int
	winds  time.Duration // the time to wind up
}

func (w *work) lead(ctx context.Context) error {
	term, ok := election.TermOf(ctx)
	if !ok {
		return errors.New("there is no term in the context")
	}
	w.mu.Lock()
	w.tokens = append(w.tokens, term.Token())
	w.inside++
	w.mu.Unlock()
	<-ctx.Done()
	time.Sleep(w.winds)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
	return ctx.Err()
}

// so returns how often lead was called, and how many calls have not returned.
func (w *work) so() (terms, inside int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tokens), w.inside
}

func TestRunReturnsWhatLeadReturnsByItself(t *testing.T) {
	broken := errors.New("broken")
	for name, want := range map[string]error{"nothing": nil, "an error": broken} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 1)
			if err := c[0].Run(t.Context(), func(context.Context) error { return want }); err != want { //nolint:errorlint // it is the very error
				t.Errorf("Run: %v, want %v", err, want)
			}
			synctest.Wait()
			locktest.Nothing(t, servers)
		})
	}
}

// Drain first: while lead winds up, no other candidate leads, and the lock is renewed. The lock is
// free as soon as lead has returned.
func TestTheLockIsReleasedWhenLeadHasReturnedAndNotBefore(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *candidate, stop func() error){
		"Resign": func(t *testing.T, c *candidate, _ func() error) {
			began := time.Now()
			if err := c.Resign(t.Context()); err != nil {
				t.Errorf("Resign: %v", err)
			}
			if took := time.Since(began); took < 9*time.Second {
				t.Errorf("Resign returned after %v, before lead had", took)
			}
		},
		"ctx": func(t *testing.T, _ *candidate, stop func() error) {
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v, want Canceled", err)
			}
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 2)
			w := work{winds: 9 * time.Second} // most of a TTL
			stop := c[0].background(t, w.lead)
			time.Sleep(8 * time.Second)
			var second *election.Term
			var released time.Time
			var waiting sync.WaitGroup
			waiting.Go(func() {
				second = <-c[1].queues(t)
				released = time.Now()
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.inside != 0 {
					t.Error("the next leads while lead runs")
				}
			})
			time.Sleep(time.Second)
			began := time.Now()
			end(t, c[0], stop)
			waiting.Wait()
			if took := released.Sub(began); took < 9*time.Second || took > 9*time.Second+10*time.Millisecond {
				t.Errorf("the next leads %v after the end, want 9 s, when lead returns", took)
			}
			_ = stop()
			resign(t, second)
			locktest.Nothing(t, servers)
		})
	}
}

func TestALeadThatDoesNotReturnCostsATTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		var log strings.Builder
		c, servers := start(t, 2, quorumlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		w := work{winds: time.Minute}
		stop := c[0].background(t, w.lead)
		time.Sleep(time.Second)
		began := time.Now()
		if err := c[0].Resign(within(t, 30*time.Second)); !errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Resign: %v, want ErrNotDrained", err)
			_ = stop()
			return
		}
		if took := time.Since(began); took < quorumlock.DefaultTTL || took > quorumlock.DefaultTTL+time.Second {
			t.Errorf("it took %v, want a TTL", took)
		}
		second := c[1].leads(t)
		if err := c[0].Health(9 * time.Second); err == nil || !strings.Contains(err.Error(), "still at work") {
			t.Errorf("Health: %v, want it to say that lead goes on", err)
		}
		if err := c[0].Health(time.Hour); err != nil {
			t.Errorf("Health within its grace: %v", err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "released while the leader was still at work") {
			t.Errorf("the log says %q", log.String())
		}
		time.Sleep(time.Minute)
		if err := c[0].Health(0); err != nil {
			t.Errorf("Health after lead returned: %v", err)
		}
		if n, _ := w.so(); n != 1 {
			t.Errorf("lead ran %d times, want once: somebody else leads", n)
		}
		resign(t, second)
		_ = stop()
		locktest.Nothing(t, servers)
	})
}

func TestRunCampaignsAgainAfterALossAndAfterResign(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		var w work
		stop := c[0].background(t, w.lead)
		time.Sleep(time.Second)
		for i := range 3 {
			locktest.Each(c[0].paths, (*embedded.Server).Kill)
			time.Sleep(30 * time.Second)
			if n, inside := w.so(); n != i+1 || inside != 0 {
				t.Errorf("%d terms, %d inside, while the nodes are down", n, inside)
			}
			locktest.Each(c[0].paths, func(s *embedded.Server) { s.Restart(true) })
			time.Sleep(2 * time.Second)
		}
		if err := c[0].Resign(t.Context()); err != nil {
			t.Errorf("Resign: %v", err)
		}
		time.Sleep(time.Second)
		if n, inside := w.so(); n != 5 || inside != 1 {
			t.Errorf("%d terms, %d inside, want the fifth", n, inside)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want Canceled", err)
		}
		locktest.Nothing(t, servers)
	})
}

// A lead function that steps down by itself must not wait for itself.
func TestLeadMayResignFromWithin(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		terms := 0
		err := c[0].Run(t.Context(), func(ctx context.Context) error {
			if terms++; terms == 3 {
				return nil
			}
			began := time.Now()
			if err := c[0].Resign(ctx); err != nil {
				t.Errorf("Resign: %v", err)
			}
			if time.Since(began) > 0 || !errors.Is(context.Cause(ctx), election.ErrResigned) {
				t.Errorf("after %v the context has the cause %v", time.Since(began), context.Cause(ctx))
			}
			return nil
		})
		if err != nil || terms != 3 {
			t.Errorf("Run: %v after %d terms", err, terms)
		}
		synctest.Wait()
		locktest.Nothing(t, servers)
	})
}

func TestWhatLeadReturnsAfterALossIsLogged(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		var log strings.Builder
		c, _ := start(t, 1, quorumlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		broken := errors.New("the disk is full")
		stop := c[0].background(t, func(ctx context.Context) error {
			<-ctx.Done()
			return broken
		})
		time.Sleep(time.Second)
		locktest.Each(c[0].paths, (*embedded.Server).Kill)
		time.Sleep(30 * time.Second)
		locktest.Each(c[0].paths, func(s *embedded.Server) { s.Restart(true) })
		time.Sleep(2 * time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) || !errors.Is(err, broken) {
			t.Errorf("Run: %v, want Canceled joined with the error of lead", err)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "the disk is full"); n != 1 {
			t.Errorf("the error is logged %d times, want once:\n%s", n, log.String())
		}
	})
}

// An error that is joined with that of the context is not only the end of the context.
func TestRunReturnsWhatLeadJoinedWithTheEndOfItsContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		broken := errors.New("the disk is full")
		stop := c[0].background(t, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(ctx.Err(), broken)
		})
		time.Sleep(time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) || !errors.Is(err, broken) {
			t.Errorf("Run: %v, want Canceled joined with the error of lead", err)
		}
	})
}

func TestALeadThatPanicsReleasesTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		func() {
			defer func() {
				if r := recover(); r != "lead" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = c[0].Run(t.Context(), func(context.Context) error { panic("lead") })
		}()
		synctest.Wait()
		locktest.Nothing(t, servers)
	})
}

func TestRunSaysThatTheLockWasLostAsItReturns(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		err := c[0].Run(t.Context(), func(context.Context) error {
			synctest.Wait() // for the nodes beyond the quorum
			locktest.Each(servers, func(s *embedded.Server) { s.Redis.Del("job") })
			return nil
		})
		if !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Run: %v, want ErrLost", err)
		}
	})
}

func TestRunGoesOnAfterWithWait(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2, quorumlock.WithWait(time.Second))
		term := c[0].leads(t)
		var w work
		stop := c[1].background(t, w.lead)
		time.Sleep(10 * time.Second)
		resign(t, term)
		time.Sleep(time.Second)
		if _, inside := w.so(); inside != 1 {
			t.Error("it does not lead")
		}
		_ = stop()
	})
}

// The timeout of a node must not be mistaken for the end of WithWait.
func TestRunWithWaitReturnsARefusalThatIsFinal(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1, quorumlock.WithWait(time.Minute))
		locktest.Each(servers[:3], func(s *embedded.Server) {
			if err := s.Redis.Set(wire.LeaderKey("job"), "mine"); err != nil {
				t.Fatal(err)
			}
		})
		c[0].paths[3].Stall()
		began := time.Now()
		err := c[0].Run(within(t, time.Hour), func(context.Context) error { return errors.New("it has led") })
		if _, few := errors.AsType[*quorumlock.QuorumError](err); !few || !errors.Is(err, quorumlock.ErrNotALock) || time.Since(began) > 5*time.Second {
			t.Errorf("Run after %v: %v, want a QuorumError soon", time.Since(began), err)
		}
		c[0].paths[3].Resume()
	})
}

func TestAClientThatIsClosedEndsRun(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		var w work
		ended := make(chan error, 2)
		for i := range c {
			go func() { ended <- c[i].Run(t.Context(), w.lead) }()
			time.Sleep(time.Second)
		}
		for i := range c {
			if err := c[i].client.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, quorumlock.ErrClosed) {
				t.Errorf("Run: %v, want ErrClosed", err)
			}
		}
	})
}
