package locktest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestLockerConforms(t *testing.T) { testMyLocker(t) }

// The library's own locks do what the checks ask for.
func TestLocksOfTheLibraryConform(t *testing.T) {
	for name, lock := range map[string]func(t *testing.T, n *nodetest.Nodes) quorumlock.Locker{
		"redlock.Mutex":    func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker { return n.NewClient().Mutex("x") },
		"without a bubble": func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker { return n.NewClient().Mutex("x") },
		"node.Mutex":       func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker { return n.Node().Mutex("x") },
		"redlock.RWMutex":  func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker { return n.NewClient().RWMutex("x") },
		"redlock.Semaphore with one permit": func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker {
			return n.NewClient().Semaphore("x", 1)
		},
		"all permits of a redlock.Semaphore": func(_ *testing.T, n *nodetest.Nodes) quorumlock.Locker {
			return several{n.NewClient().Semaphore("x", 2), 2}
		},
		"multilock.Mutex": func(t *testing.T, n *nodetest.Nodes) quorumlock.Locker {
			c := n.NewClient()
			return testkit.Multi(t, c.Mutex("x"), c.Mutex("y"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "redlock.RWMutex", "redlock.Semaphore with one permit", "all permits of a redlock.Semaphore", "multilock.Mutex":
				if testkit.Race {
					return // they take a minute then; a run without it has them all
				}
			}
			locktest.Conformance{Bubble: name != "without a bubble", New: func(t *testing.T) (a, b quorumlock.Locker) {
				n := nodetest.Start(t, 3)
				return lock(t, n), lock(t, n)
			}}.Run(t)
		})
	}
}

// several is a Locker of n permits.
type several struct {
	*redlock.Semaphore
	n int
}

func (s several) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.LockN(ctx, s.n) }

func (s several) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return s.TryLockN(ctx, s.n) }

// broken is a Locker that breaks one promise.
type broken struct {
	*locktest.Locker
	lock, try call
}

type call func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error)

func (b *broken) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	if b.lock != nil {
		return b.lock(ctx, b.Locker)
	}
	return b.Locker.Lock(ctx)
}

func (b *broken) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	if b.try != nil {
		return b.try(ctx, b.Locker)
	}
	return b.Locker.TryLock(ctx)
}

// worn is a hold whose lease says something else than it should.
type worn struct {
	*quorumlock.Lease
	token func(uint64) uint64
	leave func(*quorumlock.Lease, context.Context, time.Duration) error

	forgets bool // the TTL of ExtendTo
}

func (w *worn) Token() uint64 {
	if w.token != nil {
		return w.token(w.Lease.Token())
	}
	return w.Lease.Token()
}

func (w *worn) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 || w.forgets {
		return w.Lease.Extend(ctx)
	}
	return w.Lease.ExtendTo(ctx, ttl)
}

func (w *worn) EndLease(ctx context.Context, _ *quorumlock.Lease, keep time.Duration) error {
	if w.leave != nil {
		return w.leave(w.Lease, ctx, keep)
	}
	return w.UnlockAfter(ctx, keep)
}

// wear wraps the leases of both calls.
func wear(change func(*worn)) broken {
	wrap := func(lock func(*locktest.Locker, context.Context) (*quorumlock.Lease, error)) call {
		return func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) {
			lease, err := lock(l, ctx)
			if err != nil {
				return nil, err
			}
			w := &worn{Lease: lease}
			change(w)
			wrapped, _ := quorumlock.NewLease(lease.Context(), w)
			return wrapped, nil
		}
	}
	return broken{lock: wrap((*locktest.Locker).Lock), try: wrap((*locktest.Locker).TryLock)}
}

// brokenLockers break one promise each; the value is a check that must find it.
var brokenLockers = map[string]struct {
	is    broken
	check string
}{
	"tokens stand still": {wear(func(w *worn) { w.token = func(uint64) uint64 { return 7 } }), "tokens rise"},
	"tokens fall":        {wear(func(w *worn) { w.token = func(n uint64) uint64 { return 1000 - n } }), "tokens rise"},
	"Unlock does nothing when ctx is done": {wear(func(w *worn) {
		w.leave = func(l *quorumlock.Lease, ctx context.Context, keep time.Duration) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return l.UnlockAfter(ctx, keep)
		}
	}), "Unlock releases though"},
	"ExtendTo is Extend": {wear(func(w *worn) { w.forgets = true }), "Extend keeps"},
	"UnlockAfter keeps nothing": {wear(func(w *worn) {
		w.leave = func(l *quorumlock.Lease, ctx context.Context, _ time.Duration) error { return l.Unlock(ctx) }
	}), "UnlockAfter keeps"},
	"a lock for each call": {broken{
		lock: func(ctx context.Context, _ *locktest.Locker) (*quorumlock.Lease, error) {
			return locktest.New("x").Lock(ctx)
		},
		try: func(ctx context.Context, _ *locktest.Locker) (*quorumlock.Lease, error) {
			return locktest.New("x").TryLock(ctx)
		},
	}, "one holder at a time"},
	"Lock does not wait": {broken{lock: func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) { return l.TryLock(ctx) }}, "Lock waits"},
	"TryLock waits": {broken{try: func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) {
		if ctx == nil || ctx.Err() != nil {
			return l.TryLock(ctx)
		}
		start := time.Now()
		for time.Since(start) < time.Second {
			if lease, err := l.TryLock(ctx); err == nil {
				return lease, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil, context.DeadlineExceeded
	}}, "a held lock is refused"},
	"Lock polls": {broken{lock: func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) {
		if ctx == nil {
			return l.Lock(ctx)
		}
		for n := time.Duration(17); ; n = n*7%13 + 1 {
			if lease, err := l.TryLock(ctx); err == nil || ctx.Err() != nil {
				return lease, err
			}
			time.Sleep(n * time.Millisecond)
		}
	}}, "waiters are served in the order"},
	"leases of no parent": {broken{lock: func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) {
		if ctx == nil {
			return l.Lock(ctx)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for {
			if lease, err := l.TryLock(context.WithoutCancel(ctx)); err == nil {
				return lease, nil
			} else if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}}, "the context of a lease ends"},
	"no re-entry": {broken{try: func(ctx context.Context, l *locktest.Locker) (*quorumlock.Lease, error) {
		if ctx == nil || ctx.Err() != nil {
			return l.TryLock(ctx)
		}
		return l.TryLock(context.Background())
	}}, "the context of a lease enters"},
}

// TestConformanceOfABrokenLocker runs the checks on a broken Locker in a process of its own if the
// environment names one: their failure is what TestConformanceFindsBrokenLockers wants.
func TestConformanceOfABrokenLocker(t *testing.T) {
	name := os.Getenv("QUORUMLOCK_BROKEN_LOCKER")
	if name == "" {
		return // it is a role, and not a test: TestConformanceFindsBrokenLockers plays it
	}
	locktest.Conformance{Bubble: true, New: func(*testing.T) (a, b quorumlock.Locker) {
		l := brokenLockers[name].is
		l.Locker = locktest.New("x")
		return &l, &l
	}}.Run(t)
}

func TestConformanceFindsBrokenLockers(t *testing.T) {
	for name, tt := range brokenLockers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformanceOfABrokenLocker$")
			cmd.Env = append(os.Environ(), "QUORUMLOCK_BROKEN_LOCKER="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestConformanceOfABrokenLocker/"+strings.ReplaceAll(tt.check, " ", "_")) {
				t.Errorf("the check %q did not find it: %v\n%s", tt.check, err, out)
			}
		})
	}
}
