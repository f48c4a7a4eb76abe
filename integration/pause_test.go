package integration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestPausedMinorityIsNotMissed(t *testing.T) {
	needServers(t)
	c, other := dial(t, five, quorumlock.WithTTL(10*time.Second), quorumlock.WithNodeTimeout(2*time.Second)), dial(t, five, unhurried)
	for _, s := range five[:2] {
		s.pause(t)
	}
	lease := lock(t, c, "minority")
	isHeld(t, other, "minority")
	first := lease.ValidUntil()
	eventually(t, patience, "the watchdog extends the lease", func() bool { return lease.ValidUntil().After(first) })
	must(t, lease.Extend(t.Context()))
	must(t, lease.Context().Err())
	must(t, lease.Unlock(t.Context()))
}

// When nine callers contend for eight slots, nodes often grant a caller different ones. With two of
// five nodes paused, all three others must grant it the same one.
func TestPausedMinorityIsNotMissedByASemaphore(t *testing.T) {
	needServers(t)
	const slots, hold = 8, 50 * time.Millisecond
	var semaphores []*redlock.Semaphore
	// A busy machine may stop one of the three for a while, and an Unlock needs all three.
	for range slots + 1 {
		c := dial(t, five, quorumlock.WithTTL(time.Minute), quorumlock.WithNodeTimeout(2*time.Second))
		semaphores = append(semaphores, c.Semaphore("busy", slots))
	}
	for _, s := range five[:2] {
		s.pause(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	var grants atomic.Int64
	var callers errgroup.Group
	for _, s := range semaphores {
		callers.Go(func() error {
			for {
				lease, err := s.Lock(ctx)
				switch {
				case err == nil:
				case ctx.Err() != nil:
					return nil
				default:
					return err
				}
				grants.Add(1)
				time.Sleep(hold)
				if err := lease.Unlock(t.Context()); err != nil {
					return err
				}
			}
		})
	}
	eventually(t, patience, "1,000 grants", func() bool { return grants.Load() >= 1000 })
	stop()
	must(t, callers.Wait())
}

// A late grant or release arrives while its call is still pending. It is undone at once, long
// before its TTL is over.
func TestWhatANodeDoesAfterUnlockIsUndone(t *testing.T) {
	needServers(t)
	for name, granted := range map[string]bool{"the grant": false, "the release": true} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, five, quorumlock.WithTTL(time.Hour), quorumlock.WithNodeTimeout(patience))
			warm(t, c)
			late := five[4]
			if !granted {
				late.pause(t)
			}
			lease := lock(t, c, "late")
			if granted {
				everyNodeHas(t, "late", lease)
				late.pause(t)
			}
			must(t, lease.Unlock(t.Context()))
			noLocks(t, five[:4], patience)
			late.resume(t)
			noLocks(t, five, patience)
		})
	}
}

func TestGrantThatComesAfterFailureIsUndone(t *testing.T) {
	needServers(t)
	c := dial(t, five, quorumlock.WithTTL(time.Hour), quorumlock.WithNodeTimeout(patience))
	warm(t, c)
	for _, s := range five[2:] {
		s.pause(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Mutex("late").TryLock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryLock with two of five nodes: %v, want the end of its ctx", err)
	}
	noLocks(t, five[:2], patience)
	for _, s := range five[2:] {
		s.resume(t)
	}
	noLocks(t, five, patience)
}

func TestHolderIsToldByItsDeadlineWhenAMajorityIsGone(t *testing.T) {
	needServers(t)
	for name, way := range map[string]struct{ strike, heal func(*server, *testing.T) }{
		"paused":  {(*server).pause, (*server).resume},
		"cut off": {(*server).cut, (*server).join},
		"killed":  {(*server).kill, (*server).restart},
	} {
		t.Run(name, func(t *testing.T) {
			c, other := dial(t, five, quorumlock.WithTTL(3*time.Second)), dial(t, five)
			lease := lock(t, c, name)
			for _, s := range five[:3] {
				way.strike(s, t)
			}
			told(t, lease)
			if late := time.Since(lease.ValidUntil()); late > time.Second {
				t.Errorf("told %v after the deadline", late)
			}
			noQuorum(t, other, name, five[:3])
			if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
			for _, s := range five[:3] {
				way.heal(s, t)
			}
			next := lock(t, other, name)
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			must(t, next.Unlock(t.Context()))
		})
	}
}

// warm opens a connection to every node and loads the scripts there. A paused node then gets the
// acquisition itself.
func warm(t *testing.T, c *redlock.Client) {
	t.Helper()
	lease := lock(t, c, "warm")
	everyNodeHas(t, "warm", lease)
	must(t, lease.Unlock(t.Context()))
	noLocks(t, five, patience)
}
