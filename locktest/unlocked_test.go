package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// inner is a test within the test, whose errors are kept.
type inner struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (i *inner) Errorf(format string, args ...any) {
	i.errors = append(i.errors, fmt.Sprintf(format, args...))
}
func (i *inner) Cleanup(f func()) { i.cleanups = append(i.cleanups, f) }

func (i *inner) end() []string {
	for _, f := range i.cleanups {
		f()
	}
	return i.errors
}

// forgets is code under test that unlocks its first lease only.
func forgets(t *testing.T, lock quorumlock.Locker) {
	ctx := t.Context()
	_ = quorumlock.Do(ctx, lock, func(ctx context.Context) error {
		again, err := lock.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return again.Unlock(ctx)
	})
	if _, err := quorumlock.Once(ctx, lock, time.Second, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Lock(ctx) // it waits for a second
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.TryLock(ctx); err == nil {
		t.Fatal("granted twice")
	}
	if _, err := lock.TryLock(lease.Context()); err != nil { // entered, and not unlocked
		t.Fatal(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAllUnlockedNamesTheLineOfALeaseThatIsNot(t *testing.T) {
	for name, lock := range map[string]func(*testing.T, quorumlock.Observer) quorumlock.Locker{
		"in memory": func(_ *testing.T, o quorumlock.Observer) quorumlock.Locker {
			return locktest.New("x", quorumlock.WithObserver(o))
		},
		"on nodes": func(t *testing.T, o quorumlock.Observer) quorumlock.Locker {
			return nodetest.Start(t, 3, quorumlock.WithObserver(o)).Client().Mutex("x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &inner{TB: t}
				forgets(t, lock(t, locktest.AllUnlocked(i)))
				errors := i.end()
				if len(errors) != 1 || !strings.Contains(errors[0], `the lease of "x"`) || !strings.Contains(errors[0], "unlocked_test.go:56,") || !strings.Contains(errors[0], "defer lease.Unlock(ctx)") {
					t.Errorf("%q, want one error with the line of the second TryLock", errors)
				}
			})
		})
	}
}

func TestAllUnlockedCountsAnUnlockAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &inner{TB: t}
		client := nodetest.Start(t, 3, quorumlock.WithObserver(locktest.AllUnlocked(i))).Client()
		lease, err := client.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		if errs := i.end(); len(errs) > 0 {
			t.Errorf("%q", errs)
		}
	})
}
