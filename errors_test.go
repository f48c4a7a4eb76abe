package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

var (
	timedOut = &quorumlock.NodeError{Node: "10.0.0.1:6379", Err: context.DeadlineExceeded}
	cutOff   = &quorumlock.NodeError{Node: "10.0.0.2:6379", Err: fmt.Errorf("read: %w", io.EOF)}
)

func TestErrorsSayWhatIsKnownAndNothingElse(t *testing.T) {
	held := func(e quorumlock.HeldError) error { return &e }
	lost := func(e quorumlock.LostError) error { return &e }
	for want, err := range map[string]error{
		"quorumlock: node 10.0.0.1:6379: context deadline exceeded":                                                              timedOut,
		"quorumlock: node n: EOF; io: read/write on closed pipe":                                                                 &quorumlock.NodeError{Node: "n", Err: errors.Join(io.EOF, io.ErrClosedPipe)},
		"quorumlock: no quorum: 1 of the 3 needed":                                                                               &quorumlock.QuorumError{Granted: 1, Needed: 3},
		"quorumlock: no quorum: 2 of the 3 needed: node 10.0.0.1:6379: context deadline exceeded; node 10.0.0.2:6379: read: EOF": &quorumlock.QuorumError{Granted: 2, Needed: 3, Nodes: []*quorumlock.NodeError{timedOut, cutOff}},

		"quorumlock: the lock is held or awaited by somebody else":                                       held(quorumlock.HeldError{}),
		`quorumlock: the lock "x" is held by web-1`:                                                      held(quorumlock.HeldError{Name: "x", Holder: labelled}),
		`quorumlock: the lock "x" is held by uuid:7`:                                                     held(quorumlock.HeldError{Name: "x", Holder: "uuid:7"}),
		`quorumlock: the lock "x" is held by web-1 for another 7.2s`:                                     held(quorumlock.HeldError{Name: "x", Holder: labelled, TTL: 7200*time.Millisecond + 1}),
		`quorumlock: the lock "x" is held by web-1 for another 1ms`:                                      held(quorumlock.HeldError{Name: "x", Holder: labelled, TTL: 1}),
		`quorumlock: the lock "x" is held or awaited by somebody else for another 1s`:                    held(quorumlock.HeldError{Name: "x", TTL: time.Second}),
		`quorumlock: the lock "x" is held by web-1 for another 1m0s; this call is number 1 in the queue`: held(quorumlock.HeldError{Name: "x", Holder: labelled, TTL: time.Minute, Position: 1}),

		"quorumlock: the lease of the lock was lost": lost(quorumlock.LostError{}),
		`quorumlock: the lease of the lock "x" was lost: it was not renewed in time: node 10.0.0.1:6379: context deadline exceeded; node 10.0.0.2:6379: read: EOF`: lost(quorumlock.LostError{
			Name: "x", Reason: "it was not renewed in time", Nodes: []*quorumlock.NodeError{timedOut, cutOff}}),
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestErrorsUnwrapToNodesAndCauses(t *testing.T) {
	quorum := &quorumlock.QuorumError{Granted: 2, Needed: 3, Nodes: []*quorumlock.NodeError{timedOut, cutOff}}
	wrapped := errors.Join(quorumlock.ErrHeld, fmt.Errorf("lock the invoice: %w", quorum))

	for _, cause := range []error{context.DeadlineExceeded, io.EOF, timedOut, cutOff, quorum, quorumlock.ErrHeld, quorumlock.ErrNoQuorum} {
		if !errors.Is(wrapped, cause) {
			t.Errorf("it is not %v", cause)
		}
	}
	for _, other := range []error{quorumlock.ErrLost, quorumlock.ErrNotHeld, quorumlock.ErrClosed, context.Canceled} {
		if errors.Is(wrapped, other) {
			t.Errorf("it is %v", other)
		}
	}
	if e, ok := errors.AsType[*quorumlock.QuorumError](wrapped); !ok || e != quorum {
		t.Errorf("as a *QuorumError it is %v", e)
	}
	if e, ok := errors.AsType[*quorumlock.NodeError](wrapped); !ok || e != timedOut {
		t.Errorf("as a *NodeError it is %v, want the first node's", e)
	}
	if errs := (&quorumlock.QuorumError{}).Unwrap(); len(errs) != 0 {
		t.Errorf("without nodes it unwraps to %v", errs)
	}
}

func TestSentinelsAreDistinctAndPrefixed(t *testing.T) {
	sentinels := []error{
		quorumlock.ErrHeld, quorumlock.ErrLost, quorumlock.ErrNotHeld, quorumlock.ErrQuarantined, quorumlock.ErrNotALock,
		quorumlock.ErrClosed, quorumlock.ErrNilContext, quorumlock.ErrNoQuorum, quorumlock.ErrTooLate,
	}
	for i, a := range sentinels {
		if !strings.HasPrefix(a.Error(), "quorumlock: ") {
			t.Errorf("%q has no prefix", a)
		}
		for j, b := range sentinels {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("is %q %q?", a, b)
			}
		}
	}
}
