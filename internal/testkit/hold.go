package testkit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// Paths returns, for another client, a path to each of the servers and a node behind it. The end of
// the test closes them.
func Paths(t testing.TB, servers []*embedded.Server, opts ...node.Option) ([]*embedded.Server, []*node.Node) {
	t.Helper()
	paths := make([]*embedded.Server, len(servers))
	nodes := make([]*node.Node, len(servers))
	for i, s := range servers {
		paths[i] = s.Path(s.Name)
		n, err := paths[i].Node(opts...)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
	}
	closeAfter(t, paths, nodes)
	return paths, nodes
}

// Lock acquires l, or ends the test. In a synctest bubble it returns after all nodes have answered,
// unless the test delays them. Only the test's goroutine may call it.
func Lock(t testing.TB, l quorumlock.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	if err != nil {
		t.Fatalf("Lock of %q: %v", l.Name(), err)
	}
	answered()
	return lease
}

// LockIn acquires l with the context of a lease, or ends the test.
func LockIn(t testing.TB, ctx context.Context, l quorumlock.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.Lock(ctx)
	if err != nil {
		t.Fatalf("Lock of %q within a lease: %v", l.Name(), err)
	}
	return lease
}

// TryLock acquires l at once, or ends the test. It waits for the nodes as Lock does.
func TryLock(t testing.TB, l quorumlock.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.TryLock(t.Context())
	if err != nil {
		t.Fatalf("TryLock of %q: %v", l.Name(), err)
	}
	answered()
	return lease
}

// Unlock unlocks the lease, or fails the test. It waits for the nodes as Lock does.
func Unlock(t testing.TB, l *quorumlock.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of %q: %v", l.Name(), err)
	}
	answered()
}

func answered() {
	if inBubble() {
		synctest.Wait()
	}
}

// Refused checks that another owner holds l.
func Refused(t testing.TB, l quorumlock.Locker) {
	t.Helper()
	lease, err := l.TryLock(t.Context())
	if err == nil {
		t.Fatalf("TryLock of %q was granted token %d while it is held", l.Name(), lease.Token())
	}
	if !errors.Is(err, quorumlock.ErrHeld) {
		t.Fatalf("TryLock of %q, which is held: %v, want ErrHeld", l.Name(), err)
	}
	answered()
}

// Holds returns the number of servers at which owner holds the lock name.
func Holds(servers []*embedded.Server, name string, owner quorumlock.Owner) int {
	n := 0
	for _, s := range servers {
		fields, _ := s.Redis.HKeys(name)
		if slices.ContainsFunc(fields, func(f string) bool { return wire.Base(quorumlock.Owner(f)) == owner }) {
			n++
		}
	}
	return n
}

// HoldsAll checks that within a second all of the servers have the lock of a lease.
func HoldsAll(t testing.TB, servers []*embedded.Server, l *quorumlock.Lease) {
	t.Helper()
	if !within(time.Second, func() bool { return Holds(servers, l.Name(), l.Owner()) == len(servers) }) {
		t.Errorf("%d of %d servers have %q as the owner's", Holds(servers, l.Name(), l.Owner()), len(servers), l.Name())
	}
}

// Lost waits up to limit for the loss of the lease, and checks its context's cause.
func Lost(t testing.TB, l *quorumlock.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(limit):
		if l.Context().Err() == nil { // both channels may be ready
			t.Fatalf("the lease of %q was not lost within %v", l.Name(), limit)
		}
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, quorumlock.ErrLost) {
		t.Errorf("the lease of %q ended with cause %v, want ErrLost", l.Name(), cause)
	}
}

// Held checks that the lease is not lost.
func Held(t testing.TB, l *quorumlock.Lease) {
	t.Helper()
	if l.Context().Err() != nil {
		t.Errorf("the lease of %q ended: %v", l.Name(), context.Cause(l.Context()))
	}
}

// UnlockAll unlocks leases as Unlock does.
func UnlockAll(t testing.TB, leases ...*quorumlock.Lease) {
	t.Helper()
	for _, l := range leases {
		Unlock(t, l)
	}
}
