package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// An Attach that nobody wants any more frees no node whose late answer names another cell.
func TestALateAnswerFreesNothingOfAHoldThatWentBack(t *testing.T) {
	c := &Config{Tree: Majority(2, 3), TTL: 10 * time.Second, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true,
		Source: &Source{Token: 7, Counts: []uint64{7, 7, 7}}}
	m := New(c, func(int) time.Duration { return time.Millisecond }, 1)
	m.Step(at(0), Event{Kind: Start})
	for cell := range int32(2) {
		m.Step(at(0), answer(Attach, cell, Reply{OK: true, Token: 7}))
	}
	if m.Phase() != Holding {
		t.Fatalf("phase %s", phases[m.Phase()])
	}
	m.Step(at(0), Event{Kind: GiveBack})
	fx := m.Step(at(0), answer(Attach, 2, Reply{Moved: true, Of: 1, Holder: "p:1.1"}))
	if len(fx.Calls) > 0 {
		t.Errorf("%+v", fx.Calls)
	}
}
