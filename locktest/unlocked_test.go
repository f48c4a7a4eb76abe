package locktest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
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
	_ = quorumlock.Do(ctx, lock, func(ctx context.Context) error { return testkit.LockIn(t, ctx, lock).Unlock(ctx) })
	testkit.Must(t, testkit.Err(quorumlock.Once(ctx, lock, time.Second, func(context.Context) error { return nil })), "Once")
	lease := testkit.Lock(t, lock) // it waits for a second
	testkit.Refused(t, lock)
	_, err := lock.TryLock(lease.Context()) // entered, and not unlocked
	testkit.Must(t, err, "TryLock")
	testkit.Must(t, lease.Unlock(ctx), "Unlock")
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
		testkit.Run(t, name, func(t *testing.T) {
			i := &inner{TB: t}
			forgets(t, lock(t, locktest.AllUnlocked(i)))
			errors := i.end()
			if len(errors) != 1 || !strings.Contains(errors[0], `the lease of "x"`) || !strings.Contains(errors[0], "unlocked_test.go:42,") || !strings.Contains(errors[0], "defer lease.Unlock(ctx)") {
				t.Errorf("%q, want one error with the line of the second TryLock", errors)
			}
		})
	}
}

func TestAllUnlockedCountsAnUnlockAfterClose(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		i := &inner{TB: t}
		client := nodetest.Start(t, 3, quorumlock.WithObserver(locktest.AllUnlocked(i))).Client()
		lease := testkit.Lock(t, client.Mutex("x"))
		testkit.OK(t, client.Close(), "Close")
		testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		if errs := i.end(); len(errs) > 0 {
			t.Errorf("%q", errs)
		}
	})
}
