package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

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
