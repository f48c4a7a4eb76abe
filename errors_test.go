package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
)

var (
	timedOut = &quorumlock.NodeError{Node: "10.0.0.1:6379", Err: context.DeadlineExceeded}
	cutOff   = &quorumlock.NodeError{Node: "10.0.0.2:6379", Err: fmt.Errorf("read: %w", io.EOF)}
)

func TestErrorsNameTheNodeAndTheCause(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"node", timedOut, "quorumlock: node 10.0.0.1:6379: context deadline exceeded"},
		{"a wrapped cause", cutOff, "quorumlock: node 10.0.0.2:6379: read: EOF"},
		{"a cause of two lines", &quorumlock.NodeError{Node: "n", Err: errors.Join(io.EOF, io.ErrClosedPipe)}, "quorumlock: node n: EOF; io: read/write on closed pipe"},
		{"only refusals", &quorumlock.QuorumError{Granted: 1, Needed: 3}, "quorumlock: no quorum: 1 of the 3 needed"},
		{"one node", &quorumlock.QuorumError{Granted: 0, Needed: 1, Nodes: []*quorumlock.NodeError{cutOff}},
			"quorumlock: no quorum: 0 of the 1 needed: node 10.0.0.2:6379: read: EOF"},
		{"two nodes", &quorumlock.QuorumError{Granted: 2, Needed: 3, Nodes: []*quorumlock.NodeError{timedOut, cutOff}},
			"quorumlock: no quorum: 2 of the 3 needed: node 10.0.0.1:6379: context deadline exceeded; node 10.0.0.2:6379: read: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
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
