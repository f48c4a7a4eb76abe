package core

import (
	"testing"
	"time"
)

// disagreeing returns a machine with grants of two of three cells, with tokens 7 and 9. The first
// cell is asked for a raise.
func disagreeing(t *testing.T) *Machine {
	t.Helper()
	m := start(2, 3)
	m.Step(at(0), answer(Acquire, 0, Reply{OK: true, Token: 7}))
	fx := m.Step(at(0), answer(Acquire, 1, Reply{OK: true, Token: 9}))
	if got := calls(fx, 0); len(got) != 1 || got[0] != Raise || m.Phase() != Agreeing {
		t.Fatalf("control: phase %d, the first cell is asked for %v", m.Phase(), got)
	}
	return m
}

// The cells that granted first chose the token. A raise that fails at one of them does not end an
// attempt that a quorum granted.
func TestARaiseThatFailsAtAMinorityEndsNoAttempt(t *testing.T) {
	failed := answer(Raise, 0, Reply{Err: errNoAnswer})
	for _, tt := range []struct {
		name   string
		late   Reply
		raised bool // the late cell is raised
		got    bool
	}{
		{"a lower token", Reply{OK: true, Token: 8}, true, true},
		{"the same token", Reply{OK: true, Token: 9}, false, true},
		{"a higher token", Reply{OK: true, Token: 10}, false, true},
		{"a refusal", Reply{Holder: "other:1", TTL: time.Second}, false, false},
		{"a failure", Reply{Err: errNoAnswer}, false, false},
	} {
		for _, first := range []bool{true, false} { // the late answer comes before the failed raise
			m := disagreeing(t)
			events := []Event{answer(Acquire, 2, tt.late), failed}
			if !first {
				events[0], events[1] = events[1], events[0]
			}
			raised := false
			for _, e := range events {
				for _, do := range calls(m.Step(at(0), e), 2) {
					raised = raised || do == Raise
				}
			}
			if raised != tt.raised {
				t.Errorf("%s, first %v: raised %v", tt.name, first, raised)
			}
			if raised {
				m.Step(at(0), answer(Raise, 2, Reply{OK: true}))
			}
			if got := m.Phase() == Holding; got != tt.got || got && m.Token() != 9 {
				t.Errorf("%s, first %v: phase %d, token %d", tt.name, first, m.Phase(), m.Token())
			}
		}
	}
}

// The same for a MultiLock: each member needs a quorum of its own.
func TestARaiseThatFailsAtAMinorityEndsNoAttemptOfAMultiLock(t *testing.T) {
	two := Majority(2, 3)
	m := New(&Config{Tree: Every([]Tree{two, two}), TTL: 10 * time.Second, NodeTimeout: time.Second, Tries: true}, func(int) time.Duration { return time.Millisecond }, 1)
	m.Step(at(0), Event{Kind: Start})
	for cell := range int32(5) {
		if cell != 2 {
			m.Step(at(0), answer(Acquire, cell, Reply{OK: true, Token: uint64(7 + cell/3)}))
		}
	}
	fx := m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7}))
	if got := calls(fx, 2); len(got) != 1 || got[0] != Raise {
		t.Fatalf("the late cell is asked for %v, want a raise", got)
	}
	m.Step(at(0), answer(Raise, 0, Reply{Err: errNoAnswer}))
	m.Step(at(0), answer(Raise, 1, Reply{OK: true}))
	if fx := m.Step(at(0), answer(Raise, 2, Reply{OK: true})); fx.Outcome != Acquired {
		t.Errorf("phase %d, want the lock", m.Phase())
	}
}

// A handoff counts after the token is chosen, but once, however often its message comes.
func TestARaiseThatFailsAtAMinorityEndsNoHandoff(t *testing.T) {
	for token, want := range map[uint64]int{8: 1, 9: 0} { // raises
		m := start(2, 3)
		for cell := range int32(3) {
			m.Step(at(0), answer(Acquire, cell, Reply{Holder: "other:1", TTL: time.Second}))
		}
		raised := 0
		hand := func(cell int32, token uint64) {
			fx := m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: token})
			if cell == 2 {
				raised += len(calls(fx, cell))
			}
		}
		hand(0, 7)
		hand(1, 9)
		if m.Phase() != Agreeing {
			t.Fatalf("control: phase %d", m.Phase())
		}
		hand(2, token)
		hand(2, token)
		for _, e := range []Event{answer(Raise, 0, Reply{Err: errNoAnswer}), answer(Raise, 2, Reply{OK: true})} {
			e.Call.Successor = true
			m.Step(at(0), e)
		}
		if raised != want || m.Phase() != Holding || m.Token() != 9 {
			t.Errorf("token %d: %d raises, phase %d, token %d of the hold", token, raised, m.Phase(), m.Token())
		}
	}
}

