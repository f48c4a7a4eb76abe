package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

func TestAMutexExcludesUntilItIsUnlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		m := n.Mutex("x")
		if m.Name() != "x" {
			t.Errorf("name %q", m.Name())
		}
		first := locktest.MustLock(t, m)
		if got, err := m.Inspect(t.Context()); err != nil || got.Owner != first.Owner() || got.HoldCount != 1 || got.Token != first.Token() || got.TTL != quorumlock.DefaultTTL {
			t.Errorf("Inspect: %+v, %v", got, err)
		}
		if _, err := n.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		other, err := n.Mutex("y").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		locktest.MustUnlock(t, other)
		locktest.MustUnlock(t, first)
		second, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if second.Token() <= first.Token() || second.Owner() == first.Owner() {
			t.Errorf("token %d after %d, owner %s after %s", second.Token(), first.Token(), second.Owner(), first.Owner())
		}
		locktest.MustUnlock(t, second)
		locktest.NoLocks(t, []*embedded.Server{s})
	})
}

func TestLockIsWokenByTheUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		m := n.Mutex("x")
		first := locktest.MustLock(t, m)
		granted := make(chan *quorumlock.Lease)
		go func() {
			second, err := m.Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- second
		}()
		time.Sleep(time.Minute)
		start := time.Now()
		locktest.MustUnlock(t, first)
		second := <-granted
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the lock was handed over after %v", took)
		}
		locktest.MustUnlock(t, second)
	})
}

func TestTheWatchdogKeepsAMutexAndALossIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		lease := locktest.MustLock(t, n.Mutex("x"))
		time.Sleep(time.Hour)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("after an hour: %v", err)
		}
		s.Kill()
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		if time.Now().After(lease.ValidUntil()) {
			t.Errorf("told %v after the deadline", time.Since(lease.ValidUntil()))
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
	})
}

func TestForceUnlockIsALossForTheHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		m := n.Mutex("x")
		lease := locktest.MustLock(t, m)
		if err := m.ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-lease.Context().Done()
		if took := time.Since(start); took > quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000 { // with the next renewal, which waits for others
			t.Errorf("the holder was told after %v", took)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		if err := m.ForceUnlock(t.Context()); err != nil {
			t.Errorf("ForceUnlock of a free lock: %v", err)
		}
	})
}

func TestReentryByContextCountsInTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		m := n.Mutex("x")
		outer := locktest.MustLock(t, m)
		before := s.Redis.CommandCount()
		inner, err := m.Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Redis.CommandCount(); got != before {
			t.Errorf("it cost %d commands", got-before)
		}
		if inner.Owner() != outer.Owner() || inner.Token() != outer.Token() || outer.HoldCount() != 2 {
			t.Errorf("owner %s, token %d, hold count %d", inner.Owner(), inner.Token(), outer.HoldCount())
		}
		locktest.MustUnlock(t, inner)
		if outer.Context().Err() != nil || outer.HoldCount() != 1 {
			t.Errorf("the outer lease: %v, hold count %d", outer.Context().Err(), outer.HoldCount())
		}
		locktest.MustUnlock(t, outer)
		locktest.NoLocks(t, []*embedded.Server{s})
	})
}

func TestAMutexThatCannotWorkSaysSoWhenItIsUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		for name, tt := range map[string]struct {
			m    *node.Mutex
			want string
		}{
			"no name":  {n.Mutex(""), "the name of the lock is empty: use a name"},
			"option":   {n.Mutex("x", quorumlock.WithTTL(1)), "WithTTL(1ns) is too short"},
			"a quorum": {n.Mutex("x", quorumlock.WithQuorum(1)), "WithQuorum is for package redlock"},
			"a label":  {n.Mutex("x", quorumlock.WithLabel("billing")), "WithLabel is for redlock.New"},
		} {
			_, err := tt.m.Lock(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: Lock: %v, want %q in it", name, err, tt.want)
			}
			_, err = tt.m.TryLock(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: TryLock: %v, want %q in it", name, err, tt.want)
			}
		}
	})
}

func TestTryLockNamesTheNodeAndTheCause(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*embedded.Server)
		want  string
	}{
		"down":       {(*embedded.Server).Kill, "connection refused"},
		"stalled":    {(*embedded.Server).Stall, "context deadline exceeded"},
		"wrong type": {func(s *embedded.Server) { _ = s.Redis.Set("x", "a value") }, "WRONGTYPE"},
		"read only":  {func(s *embedded.Server) { s.Redis.SetError("READONLY") }, "READONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
				if _, err := transport.Of(n).Inspect(t.Context(), "y"); err != nil {
					t.Fatal(err)
				}
				tt.fault(s)
				_, err := n.Mutex("x").TryLock(t.Context())
				if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || e.Node != "node-1" || !strings.Contains(e.Error(), tt.want) {
					t.Errorf("error %v, want a *NodeError of node-1 with %q", err, tt.want)
				}
				q, few := errors.AsType[*quorumlock.QuorumError](err)
				if wrong := errors.Is(err, quorumlock.ErrNotALock); wrong == few || few && (q.Granted != 0 || q.Needed != 1 || len(q.Nodes) != 1) {
					t.Errorf("error %v, want either ErrNotALock or a *QuorumError of one node", err)
				}
				if errors.Is(err, quorumlock.ErrHeld) {
					t.Error("a failure counts as held")
				}
				s.Resume()
				synctest.Wait()
				if name == "wrong type" {
					if got, _ := s.Redis.Get("x"); got != "a value" {
						t.Errorf("what was at the key is %q now", got)
					}
				}
			})
		})
	}
}

// A zero Node has no server. Its locks say so, and nothing panics.
func TestAZeroNodeHasAnError(t *testing.T) {
	var n node.Node
	ctx := t.Context()
	_, lock := n.Mutex("x").Lock(ctx)
	_, try := n.Mutex("x").TryLock(ctx)
	_, inspect := n.Mutex("x").Inspect(ctx)
	_, read := n.RWMutex("x").RLock(ctx)
	_, slot := n.Semaphore("x", 3).Lock(ctx)
	_, slots := n.Semaphore("x", 3).Inspect(ctx)
	_, count := n.Latch("x", 3).Count(ctx)
	_, status := n.Status(ctx)
	for what, err := range map[string]error{
		"Lock": lock, "TryLock": try, "Inspect": inspect, "ForceUnlock": n.Mutex("x").ForceUnlock(ctx), "RLock": read, "Semaphore": slot,
		"Semaphore.Inspect": slots, "Semaphore.ForceUnlock": n.Semaphore("x", 3).ForceUnlock(ctx), "Done": n.Latch("x", 3).Done(ctx, "1"), "Count": count, "Status": status,
	} {
		if err == nil || !strings.Contains(err.Error(), "use node.Dial or node.New") {
			t.Errorf("%s of a zero Node: %v", what, err)
		}
	}
	if got := n.String(); got != "zero node" {
		t.Errorf("its name is %q", got)
	}
	if err := n.Close(); err != nil || n.Client() != nil {
		t.Errorf("Close: %v; its client is %v", err, n.Client())
	}
}
