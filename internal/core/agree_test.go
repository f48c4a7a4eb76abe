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
	want(t, plays(m, answer(Acquire, 0, grant), answer(Acquire, 1, Reply{OK: true, Token: 9})), 0, Raise)
	control(t, m, Agreeing)
	return m
}

// A handoff counts after the token is chosen, but once, however often its message comes.
func TestARaiseThatFailsAtAMinorityEndsNoHandoff(t *testing.T) {
	for token, want := range map[uint64]int{8: 1, 9: 0} { // raises
		m := start(2, 3)
		refused(m, 3)
		plays(m, handed(0, 1, 7), handed(1, 1, 9))
		control(t, m, Agreeing)
		raised := asks(sends(m, at(0), handed(2, 1, token), handed(2, 1, token)), 2)
		plays(m, ofSuccessor(answer(Raise, 0, lost)), ofSuccessor(answer(Raise, 2, Reply{OK: true})))
		if len(raised) != want || m.Phase() != Holding || m.Token() != 9 {
			t.Errorf("token %d: %d raises, phase %d, token %d of the hold", token, len(raised), m.Phase(), m.Token())
		}
	}
}

// If a quorum for the token needs a silent cell, the wait for it is as long as after a refusal.
func TestAnAgreementDoesNotWaitLongForASilentCell(t *testing.T) {
	m := disagreeing(t)
	if m.Wake() != 0 {
		t.Errorf("it stops waiting at %v while a raise is unanswered", m.Wake())
	}
	plays(m, answer(Raise, 0, lost))
	wake := m.Wake()
	if first := at(3 * time.Millisecond).Mono; wake != first {
		t.Fatalf("it waits until %v, want three round trips, until %v", wake, first)
	}
	for late, phase := range []Phase{Agreeing, Yielding} {
		now := wake - 1 + time.Duration(late)
		m.Step(Time{now, now}, Event{Kind: Tick})
		control(t, m, phase)
	}
}

// A TryLock lasts for three node timeouts at most, so it begins no raise after two.
func TestATryLockBeginsNoRaiseAfterTwoNodeTimeouts(t *testing.T) {
	for late, do := range map[time.Duration]Do{0: Raise, time.Millisecond: ReleaseAndLeave} {
		m := try(2, 3, time.Millisecond)
		plays(m, Event{Kind: Start}, answer(Acquire, 0, grant), answer(Acquire, 1, Reply{OK: true, Token: 9}), answer(Acquire, 2, lost),
			answer(Raise, 0, Reply{}), answer(Yield, 0, Reply{OK: true}), answer(Yield, 1, Reply{OK: true}))
		m.Step(at(time.Millisecond), Event{Kind: Tick})
		wantAsking(t, m, 2)
		plays(m, reply(Acquire, 0, 2, Reply{OK: true, Token: 17}), reply(Acquire, 1, 2, Reply{OK: true, Token: 19}))
		last := m.lastTry() - time.Millisecond
		now := Time{last + late, last + late}
		m.Step(now, reply(Raise, 0, 2, lost))
		fx := m.Step(now, reply(Acquire, 2, 2, Reply{OK: true, Token: 18}))
		if want(t, fx, 2, do); late > 0 && (fx.Outcome != Failed || fx.Reason != NoToken) {
			t.Errorf("outcome %d, reason %d: no node of the quorum is down", fx.Outcome, fx.Reason)
		}
	}
}

// A cell takes no token after the key of a slow attempt has expired. That is no lack of a quorum.
func TestAnAgreementThatEndsAfterTheValidityIsTooLate(t *testing.T) {
	for late, want := range map[time.Duration]Reason{9 * time.Second: NoToken, 10 * time.Second: TooLate} {
		m := disagreeing(t)
		m.Step(at(time.Second), answer(Acquire, 2, lost))
		if fx := m.Step(at(late), answer(Raise, 0, Reply{})); !fx.Waiting || fx.Reason != want {
			t.Errorf("after %v: waiting %v, reason %d, want %d", late, fx.Waiting, fx.Reason, want)
		}
	}
}

// An answer to the raise of an earlier attempt is no vote on the token of this one.
func TestARaiseOfAnEarlierAttemptIsNoVote(t *testing.T) {
	m := disagreeing(t)
	plays(m, answer(Acquire, 2, lost), answer(Raise, 0, Reply{}), answer(Yield, 0, Reply{OK: true}), answer(Yield, 1, Reply{OK: true}))
	m.Step(at(time.Second), Event{Kind: Tick})
	wantAsking(t, m, 2)
	plays(m, reply(Acquire, 0, 2, Reply{OK: true, Token: 17}), reply(Acquire, 1, 2, Reply{OK: true, Token: 19}))
	control(t, m, Agreeing)
	plays(m, answer(Raise, 0, Reply{OK: true}))
	control(t, m, Agreeing)
	plays(m, reply(Raise, 0, 2, Reply{OK: true}))
	control(t, m, Holding)
}
