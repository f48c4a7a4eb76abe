package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
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
		testkit.Equal(t, err.Error(), want, "the text")
	}
}

// only checks that err is all of these, and none of the other errors of the library.
func only(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		testkit.Is(t, err, w, "errors.Is")
	}
	for _, other := range append(sentinels, context.Canceled) {
		if errors.Is(err, other) && !slices.Contains(want, other) {
			t.Errorf("%v is %v", err, other)
		}
	}
}

var sentinels = []error{
	quorumlock.ErrHeld, quorumlock.ErrLost, quorumlock.ErrNotHeld, quorumlock.ErrQuarantined, quorumlock.ErrNotALock,
	quorumlock.ErrClosed, quorumlock.ErrNilContext, quorumlock.ErrNoQuorum, quorumlock.ErrTooLate,
	quorumlock.ErrUnconfirmed,
}

func TestErrorsUnwrapToNodesAndCauses(t *testing.T) {
	quorum := &quorumlock.QuorumError{Granted: 2, Needed: 3, Nodes: []*quorumlock.NodeError{timedOut, cutOff}}
	wrapped := errors.Join(quorumlock.ErrHeld, fmt.Errorf("lock the invoice: %w", quorum))

	only(t, wrapped, context.DeadlineExceeded, io.EOF, timedOut, cutOff, quorum, quorumlock.ErrHeld, quorumlock.ErrNoQuorum)
	if e, ok := errors.AsType[*quorumlock.QuorumError](wrapped); !ok || e != quorum {
		t.Errorf("as a *QuorumError it is %v", e)
	}
	if e, ok := errors.AsType[*quorumlock.NodeError](wrapped); !ok || e != timedOut {
		t.Errorf("as a *NodeError it is %v, want the first node's", e)
	}
	if errs := (&quorumlock.QuorumError{}).Unwrap(); len(errs) != 0 {
		t.Errorf("without nodes it unwraps to %v", errs)
	}

	held := &quorumlock.HeldError{Name: "x", Holder: labelled, TTL: time.Second, Position: 2}
	err := errors.Join(context.DeadlineExceeded, fmt.Errorf("charge the card: %w", held))
	only(t, err, quorumlock.ErrHeld, context.DeadlineExceeded)
	if e, ok := errors.AsType[*quorumlock.HeldError](err); !ok || *e != *held {
		t.Errorf("as a *HeldError it is %+v", e)
	}

	lost := &quorumlock.LostError{Name: "x", Nodes: []*quorumlock.NodeError{timedOut, cutOff}}
	err = fmt.Errorf("charge the card: %w", lost)
	only(t, err, quorumlock.ErrLost, timedOut, cutOff)
	if e, ok := errors.AsType[*quorumlock.LostError](err); !ok || e != lost {
		t.Errorf("as a *LostError it is %v", e)
	}
	only(t, &quorumlock.LostError{}, quorumlock.ErrLost)
}

func TestSentinelsAreDistinctAndPrefixed(t *testing.T) {
	for _, s := range sentinels {
		testkit.Equal(t, strings.HasPrefix(s.Error(), "quorumlock: "), true, "%q has the prefix", s)
		only(t, s, s)
	}
}