// If a quorum for the token needs a silent cell, the wait for it is as long as after a refusal.
func TestAnAgreementDoesNotWaitLongForASilentCell(t *testing.T) {
	m := disagreeing(t)
	if m.Wake() != 0 {
		t.Errorf("it stops waiting at %v while a raise is unanswered", m.Wake())
	}
	m.Step(at(0), answer(Raise, 0, Reply{Err: errNoAnswer}))
	wake := m.Wake()
	if first := at(3 * time.Millisecond).Mono; wake != first {
		t.Fatalf("it waits until %v, want three round trips, until %v", wake, first)
	}
	early := Time{wake - 1, wake - 1}
	if m.Step(early, Event{Kind: Tick}); m.Phase() != Agreeing {
		t.Errorf("phase %d before that time", m.Phase())
	}
	if m.Step(Time{wake, wake}, Event{Kind: Tick}); m.Phase() != Yielding {
		t.Errorf("phase %d after that time, want it to give way", m.Phase())
	}
}

// A late grant of another slot has no vote on the token of the hold.
func TestALateGrantOfAnotherSlotIsNotRaised(t *testing.T) {
	for slot, want := range map[int32]int{0: 0, 1: 1} {
		m, asked := newSemaphore(t, 5, 3, false)
		for i, token := range []uint64{7, 8, 9} {
			m.Step(at(0), Event{Kind: Replied, Call: asked[i], Reply: Reply{OK: true, Token: token, Slot: 1}})
		}
		fx := m.Step(at(0), Event{Kind: Replied, Call: asked[3], Reply: Reply{OK: true, Token: 7, Slot: slot}})
		if got := len(calls(fx, 3)); m.Phase() != Agreeing || got != want {
			t.Errorf("slot %d: phase %d, %d raises, want %d", slot, m.Phase(), got, want)
		}
	}
}

// A TryLock lasts for three node timeouts at most, so it begins no raise after two.
func TestATryLockBeginsNoRaiseAfterTwoNodeTimeouts(t *testing.T) {
	for late, want := range map[time.Duration]Do{0: Raise, time.Millisecond: ReleaseAndLeave} {
		m := try(2, 3, time.Millisecond)
		m.Step(at(0), Event{Kind: Start})
		m.Step(at(0), answer(Acquire, 0, Reply{OK: true, Token: 7}))
		m.Step(at(0), answer(Acquire, 1, Reply{OK: true, Token: 9}))
		m.Step(at(0), answer(Acquire, 2, Reply{Err: errNoAnswer}))
		m.Step(at(0), answer(Raise, 0, Reply{OK: false}))
		for _, cell := range []int32{0, 1} {
			m.Step(at(0), answer(Yield, cell, Reply{OK: true}))
		}
		m.Step(at(time.Millisecond), Event{Kind: Tick})
		if n, _ := m.Attempt(); n != 2 || m.Phase() != Asking {
			t.Fatalf("control: phase %d of attempt %d", m.Phase(), n)
		}
		m.Step(at(0), reply(Acquire, 0, 2, Reply{OK: true, Token: 17}))
		m.Step(at(0), reply(Acquire, 1, 2, Reply{OK: true, Token: 19}))
		last := m.lastTry() - time.Millisecond
		now := Time{last + late, last + late}
		m.Step(now, reply(Raise, 0, 2, Reply{Err: errNoAnswer}))
		if got := calls(m.Step(now, reply(Acquire, 2, 2, Reply{OK: true, Token: 18})), 2); len(got) != 1 || got[0] != want {
			t.Errorf("%v later: the cell is asked for %v, want %v", late, got, want)
		}
	}
}

// A cell takes no token after the key of a slow attempt has expired. That is no lack of a quorum.
func TestAnAgreementThatEndsAfterTheValidityIsTooLate(t *testing.T) {
	for late, want := range map[time.Duration]Reason{9 * time.Second: HeldOrNone, 10 * time.Second: TooLate} {
		m := disagreeing(t)
		m.Step(at(time.Second), answer(Acquire, 2, Reply{Err: errNoAnswer}))
		if fx := m.Step(at(late), answer(Raise, 0, Reply{})); !fx.Waiting || fx.Reason != want {
			t.Errorf("after %v: waiting %v, reason %d, want %d", late, fx.Waiting, fx.Reason, want)
		}
	}
}

// Nodes that granted were up a moment ago. So a TryLock tries again, though most raises fail.
func TestATryLockTriesAgainAfterRaisesThatFail(t *testing.T) {
	m := try(3, 5, time.Millisecond)
	m.Step(at(0), Event{Kind: Start})
	for cell, token := range []uint64{7, 8, 9, 7} {
		m.Step(at(0), answer(Acquire, int32(cell), Reply{OK: true, Token: token}))
	}
	for _, cell := range []int32{0, 1, 3} {
		m.Step(at(0), answer(Raise, cell, Reply{Err: errNoAnswer}))
	}
	m.Step(at(0), answer(Acquire, 4, Reply{OK: true, Token: 7}))
	if m.Step(at(0), answer(Raise, 4, Reply{Err: errNoAnswer})); m.Phase() != Yielding {
		t.Errorf("phase %d, want it to give way", m.Phase())
	}
}
