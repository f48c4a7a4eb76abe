package core

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Lost answers, and calls that overtake each other when a connection breaks.

var errNoAnswer = errors.New("no answer")

// reply is an answer to a call of an attempt.
func reply(do Do, cell, attempt int32, r Reply) Event {
	e := answer(do, cell, r)
	e.Call.Attempt = attempt
	return e
}

var heldByOther = Reply{Holder: "other:1", TTL: time.Second}

// again returns a machine in its second attempt at three cells. Two of them refused the first one,
// and called; third is the answer of the third, if any.
func again(t *testing.T, third *Reply) *Machine {
	t.Helper()
	m := start(2, 3)
	if third != nil {
		m.Step(at(0), answer(Acquire, 2, *third))
	}
	for cell := range int32(2) {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
	}
	for cell := range int32(2) {
		m.Step(at(0), Event{Kind: Turn, Cell: cell})
	}
	if n, _ := m.Attempt(); n != 2 || m.Phase() != Asking {
		t.Fatalf("control: phase %d of attempt %d", m.Phase(), n)
	}
	return m
}

func want(t *testing.T, fx *Effects, cell int32, all ...Do) {
	t.Helper()
	if got := calls(fx, cell); !slices.Equal(got, all) {
		t.Errorf("cell %d is asked for %v, want %v", cell, got, all)
	}
}

// After its successor has the lock, an attempt's own owner gets a grant.
func TestALateGrantBesideASuccessorIsGivenBack(t *testing.T) {
	m := start(2, 3)
	for cell := range int32(2) {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
		m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	if m.Phase() != Holding {
		t.Fatalf("control: phase %d", m.Phase())
	}
	want(t, m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7})), 2, ReleaseAndLeave)
}

// The release ran before the attempt, at a node that UnlockAfter did not know to have granted.
func TestALateGrantBesideAKeepIsGivenBack(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	want(t, m.Step(at(0), Event{Kind: Unlock, Keep: time.Second}), 2, Release)
	want(t, m.Step(at(0), answer(Release, 2, Reply{})), 2)
	want(t, m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7})), 2, ReleaseAndLeave)
}

// A Downgrade before the grant did not change the grant.
func TestALateGrantAfterADowngradeIsShared(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Downgrade})
	fx := m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7}))
	if want(t, fx, 2, Renew); len(fx.Calls) > 0 && !fx.Calls[0].Shared {
		t.Error("the cell is not asked to share it")
	}
}

func TestARestoreThatFindsAGrantAfterADowngradeSharesIt(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1, 2)
	m.Step(at(0), Event{Kind: Downgrade})
	want(t, m.Step(at(0), answer(Restore, 2, Reply{Ours: true})), 2, Renew)
}

func TestARestoreThatOvertookTheReleaseIsReleased(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1, 2)
	m.Step(at(0), Event{Kind: Unlock})
	want(t, m.Step(at(0), answer(Restore, 2, Reply{OK: true, Token: 7})), 2, Release)
}

// A renewal shows that the cell has the lock, though the answer to the attempt was lost. Unlock
// keeps the key for a while, so the cell only has to leave the queue.
func TestALostAnswerDoesNotEndAKeep(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Extend})
	e := answer(Renew, 2, Reply{OK: true})
	e.Call.Round = m.LastRound()
	m.Step(at(0), e)
	m.Step(at(0), Event{Kind: Unlock, Keep: time.Second})
	want(t, m.Step(at(0), answer(Acquire, 2, Reply{Err: errNoAnswer})), 2, Leave)
}

// A release may run before the attempt that it ends.
func TestAReleaseThatIsAnsweredBeforeItsAttemptIsSentAgain(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Unlock})
	m.Step(at(0), answer(Release, 2, Reply{}))
	want(t, m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7})), 2, ReleaseAndLeave)
}

// An earlier attempt is refused, and queues the waiter, after a later one was answered.
func TestAnAttemptThatComesAfterTheNextLeavesTheQueue(t *testing.T) {
	for name, holds := range map[string]bool{"before the hold": false, "during the hold": true} {
		t.Run(name, func(t *testing.T) {
			m := again(t, nil)
			m.Step(at(0), reply(Acquire, 2, 2, Reply{OK: true, Token: 7}))
			var fx *Effects
			if holds {
				m.Step(at(0), reply(Acquire, 0, 2, Reply{OK: true, Token: 7}))
				fx = m.Step(at(0), reply(Acquire, 2, 1, heldByOther))
			} else {
				m.Step(at(0), reply(Acquire, 2, 1, heldByOther))
				fx = m.Step(at(0), reply(Acquire, 0, 2, Reply{OK: true, Token: 7}))
			}
			if m.Phase() != Holding {
				t.Fatalf("control: phase %d", m.Phase())
			}
			want(t, fx, 2, Leave)
		})
	}
}

