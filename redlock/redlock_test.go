package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m) }

func TestLockExcludesAndUnlockFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 5)
		m := c.Mutex("x")
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("TryLock of a held lock: %v, want ErrHeld", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= lease.Token() {
			t.Errorf("token %d after %d", again.Token(), lease.Token())
		}
		if err := again.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWatchdogKeepsTheLeaseUntilAQuorumIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		servers[0].Kill()
		servers[1].Stall()
		time.Sleep(time.Minute)
		if lease.Context().Err() != nil {
			t.Fatal("lost with three of five nodes healthy")
		}
		servers[2].Kill()
		start := time.Now()
		<-lease.Context().Done()
		if got := context.Cause(lease.Context()); !errors.Is(got, quorumlock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", got)
		}
		t.Log("told after", time.Since(start), "deadline", lease.ValidUntil().Sub(start))
		if time.Now().After(lease.ValidUntil()) {
			t.Errorf("told %v after the deadline", time.Since(lease.ValidUntil()))
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		servers[1].Resume()
	})
}
