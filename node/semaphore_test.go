package node_test

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
)

func TestASemaphoreOfOneNode(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, _ *embedded.Server, n *node.Node) {
		s := n.Semaphore("x", 2)
		a, b := locktest.MustLock(t, s), locktest.MustLock(t, s)
		if a.Slot()+b.Slot() != 1 || a.Slot() == b.Slot() {
			t.Errorf("slots %d and %d", a.Slot(), b.Slot())
		}
		locktest.Refused(t, s)
		state, err := s.Inspect(t.Context())
		if err != nil || len(state.Slots) != 2 || !state.Held() {
			t.Errorf("%+v, %v", state, err)
		}
		slot := a.Slot()
		locktest.MustUnlock(t, a)
		if a = locktest.MustLock(t, s); a.Slot() != slot {
			t.Errorf("slot %d, and %d was free", a.Slot(), slot)
		}
		locktest.Must(t, s.ForceUnlock(t.Context()), "ForceUnlock")
		if state, err := s.Inspect(t.Context()); err != nil || state.Held() {
			t.Errorf("%+v, %v", state, err)
		}
		if m := locktest.MustLock(t, n.Mutex("m")); m.Slot() != 0 {
			t.Errorf("slot %d of a mutex", m.Slot())
		}
	})
}

// A call with a bad option does nothing: without its prefix it would be about another lock.
func TestABadOptionKeepsInspectAndForceUnlockFromAnotherLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, _ *embedded.Server, n *node.Node) {
		m, s := locktest.MustLock(t, n.Mutex("x")), locktest.MustLock(t, n.Semaphore("s", 2))
		bad := quorumlock.WithPrefix("a prefix: ")
		for what, err := range map[string]error{
			"ForceUnlock of a mutex":           n.Mutex("x", bad).ForceUnlock(t.Context()),
			"ForceUnlock of a read-write lock": n.RWMutex("x", bad).ForceUnlock(t.Context()),
			"ForceUnlock of a semaphore":       n.Semaphore("s", 2, bad).ForceUnlock(t.Context()),
			"ForceUnlock without permits":      n.Semaphore("s", 0).ForceUnlock(t.Context()),
			"Inspect of a mutex":               locktest.Err(n.Mutex("x", bad).Inspect(t.Context())),
			"Inspect without permits":          locktest.Err(n.Semaphore("s", 0).Inspect(t.Context())),
		} {
			if err == nil || !strings.Contains(err.Error(), "WithPrefix") && !strings.Contains(err.Error(), "permits is 0") {
				t.Errorf("%s: %v, want an error that names the option", what, err)
			}
		}
		for _, l := range []*quorumlock.Lease{m, s} {
			locktest.OK(t, l.Extend(t.Context()), "Extend of %q", l.Name())
			locktest.MustUnlock(t, l)
		}
	})
}
