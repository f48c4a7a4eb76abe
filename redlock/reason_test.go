package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// refusal is an Observer that keeps the steps of a refused call.
type refusal struct{ steps []quorumlock.Step }

func (r *refusal) Begin(ctx context.Context, _ string) context.Context { return ctx }

func (r *refusal) Observe(_ context.Context, e quorumlock.Event) {
	if e.Kind == quorumlock.Refused {
		r.steps = e.Steps
	}
}

// With a dead or a slow minority, the waiter still learns that the lock is held, and sends no node more requests than with healthy
// nodes.
func TestAMinorityIsNeverReportedAsNoQuorum(t *testing.T) {
	const waits = 12 * time.Second
	scripts := func(t *testing.T, slow func(s *embedded.Server)) (ran int) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			locktest.MustLock(t, c.Mutex("x"))
			log, logger := logging()
			told := &refusal{}
			waiter, paths := locktest.Another(t, servers, logger, quorumlock.WithObserver(told))
			slow(paths[0])
			paths[1].Delay(time.Millisecond)
			paths[2].Delay(2 * time.Millisecond)
			before := servers[1].Ran("acquire")
			ctx, cancel := context.WithTimeout(t.Context(), waits)
			defer cancel()
			_, err := waiter.Mutex("x").Lock(ctx)
			ran = servers[1].Ran("acquire") - before
			if _, few := errors.AsType[*quorumlock.QuorumError](err); few || !errors.Is(err, quorumlock.ErrHeld) {
				t.Errorf("Lock: %v, want ErrHeld and no QuorumError", err)
			}
			if lines := log.lines("no quorum"); len(lines) > 0 {
				t.Errorf("the log has %q", lines[0])
			}
			for _, s := range told.steps {
				if _, few := errors.AsType[*quorumlock.QuorumError](s.Err); few {
					t.Errorf("the Observer learns of %v", s.Err)
				}
			}
		})
		return ran
	}
	well := scripts(t, func(*embedded.Server) {})
	for name, slow := range map[string]func(s *embedded.Server){
		"killed": (*embedded.Server).Kill, "frozen": (*embedded.Server).Stall, "requests lost": (*embedded.Server).Lose, "way back cut": (*embedded.Server).Mute,
	} {
		t.Run(name, func(t *testing.T) {
			if ran := scripts(t, slow); 10*ran > 11*well {
				t.Errorf("a healthy node ran %d scripts in %v, and %d while all were well", ran, waits, well)
			}
		})
	}
}

// Two of three nodes do not answer, so the third cannot prove that the lock is held. A caller that skips its job if the lock is
// held must not skip it now.
func TestAnOutageIsNoQuorumThoughOneNodeRefuses(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				locktest.MustLock(t, c.Mutex("x"))
				other, _ := locktest.Another(t, servers, quorumlock.WithWait(time.Second))
				warm(t, other)
				locktest.Each(servers[1:], tt.cut)
				for name, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": other.Mutex("x").Lock, "TryLock": other.Mutex("x").TryLock} {
					_, err := call(t.Context())
					if q, few := errors.AsType[*quorumlock.QuorumError](err); !few || errors.Is(err, quorumlock.ErrHeld) || len(q.Nodes) != 2 {
						t.Errorf("%s: %v, want a QuorumError of 2 nodes, and not ErrHeld", name, err)
					}
				}
				ran, err := quorumlock.Once(t.Context(), other.Mutex("x"), time.Second, func(context.Context) error { return nil })
				if ran || err == nil {
					t.Errorf("Once: %v, %v, want an error", ran, err)
				}
				locktest.Each(servers[1:], tt.end)
			})
		})
	}
}

// A Lock that waits for a lease of its own process usually lacks that lease's context.
func TestALockThatWaitsForItsOwnProcessSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithWait(time.Second))
		other, _ := locktest.Another(t, servers, quorumlock.WithWait(time.Second))
		locktest.MustLock(t, c.Mutex("x"))
		for range 3 { // the others wait in the local queue, and ask no node
			go c.Mutex("x").Lock(t.Context()) //nolint:errcheck // it waits in vain
		}
		synctest.Wait()
		for name, tt := range map[string]struct {
			lock quorumlock.Locker
			own  bool
		}{"the client that holds": {c.Mutex("x"), true}, "another client": {other.Mutex("x"), false}} {
			for way, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"TryLock": tt.lock.TryLock, "Lock": tt.lock.Lock} {
				_, err := call(t.Context())
				held, ok := errors.AsType[*quorumlock.HeldError](err)
				says := err != nil && strings.Contains(err.Error(), "held by this process") && strings.Contains(err.Error(), "pass the lease's context")
				if !ok || held.Own != tt.own || says != tt.own || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s of %s: %v, want one line that says whether it is held by this process", way, name, err)
				}
			}
		}
	})
}

// Wrong use of a name is no outage: the error names the key's type, once.
func TestANameOfAnotherKindIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		if err := c.Latch("latch", 2).Done(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			if err := s.Redis.Set("string", "fUBMXN0GeZYCFRBNgwvJKw=="); err != nil { // as redsync writes it
				t.Fatal(err)
			}
		}
		lock := func(name string) func() error {
			return func() error {
				_, err := c.Mutex(name).Lock(t.Context())
				return err
			}
		}
		for name, tt := range map[string]struct {
			call func() error
			want error
			says string
		}{
			"a latch as a mutex":      {lock("latch"), quorumlock.ErrWrongKind, "a latch"},
			"a latch of another n":    {func() error { return c.Latch("latch", 3).Done(t.Context(), "b") }, quorumlock.ErrLatchMismatch, "3 here"},
			"a string as a mutex":     {lock("string"), quorumlock.ErrWrongKind, "redsync"},
			"a string as a semaphore": {func() error { _, err := c.Semaphore("string", 2).TryLock(t.Context()); return err }, quorumlock.ErrNotALock, ""},
		} {
			err := tt.call()
			if !errors.Is(err, tt.want) || errors.Is(err, quorumlock.ErrNoQuorum) || errors.Is(err, quorumlock.ErrHeld) || !strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), "node ") > 1 {
				t.Errorf("%s: %v, want %v, once, and neither ErrNoQuorum nor ErrHeld", name, err, tt.want)
			}
		}
	})
}
