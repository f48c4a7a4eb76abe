package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

type neverSent struct{ error }

func (neverSent) NotSent() {}

var (
	errSilent = errors.New("no answer")
	errUnsent = neverSent{errors.New("connection refused")}
)

// refusal is an error that a server answers.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// unlockWithout acquires locks at three nodes, and unlocks them while the third node fails.
func unlockWithout(t *testing.T, far *yes, locks int, err error) *client.Client {
	t.Helper()
	c := newClient(t)
	leases := make([]*quorumlock.Lease, locks)
	for i := range leases {
		leases[i] = testkit.MustLock(t, lockAt(t, c, fmt.Sprint("x", i), append(yeses(2), far)))
	}
	time.Sleep(time.Second) // until all nodes have answered
	far.become(err)
	for _, lease := range leases {
		testkit.MustUnlock(t, lease)
	}
	return c
}

// Releases stay pending while their node is away, even for days. One call probes it twice a second.
// After its return, all of them run within two seconds.
func TestPendingReleasesOutlastAnyTTL(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const locks = 1200
		far := &yes{name: "far"}
		unlockWithout(t, far, locks, errSilent)
		time.Sleep(time.Minute)
		for range 3 {
			far.become(errSilent)
			time.Sleep(10 * time.Minute)
			if asked, _, most, _ := far.counts(); asked > 2*600 || asked < 600 || most > 1 {
				t.Errorf("in ten minutes it was asked for %d releases, up to %d at one time", asked, most)
			}
		}
		far.become(nil)
		time.Sleep(2 * time.Second)
		if _, _, _, released := far.counts(); released != locks {
			t.Errorf("it has run %d releases, want %d", released, locks)
		}
	})
}

// Shutdown waits for a pending release until its TTL at most, and names the node. Close does not
// wait.
func TestShutdownWaitsForPendingReleasesUntilTheirTTL(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		far := &yes{name: "far"}
		c := unlockWithout(t, far, 3, errSilent)
		began := time.Now()
		unconfirmed(t, c.Shutdown(t.Context()), "3 at node far")
		const ttl = quorumlock.DefaultTTL
		testkit.Took(t, began, ttl-time.Second, ttl+2*time.Second, "Shutdown")
		began = time.Now()
		c.Close()
		testkit.Took(t, began, 0, 2*time.Second, "Close")
	})
}

// unconfirmed checks the error of a Shutdown that ended with releases that no node has confirmed.
func unconfirmed(t *testing.T, err error, where string) {
	t.Helper()
	want := quorumlock.ErrUnconfirmed.Error() + ": " + where
	if !errors.Is(err, quorumlock.ErrUnconfirmed) || err.Error() != want {
		t.Errorf("Shutdown: %v, want %s", err, want)
	}
}

// Shutdown does not wait for a release that a node refuses. While the key may be there, it names
// the node.
func TestShutdownDoesNotWaitForRefusedReleases(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		far := &yes{name: "far"}
		c := unlockWithout(t, far, 3, refusal("NOPERM this user has no permissions to run the 'evalsha' command"))
		began := time.Now()
		unconfirmed(t, c.Shutdown(t.Context()), "3 at node far")
		testkit.Took(t, began, 0, 2*time.Second, "Shutdown")
		time.Sleep(quorumlock.DefaultTTL)
		testkit.OK(t, c.Shutdown(t.Context()), "Shutdown once the keys have expired")
	})
}

// An unreached node has no pending releases, however many calls fail there. If a lost call may
// still run, the node confirms the release twice.
func TestWhatIsPendingAtANodeThatFailed(t *testing.T) {
	for _, tt := range []struct {
		err      error
		released int // the least; if it is 0, nothing is asked in the background
	}{{errUnsent, 0}, {errSilent, 2}} {
		testkit.Run(t, tt.err.Error(), func(t *testing.T) {
			far := &yes{name: "far"}
			far.become(tt.err)
			lease := holdBeside(t, far, &yes{name: "3"})
			time.Sleep(10 * time.Millisecond)
			if tt.released > 0 {
				far.become(nil)
			}
			testkit.MustUnlock(t, lease)
			time.Sleep(2 * time.Second)
			if _, _, _, released := far.counts(); released < tt.released {
				t.Errorf("it has run %d releases, want %d", released, tt.released)
			}
			time.Sleep(time.Minute)
			if asked, _, _, _ := far.counts(); asked > 0 && tt.released == 0 {
				t.Errorf("it was asked %d times in the background", asked)
			}
		})
	}
}

// A refusal may be temporary: the node's ACL may change. So a refused release stays pending until
// the TTL, unless the key is no longer a lock.
func TestARefusedReleaseStaysPendingUntilItsTTL(t *testing.T) {
	for _, tt := range []struct {
		err   error
		wait  time.Duration // until the node runs the release, if it is asked
		final bool
	}{
		{refusal("NOPERM this user has no permissions to run the 'evalsha' command"), 100 * time.Millisecond, false},
		{refusal("NOAUTH Authentication required."), quorumlock.DefaultTTL - 5*time.Second, false},
		{refusal("ERR unknown command"), 100 * time.Millisecond, false},
		{refusal("ERR unknown command"), 2 * quorumlock.DefaultTTL, true},
		{refusal("WRONGTYPE Operation against a key holding the wrong kind of value"), 100 * time.Millisecond, true},
	} {
		testkit.Run(t, fmt.Sprint(tt.err, " for ", tt.wait), func(t *testing.T) {
			far := &yes{name: "far"}
			unlockWithout(t, far, 3, tt.err)
			time.Sleep(tt.wait)
			far.become(nil)
			want := 3
			if tt.final {
				want = 0
			}
			time.Sleep(3 * time.Second)
			if _, _, _, released := far.counts(); released != want {
				t.Errorf("it has run %d releases, want %d", released, want)
			}
		})
	}
}

// A release that changes between no answer and a refusal has a TTL from then on. It is not lost
// while the node is away.
func TestAPendingReleaseOutlastsRefusalsAndSilence(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		far := &yes{name: "far"}
		unlockWithout(t, far, 3, errSilent)
		for range 2 {
			time.Sleep(2 * quorumlock.DefaultTTL)
			far.become(refusal("NOPERM this user has no permissions to run the 'evalsha' command"))
			time.Sleep(quorumlock.DefaultTTL / 2)
			far.become(errSilent)
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		far.become(nil)
		time.Sleep(3 * time.Second)
		if _, _, _, released := far.counts(); released != 3 {
			t.Errorf("it has run %d releases, want 3", released)
		}
	})
}