// The answer to an earlier attempt is lost: the attempt may still run, and queue the waiter.
func TestAnAttemptWithoutAnAnswerIsLeftOnceMore(t *testing.T) {
	m := again(t, nil)
	want(t, m.Step(at(0), reply(Acquire, 2, 1, Reply{Err: errNoAnswer})), 2, Release)
	m.Step(at(0), reply(Acquire, 2, 2, Reply{OK: true, Token: 7}))
	want(t, m.Step(at(0), reply(Acquire, 0, 2, Reply{OK: true, Token: 7})), 2, Leave)
}

func TestASuccessorLeavesTheQueueOfACellWhoseAnswerWasLost(t *testing.T) {
	m := again(t, &Reply{Err: errNoAnswer})
	m.Step(at(0), answer(Yield, 2, Reply{}))
	m.Step(at(0), reply(Acquire, 2, 2, heldByOther))
	for cell := range int32(2) {
		m.Step(at(0), reply(Acquire, cell, 2, heldByOther))
	}
	m.Step(at(0), Event{Kind: Handoff, Cell: 0, Attempt: 2, Token: 9})
	fx := m.Step(at(0), Event{Kind: Handoff, Cell: 1, Attempt: 2, Token: 9})
	if m.Phase() != Holding {
		t.Fatalf("control: phase %d", m.Phase())
	}
	want(t, fx, 2, Leave)
}

// A Yield without an answer may run after the next attempt. A call that then gives up releases the
// possible grant of that attempt.
func TestAYieldWithoutAnAnswerIsGivenBack(t *testing.T) {
	for do, answered := range map[Do]bool{Leave: true, ReleaseAndLeave: false} {
		m := again(t, &Reply{Err: errNoAnswer})
		if answered {
			m.Step(at(0), answer(Yield, 2, Reply{}))
		}
		m.Step(at(0), reply(Acquire, 2, 2, heldByOther))
		want(t, m.Step(at(0), Event{Kind: Cancel}), 2, do)
	}
}

func TestAHoldLeavesTheQueueOfACellThatDidNotAnswerAYield(t *testing.T) {
	m := start(2, 3)
	granted(m, 2)
	for cell := range int32(2) {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
	}
	m.Step(at(0), answer(Yield, 2, Reply{Err: errNoAnswer}))
	for cell := range int32(2) {
		m.Step(at(0), Event{Kind: Turn, Cell: cell})
	}
	m.Step(at(0), reply(Acquire, 2, 2, Reply{OK: true, Token: 7}))
	want(t, m.Step(at(0), reply(Acquire, 0, 2, Reply{OK: true, Token: 7})), 2, Leave)
}

// A Yield that is answered in Waiting shows that the lock is free there.
func TestALateYieldTellsOfAFreeLock(t *testing.T) {
	m := start(2, 3)
	for cell := range int32(2) {
		m.Step(at(0), answer(Acquire, cell, Reply{Err: errNoAnswer}))
	}
	m.Step(at(0), answer(Acquire, 2, heldByOther))
	for cell := range int32(2) {
		m.Step(at(0), answer(Yield, cell, Reply{First: true}))
	}
	if got, want := m.Wake(), at(grace).Mono; m.Phase() != Waiting || got != want {
		t.Errorf("phase %d until %v, want it to wait until %v", m.Phase(), got, want)
	}
}

