package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// leaving is a node that can go away and come back. It grants and confirms every request.
type leaving struct {
	yes

	mu       sync.Mutex
	gone     error // the error of its calls; nil while it is up
	asked    int   // background calls
	most     int   // most of these calls in one request
	released int   // releases run
}

func (n *leaving) Do(ctx context.Context, lane quorum.Lane, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	n.mu.Lock()
	gone := n.gone
	if lane == quorum.Background {
		n.asked += len(calls)
		n.most = max(n.most, len(calls))
	}
	for _, c := range calls {
		if gone == nil && c.Script == wire.Release("", "", 0).Script {
			n.released++
		}
	}
	n.mu.Unlock()
	if gone == nil {
		n.yes.Do(ctx, lane, deadline, calls, answer)
		return
	}
	replies := make([]wire.Reply, len(calls))
	for i := range replies {
		replies[i].Err = gone
	}
	time.AfterFunc(time.Millisecond, func() { answer(replies) })
}

func (n *leaving) become(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone, n.asked, n.most, n.released = err, 0, 0, 0
}

func (n *leaving) counts() (asked, most, released int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked, n.most, n.released
}

type neverSent struct{ error }

func (neverSent) NotSent() {}

var (
	errSilent = errors.New("no answer")
	errUnsent = neverSent{errors.New("connection refused")}
)

// unlockWithout acquires locks at three nodes, and unlocks them after the third node has gone away.
func unlockWithout(t *testing.T, far *leaving, locks int) *quorum.Client {
	t.Helper()
	c := quorum.NewClient("test")
	leases := make([]*quorumlock.Lease, locks)
	for i := range leases {
		l := lockAt(t, c, fmt.Sprint("x", i), []quorum.Node{&yes{name: "1"}, &yes{name: "2"}, far})
		var err error
		if leases[i], err = l.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second) // until all nodes have answered
	far.become(errSilent)
	for _, lease := range leases {
		locktest.MustUnlock(t, lease)
	}
	return c
}

// Releases stay pending while their node is away, even for days. One call probes it twice a second.
// After its return, all of them run within two seconds.
func TestPendingReleasesOutlastAnyTTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		const locks = 1200
		far := &leaving{yes: yes{name: "far"}}
		c := unlockWithout(t, far, locks)
		defer c.Close()
		time.Sleep(time.Minute)
		for range 3 {
			far.become(errSilent)
			time.Sleep(10 * time.Minute)
			if asked, most, _ := far.counts(); asked > 2*600 || asked < 600 || most > 1 {
				t.Errorf("in ten minutes it was asked for %d releases, up to %d at one time", asked, most)
			}
		}
		far.become(nil)
		time.Sleep(2 * time.Second)
		if _, _, released := far.counts(); released != locks {
			t.Errorf("it has run %d releases, want %d", released, locks)
		}
	})
}

// Shutdown waits for a pending release until its TTL at most. Close does not wait.
func TestShutdownWaitsForPendingReleasesUntilTheirTTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		far := &leaving{yes: yes{name: "far"}}
		c := unlockWithout(t, far, 3)
		began := time.Now()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < quorumlock.DefaultTTL-time.Second || took > quorumlock.DefaultTTL+2*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		began = time.Now()
		c.Close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// An unreached node has no pending releases, however many calls fail there.
func TestNothingIsPendingAtANodeThatWasNeverReached(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		far := &leaving{yes: yes{name: "far"}}
		far.become(errUnsent)
		c, lease := holdBeside(t, far, &yes{name: "3"})
		defer c.Close()
		locktest.MustUnlock(t, lease)
		time.Sleep(time.Minute)
		if asked, _, _ := far.counts(); asked > 0 {
			t.Errorf("it was asked %d times in the background", asked)
		}
	})
}

// If a lost call may still run, the node confirms the release twice.
func TestAReleaseBehindALostCallIsConfirmedTwice(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		far := &leaving{yes: yes{name: "far"}}
		far.become(errSilent)
		c, lease := holdBeside(t, far, &yes{name: "3"})
		defer c.Close()
		time.Sleep(10 * time.Millisecond)
		far.become(nil)
		locktest.MustUnlock(t, lease)
		time.Sleep(2 * time.Second)
		if _, _, released := far.counts(); released < 2 {
			t.Errorf("it has run %d releases, want 2", released)
		}
	})
}
