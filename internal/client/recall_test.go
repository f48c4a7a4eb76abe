package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// parked is a node that is behind: foreground requests stay in its queue.
type parked struct {
	yes
	fails bool // background requests fail

	mu     sync.Mutex
	awake  bool
	behind int // number of background requests
	parked []parking
}

type parking struct {
	call    wire.Call
	answer  func([]wire.Reply)
	replies []wire.Reply
}

func (n *parked) Do(_ context.Context, lane client.Lane, _ time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	replies := make([]wire.Reply, len(calls))
	for i := range replies {
		replies[i].Value = int64(0) // the owner has nothing
		if n.fails {
			replies[i] = wire.Reply{Err: context.DeadlineExceeded}
		}
	}
	n.mu.Lock()
	// As a lane does.
	if len(n.parked) == 1 && n.parked[0].call.IsFirst() && calls[0].GivesBack() {
		both := []func([]wire.Reply){n.parked[0].answer, answer}
		n.parked = nil
		n.mu.Unlock()
		for _, answer := range both {
			answer([]wire.Reply{{Err: wire.ErrRecalled}})
		}
		return
	}
	defer n.mu.Unlock()
	if lane != client.Foreground {
		n.behind += len(calls)
	}
	if lane != client.Foreground || n.awake {
		time.AfterFunc(time.Millisecond, func() { answer(replies) })
		return
	}
	n.parked = append(n.parked, parking{calls[0].Detached(), answer, replies})
}

// scripts returns the waiting scripts.
func (n *parked) scripts() (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.parked {
		names = append(names, p.call.Script.Name)
	}
	return names
}

// sleep makes new requests stay in the queue.
func (n *parked) sleep(fails bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.awake, n.fails = false, fails
}

// answerAll makes the node answer all waiting and later requests.
func (n *parked) answerAll() {
	n.mu.Lock()
	all := n.parked
	n.parked, n.awake = nil, true
	n.mu.Unlock()
	for _, p := range all {
		p.answer(p.replies)
	}
}

// Unlock recalls an attempt that is not sent yet, and no release is sent. It does not recall the
// attempt if a later request could take the lock.
func TestUnlockRecallsAnUnsentAttempt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		extends bool
		keep    time.Duration
		waits   []string
	}{
		{"the attempt", false, 0, nil},
		{"the attempt, and the others keep the lock", false, time.Second, nil},
		{"the attempt, and a restore", true, 0, []string{"acquire", "acquire", "release"}},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			far := &parked{yes: yes{name: "far"}}
			lease := holdBeside(t, far, &yes{name: "node-3"})
			if tt.extends {
				testkit.Must(t, lease.Extend(t.Context()), "Extend")
				time.Sleep(10 * time.Millisecond)
			}
			testkit.OK(t, lease.UnlockAfter(t.Context(), tt.keep), "Unlock")
			if got := far.scripts(); !slices.Equal(got, tt.waits) {
				t.Errorf("the node is asked for %q, want %q", got, tt.waits)
			}
			far.answerAll()
		})
	}
}

// The next caller cannot count on a node that does not answer, so a recall there does not confirm
// the release. The third node freezes during the hold.
func TestARecallConfirmsARelease(t *testing.T) {
	for _, tt := range []struct {
		name             string
		answered, fails  bool
		wantsUnconfirmed bool
	}{
		{"from a node that answered the last call", true, false, false},
		{"not from a node that failed the last time", true, true, true},
		{"not from a node that has never answered", false, false, true},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, far, last := newClient(t), &parked{yes: yes{name: "far"}, awake: tt.answered}, &yes{name: "node-3"}
			lock := lockAt(t, c, "x", []client.Node{far, &yes{name: "node-2"}, last})
			lease := testkit.TryLock(t, lock)
			if tt.answered {
				time.Sleep(10 * time.Millisecond)
				testkit.MustUnlock(t, lease)
				far.sleep(tt.fails)
				lease = testkit.TryLock(t, lock)
				if tt.fails {
					// This call detects the freeze.
					testkit.Must(t, lease.Extend(t.Context()), "Extend")
					time.Sleep(10 * time.Millisecond)
				}
			}
			last.freeze(true)
			err := lease.Unlock(t.Context())
			if _, unconfirmed := errors.AsType[*quorumlock.QuorumError](err); unconfirmed != tt.wantsUnconfirmed {
				t.Errorf("Unlock: %v", err)
			}
			if tt.wantsUnconfirmed && !strings.Contains(err.Error(), "far: not sent: the attempt was given back before the node's turn came, and the node has not answered lately") {
				t.Errorf("Unlock: %v, want the reason of the node", err)
			}
			far.answerAll()
		})
	}
}

// A waiter that is handed the lock recalls an attempt that is not sent yet. After two attempts, it
// recalls neither: the other still needs a release.
func TestAHandoffRecallsAnUnsentAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		attempts int
		waits    []string
	}{
		"the first attempt": {1, nil},
		"two attempts":      {2, []string{"acquire", "acquire", "release"}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			w, far := newWorld(t), &parked{yes: yes{name: "far"}}
			wait := func(third client.Node) <-chan *quorumlock.Lease {
				return testkit.Waiter(t, lockAt(t, w.client, "x", []client.Node{w.nodes[0], w.nodes[1], third}))
			}
			first := testkit.Lock(t, lockAt(t, newClient(t), "x", []client.Node{w.nodes[0], w.nodes[1], &yes{name: "node-3"}}))
			var second <-chan *quorumlock.Lease
			// The client listens already, so its next waiter has missed no message.
			if tt.attempts == 1 {
				second = wait(&yes{name: "node-3"})
			}
			third := wait(far)
			testkit.Unlock(t, first)
			if second != nil {
				testkit.Unlock(t, <-second)
			}
			lease := <-third
			if got := far.scripts(); !slices.Equal(got, tt.waits) {
				t.Errorf("the node is asked for %q, want %q", got, tt.waits)
			}
			far.sleep(true)
			testkit.Unlock(t, lease)
			far.answerAll()
			time.Sleep(time.Minute)
			if tt.waits == nil && far.behind > 0 {
				t.Errorf("a release is pending at a node that has nothing: it is asked for %d", far.behind)
			}
		})
	}
}

// holdBeside returns a hold on a node, one that answers, and a third.
func holdBeside(t *testing.T, n, third client.Node) *quorumlock.Lease {
	t.Helper()
	return testkit.TryLock(t, lockAt(t, newClient(t), "x", []client.Node{n, &yes{name: "node-2"}, third}))
}

// A TryLock of which nothing was sent does not say that the nodes are to blame.
func TestATryLockThatWasNotSentSaysSo(t *testing.T) {
	for name, awake := range map[string]int{"to no node": 0, "to one node": 1} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := []*parked{{yes: yes{name: "n1"}}, {yes: yes{name: "n2"}}, {yes: yes{name: "n3"}}}
			for _, n := range nodes[:awake] {
				n.awake = true
			}
			_, err := lockAt(t, newClient(t), "x", nodes).TryLock(t.Context())
			if unsent := errors.Is(err, quorumlock.ErrUnsent); unsent != (awake == 0) || unsent == errors.Is(err, quorumlock.ErrNoQuorum) {
				t.Errorf("error %v", err)
			}
		})
	}
}
