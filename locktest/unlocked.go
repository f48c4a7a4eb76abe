package locktest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock"
)

// AllUnlocked returns an Observer that fails t, at its end, for each lease that was not unlocked,
// with the line that called Lock or TryLock. A lost lease counts, too: the code has no Unlock for
// it.
//
//	client := nodetest.Start(t, 3, quorumlock.WithObserver(locktest.AllUnlocked(t))).Client()
//
// It is an option of [New] as well. Call AllUnlocked before the client is made, so that t closes
// the client first. In production, an alert on the longest hold and [quorumlock.WithMaxHold] have
// the same purpose.
func AllUnlocked(t testing.TB) quorumlock.Observer {
	u := &unlocked{leases: make(map[*quorumlock.Lease]string)}
	t.Cleanup(func() {
		t.Helper()
		for _, where := range u.left() {
			t.Errorf("locktest: %s was never unlocked: defer lease.Unlock(ctx), or use quorumlock.Do", where)
		}
	})
	return u
}

type unlocked struct {
	mu     sync.Mutex
	leases map[*quorumlock.Lease]string // the line that acquired each lease
}

// left describes the leases that are not unlocked, with the lines that acquired them.
func (u *unlocked) left() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for lease, where := range u.leases {
		all = append(all, fmt.Sprintf("the lease of %q, token %d, acquired at %s,", lease.Name(), lease.Token(), where))
	}
	slices.Sort(all)
	return all
}

// whereKey is the context key of the line that called Lock or TryLock.
type whereKey struct{ of *unlocked }

func (u *unlocked) Begin(ctx context.Context, _ string) context.Context {
	return context.WithValue(ctx, whereKey{u}, caller())
}

func (u *unlocked) Observe(_ context.Context, e quorumlock.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch e.Kind {
	case quorumlock.EventAcquired:
		u.leases[e.Lease], _ = e.Lease.Context().Value(whereKey{u}).(string)
	case quorumlock.EventReleased:
		delete(u.leases, e.Lease)
	}
}

// caller returns the line of the code that called the library.
func caller() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, "github.com/quorumlock/quorumlock.") || strings.HasPrefix(f.Function, "github.com/quorumlock/quorumlock/")
		if !own || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "an unknown line"
		}
	}
}
