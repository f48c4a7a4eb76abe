package hold

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestDoReleasesAndTellsOfALoss(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		lose bool
		err  error
		want []error
	}{
		"done":                 {false, nil, nil},
		"failed":               {false, broken, []error{broken}},
		"lost":                 {true, nil, []error{quorumlock.ErrLost}},
		"lost and then failed": {true, broken, []error{broken, quorumlock.ErrLost}},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			err := quorumlock.Do(t.Context(), c.Mutex("x"), func(ctx context.Context) error {
				synctest.Wait()
				if tt.lose {
					locktest.Each(servers, func(s *embedded.Server) { s.Redis.Del("x") })
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
					if cause := context.Cause(ctx); !errors.Is(cause, quorumlock.ErrLost) {
						t.Errorf("cause %v, want ErrLost", cause)
					}
				}
				return tt.err
			})
			if len(tt.want) == 0 && err != nil {
				t.Errorf("Do: %v, want no error", err)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("Do: %v, want %v in it", err, want)
				}
			}
			if !tt.lose && errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Do: %v, but nothing was lost", err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

func TestDoReleasesWhenTheFunctionPanics(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = quorumlock.Do(t.Context(), c.Mutex("x"), func(context.Context) error { panic("fn") })
		}()
		locktest.Nothing(t, servers)
	})
}

// Stopping notifies endless work of a Shutdown, which waits for it. The work keeps its lock.
func TestWorkLearnsOfShutdownAndKeepsItsLease(t *testing.T) {
	type work = func(ctx context.Context) error
	for name, run := range map[string]func(t *testing.T, c, other *redlock.Client, work work) error{
		"Do": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), c.Mutex("x"), work)
		},
		"Once": func(t *testing.T, c, _ *redlock.Client, work work) error {
			_, err := quorumlock.Once(t.Context(), c.Mutex("x"), 0, work)
			return err
		},
		"a reader": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), c.RWMutex("x").RLocker(), work)
		},
		"a MultiLock": func(t *testing.T, c, _ *redlock.Client, work work) error {
			l := locktest.Multi(t, c.Mutex("x"), c.Semaphore("y", 2))
			return quorumlock.Do(t.Context(), l, work)
		},
		"a lease of another client's around it": func(t *testing.T, c, other *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), other.Mutex("outer"), func(ctx context.Context) error {
				return quorumlock.Do(ctx, c.Mutex("x"), work)
			})
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3)
			began, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- run(t, clients[0], clients[1], func(ctx context.Context) error {
					close(began)
					<-quorumlock.Stopping(ctx)
					time.Sleep(time.Minute) // the rest of the work
					if err := context.Cause(ctx); err != nil {
						t.Errorf("the context of the work ended: %v", err)
					}
					if _, err := clients[1].Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
						t.Errorf("TryLock meanwhile: %v, want ErrHeld", err)
					}
					return nil
				})
			}()
			<-began
			time.Sleep(time.Minute)
			shut := time.Now()
			if err := clients[0].Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if took := time.Since(shut); took < time.Minute || took > time.Minute+time.Second {
				t.Errorf("Shutdown took %v, want as long as the work", took)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

func TestStopping(t *testing.T) {
	isClosed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	var none context.Context
	if quorumlock.Stopping(none) != nil || quorumlock.Stopping(t.Context()) != nil {
		t.Error("a context without a lease has a channel")
	}
	c, _ := locktest.Client(t, 1)
	lease := locktest.Lock(t, c.Mutex("x"))
	if ch := quorumlock.Stopping(lease.Context()); ch == nil || isClosed(ch) {
		t.Error("there is no channel, or it is closed")
	}
	locktest.Unlock(t, lease)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !isClosed(quorumlock.Stopping(lease.Context())) {
		t.Error("Close does not close the channel")
	}
}
