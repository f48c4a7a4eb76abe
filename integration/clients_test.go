package integration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// dial returns a client over the servers. At the end of the test, when all faults are healed, it is
// closed, and no server may have a lock left.
func dial(t *testing.T, servers []*server, opts ...quorumlock.Option) *redlock.Client {
	t.Helper()
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.url()
	}
	t.Cleanup(func() { noLocks(t, servers, patience) })
	return dialURLs(t, urls, opts...)
}

func dialURLs(t *testing.T, urls []string, opts ...quorumlock.Option) *redlock.Client {
	t.Helper()
	nodes := make([]*node.Node, len(urls))
	for i, u := range urls {
		var err error
		nodes[i], err = node.Dial(u)
		must(t, err)
	}
	c, err := redlock.New(nodes, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// unhurried is for tests in which the nodes are healthy: a machine that is busy fails none of them.
var unhurried = quorumlock.WithNodeTimeout(5 * time.Second)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lock is c.Mutex(name).Lock that has to work.
func lock(t *testing.T, c *redlock.Client, name string, opts ...quorumlock.Option) *quorumlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("out of patience"))
	t.Cleanup(cancel) // the lease's context descends from it
	lease, err := c.Mutex(name, opts...).Lock(ctx)
	must(t, err)
	return lease
}

// isHeld checks that the lock cannot be had by c.
func isHeld(t *testing.T, c *redlock.Client, name string) {
	t.Helper()
	lease, err := c.Mutex(name).TryLock(t.Context())
	if err == nil {
		_ = lease.Unlock(t.Context())
	}
	if !errors.Is(err, quorumlock.ErrHeld) {
		t.Errorf("TryLock of %q: %v, want ErrHeld", name, err)
	}
}

// noQuorum checks that c cannot acquire, and that the error names only failing nodes. It need not
// name all of them: an attempt ends as soon as it is lost.
func noQuorum(t *testing.T, c *redlock.Client, name string, failing []*server) *quorumlock.QuorumError {
	t.Helper()
	lease, err := c.Mutex(name).TryLock(t.Context())
	if err == nil {
		_ = lease.Unlock(t.Context())
	}
	e, ok := errors.AsType[*quorumlock.QuorumError](err)
	if !ok {
		t.Fatalf("TryLock with %d nodes failing: %v, want a *QuorumError", len(failing), err)
	}
	if len(e.Nodes) == 0 {
		t.Errorf("the error names no node: %v", err)
	}
	for _, n := range e.Nodes {
		if !slices.ContainsFunc(failing, func(s *server) bool { return s.addr == n.Node }) {
			t.Errorf("the error names %s, which does not fail: %v", n.Node, n.Err)
		}
	}
	return e
}

// told waits until the lease's context ends, and checks that a loss is the cause.
func told(t *testing.T, lease *quorumlock.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder was not told")
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
		t.Errorf("the cause of the lease's end is %v, want ErrLost", cause)
	}
}

// keys returns the keys of a server, without token counters, the age of the restart guard, and the
// latches of a soak, which the nodes keep for a minute.
func keys(t *testing.T, s *server) []string {
	t.Helper()
	all, err := s.admin.Keys(context.Background(), "*").Result()
	must(t, err)
	return slices.DeleteFunc(all, func(k string) bool {
		return strings.HasPrefix(k, "redisson_lock_token:") || k == "quorumlock_age" ||
			strings.HasPrefix(k, "import of ") || strings.HasPrefix(k, "quorumlock_latch:{import of ")
	})
}

// noLocks waits, up to the limit, until each server has had none of these keys. Remaining
// keys fail the test and are deleted. Cancelled calls may still be releasing late grants.
func noLocks(t *testing.T, servers []*server, limit time.Duration) {
	t.Helper()
	end := time.Now().Add(limit)
	for _, s := range servers {
		left := keys(t, s)
		for ; len(left) > 0 && time.Now().Before(end); left = keys(t, s) {
			time.Sleep(5 * time.Millisecond)
		}
		if len(left) > 0 {
			t.Errorf("%s still has %q after %v", s.addr, left, limit)
			must(t, s.admin.FlushAll(context.Background()).Err())
		}
	}
}

// holder returns who has the lock at a server, without the cell, or "".
func holder(t *testing.T, s *server, name string) string {
	t.Helper()
	owners, err := s.admin.HKeys(context.Background(), name).Result()
	must(t, err)
	owners = slices.DeleteFunc(owners, func(field string) bool { return field == "mode" })
	for i, o := range owners {
		owners[i] = string(wire.Base(quorumlock.Owner(o)))
	}
	return strings.Join(owners, " and ")
}

// eventually polls for a state that no event announces.
func eventually(t *testing.T, limit time.Duration, what string, true func() bool) {
	t.Helper()
	for began := time.Now(); !true(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began)-machine.since(began) > limit {
			t.Errorf("not within %v: %s", limit, what)
			return
		}
	}
}