// Cells hand over to the successor of an abandoned attempt. The next attempt takes over the cells.
func TestHandoffsToAnEarlierAttemptBeginTheNext(t *testing.T) {
	m := again(t, nil)
	for cell := range int32(3) {
		m.Step(at(0), reply(Acquire, cell, 2, heldByOther))
	}
	for cell := range int32(2) {
		m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	if n, _ := m.Attempt(); n != 3 || m.Phase() != Asking {
		t.Errorf("phase %d of attempt %d, want it to ask again", m.Phase(), n)
	}
}

// Handoffs that come before the other answers, and too late for a renewal, begin the next attempt.
func TestAnAttemptIsOverAtALateHandoff(t *testing.T) {
	m := start(2, 3)
	late := at(900 * time.Millisecond)
	m.Step(late, answer(Acquire, 0, heldByOther))
	for cell := range int32(2) {
		m.Step(late, Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	if n, _ := m.Attempt(); n != 2 || m.Phase() != Asking {
		t.Errorf("phase %d of attempt %d, want it to ask again", m.Phase(), n)
	}
}

// A grant without any validity left is no hold.
func TestAGrantThatComesAfterItsTTLIsNoHold(t *testing.T) {
	m := start(2, 3)
	late := at(11 * time.Second)
	m.Step(late, answer(Acquire, 0, Reply{OK: true, Token: 7}))
	if fx := m.Step(late, answer(Acquire, 1, Reply{OK: true, Token: 7})); m.Phase() != Yielding || fx.Reason != TooLate {
		t.Errorf("phase %d, reason %d, want it to give the lock back as too late", m.Phase(), fx.Reason)
	}
	m = inheriting()
	raise := Call{Do: Raise, Cell: 1, Attempt: 1, Successor: true}
	m.Step(at(2*time.Second), Event{Kind: Replied, Call: raise, Reply: Reply{OK: true}})
	if n, _ := m.Attempt(); n != 2 || m.Phase() != Asking {
		t.Errorf("phase %d of attempt %d, want it to ask again", m.Phase(), n)
	}
}

// inheriting returns a machine with handoffs of two of three cells, with different tokens.
func inheriting() *Machine {
	m := start(2, 3)
	for cell := range int32(3) {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
	}
	for cell := range int32(2) {
		m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9 - uint64(cell)})
	}
	return m
}

// A cell missed the last attempt. It may have handed the lock to an earlier successor, and the
// message may be lost. The release covers that handoff, too, even after a renewal has shown that
// the cell has the hold.
func TestAReleaseTakesBackWhatEarlierSuccessorsGot(t *testing.T) {
	for name, test := range map[string]struct {
		missed Reply
		early  bool // the attempt is answered before the others hand over
		shown  bool
		keep   time.Duration
	}{
		"a lost answer":                          {missed: Reply{Err: errNoAnswer}, early: true},
		"a lost answer, and the others keep it":  {missed: Reply{Err: errNoAnswer}, early: true, keep: time.Second},
		"a lost answer, and then a renewal":      {missed: Reply{Err: errNoAnswer}, early: true, shown: true},
		"never sent, and then a renewal":         {missed: Reply{Err: errNoAnswer, Unsent: true}, early: true, shown: true},
		"in quarantine, and then a renewal":      {missed: Reply{Err: errNoAnswer, Quarantined: true}, early: true, shown: true},
		"never sent, as is told late, and shown": {missed: Reply{Err: errNoAnswer, Unsent: true}, shown: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := again(t, nil)
			if test.early {
				m.Step(at(0), reply(Acquire, 2, 2, test.missed))
			}
			for cell := range int32(2) {
				m.Step(at(0), reply(Acquire, cell, 2, heldByOther))
				m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 2, Token: 9})
			}
			if m.Phase() != Holding {
				t.Fatalf("control: phase %d", m.Phase())
			}
			if !test.early {
				m.Step(at(0), reply(Acquire, 2, 2, test.missed))
			}
			if test.shown {
				m.Step(at(0), Event{Kind: Extend})
				e := reply(Renew, 2, 2, Reply{OK: true})
				e.Call.Round, e.Call.Successor = m.LastRound(), true
				m.Step(at(0), e)
			}
			fx := m.Step(at(0), Event{Kind: Unlock, Keep: test.keep})
			want(t, fx, 2, ReleaseAndLeave)
			for _, k := range fx.Calls {
				if k.Cell == 2 && !k.All {
					t.Error("what earlier successors got is not taken back")
				}
			}
		})
	}
}

// A cell grants after the waiter has yielded. The answer to its Yield is not that of earlier ones.
func TestAWaiterWaitsForThoseThatHadGrantedWhenItGaveWay(t *testing.T) {
	m := start(3, 5)
	granted(m, 0)
	for cell := int32(1); cell < 4; cell++ {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
	}
	want(t, m.Step(at(0), answer(Acquire, 4, Reply{OK: true, Token: 7})), 4, Yield)
	m.Step(at(0), answer(Yield, 4, Reply{}))
	if m.Phase() != Yielding {
		t.Errorf("phase %d, want it to wait for the first cell", m.Phase())
	}
	if m.Step(at(0), answer(Yield, 0, Reply{})); m.Phase() != Waiting {
		t.Errorf("phase %d, want it to wait for the next attempt", m.Phase())
	}
}
