package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

func TestHeldErrorSaysWhatIsKnownAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  quorumlock.HeldError
		want string
	}{
		{"nothing", quorumlock.HeldError{}, "quorumlock: the lock is held or awaited by somebody else"},
		{"the name", quorumlock.HeldError{Name: "x"}, `quorumlock: the lock "x" is held or awaited by somebody else`},
		{"the holder's label", quorumlock.HeldError{Name: "x", Holder: labelled}, `quorumlock: the lock "x" is held by web-1`},
		{"a holder without label", quorumlock.HeldError{Name: "x", Holder: "uuid:7"}, `quorumlock: the lock "x" is held by uuid:7`},
		{"for how long", quorumlock.HeldError{Name: "x", Holder: labelled, TTL: 7200*time.Millisecond + 1},
			`quorumlock: the lock "x" is held by web-1 for another 7.2s`},
		{"for how long, not by whom", quorumlock.HeldError{Name: "x", TTL: time.Second},
			`quorumlock: the lock "x" is held or awaited by somebody else for another 1s`},
		{"less than a millisecond", quorumlock.HeldError{Name: "x", Holder: labelled, TTL: 1},
			`quorumlock: the lock "x" is held by web-1 for another 1ms`},
		{"the position", quorumlock.HeldError{Name: "x", Position: 3},
			`quorumlock: the lock "x" is held or awaited by somebody else; this call is number 3 in the queue`},
		{"all", quorumlock.HeldError{Name: "x", Holder: labelled, TTL: time.Minute, Position: 1},
			`quorumlock: the lock "x" is held by web-1 for another 1m0s; this call is number 1 in the queue`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestHeldErrorIsErrHeldAndKeepsItsFields(t *testing.T) {
	held := &quorumlock.HeldError{Name: "x", Holder: labelled, TTL: time.Second, Position: 2}
	err := errors.Join(context.DeadlineExceeded, fmt.Errorf("charge the card: %w", held))
	if !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrLost) {
		t.Errorf("%v must be ErrHeld and not ErrLost", err)
	}
	if e, ok := errors.AsType[*quorumlock.HeldError](err); !ok || *e != *held {
		t.Errorf("as a *HeldError it is %+v", e)
	}
}

func TestLostErrorSaysWhyAndAtWhichNodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  quorumlock.LostError
		want string
	}{
		{"nothing", quorumlock.LostError{}, "quorumlock: the lease of the lock was lost"},
		{"the name", quorumlock.LostError{Name: "x", Owner: labelled}, `quorumlock: the lease of the lock "x" was lost`},
		{"the reason", quorumlock.LostError{Name: "x", Reason: "it was not renewed in time"},
			`quorumlock: the lease of the lock "x" was lost: it was not renewed in time`},
		{"the nodes", quorumlock.LostError{Name: "x", Reason: "it was not renewed in time", Nodes: []*quorumlock.NodeError{timedOut, cutOff}},
			`quorumlock: the lease of the lock "x" was lost: it was not renewed in time: node 10.0.0.1:6379: context deadline exceeded; node 10.0.0.2:6379: read: EOF`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLostErrorIsErrLostAndTheErrorsOfItsNodes(t *testing.T) {
	lost := &quorumlock.LostError{Name: "x", Nodes: []*quorumlock.NodeError{timedOut, cutOff}}
	err := fmt.Errorf("charge the card: %w", lost)
	for _, cause := range []error{quorumlock.ErrLost, timedOut, cutOff} {
		if !errors.Is(err, cause) {
			t.Errorf("it is not %v", cause)
		}
	}
	if errors.Is(err, quorumlock.ErrHeld) {
		t.Error("it is ErrHeld")
	}
	if e, ok := errors.AsType[*quorumlock.LostError](err); !ok || e != lost {
		t.Errorf("as a *LostError it is %v", e)
	}
	if bare := (&quorumlock.LostError{}); !errors.Is(bare, quorumlock.ErrLost) {
		t.Error("without fields it is not ErrLost")
	}
}
