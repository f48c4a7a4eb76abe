package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// start returns a machine that has asked all cells, at the time 1 s.
func start(need, cells int) *Machine {
	c := &Config{Tree: Majority(need, cells), TTL: 10 * time.Second, HandTTL: 1800 * time.Millisecond, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true}
	m := New(c, func(int) time.Duration { return time.Millisecond }, 1)
	m.Step(at(0), Event{Kind: Start})
	return m
}

func at(d time.Duration) Time { return Time{time.Second + d, time.Second + d} }

func answer(do Do, cell int32, r Reply) Event {
	return Event{Kind: Replied, Call: Call{Do: do, Cell: cell, Attempt: 1}, Reply: r}
}

// calls returns the operations that a step asks of a cell.
func calls(fx *Effects, cell int32) (all []Do) {
	for _, c := range fx.Calls {
		if c.Cell == cell {
			all = append(all, c.Do)
		}
	}
	return all
}

func granted(m *Machine, cells ...int32) {
	for _, cell := range cells {
		m.Step(at(0), answer(Acquire, cell, Reply{OK: true, Token: 7}))
	}
}

// Extend returns, whichever answer shows the loss of the hold. After that, no more calls are sent.
func TestLastAnswerThatEndsTheHoldEndsItsRound(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1, 2)
	m.Step(at(time.Second), Event{Kind: Extend})
	for cell := range int32(3) {
		e := answer(Renew, cell, Reply{OK: cell == 0})
		e.Call.Round = m.LastRound()
		fx := m.Step(at(time.Second), e)
		if cell == 2 && (fx.Lost != Gone || len(fx.Rounds) != 1 || fx.Rounds[0].Won || len(fx.Calls) > 0) {
			t.Errorf("%+v", fx)
		}
	}
}

// A cell that turns out to share the server of another one has queued the waiter.
func TestLateDuplicateLeavesTheQueue(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Unlock})
	fx := m.Step(at(0), answer(Acquire, 2, Reply{Ours: true}))
	if got := calls(fx, 2); len(got) != 1 || got[0] != Leave {
		t.Errorf("it is asked for %v, want it to leave", got)
	}
}

// A handoff that comes too late does not stop the waiter from asking again.
func TestWaiterGoesOnAfterALateHandoff(t *testing.T) {
	m := start(2, 2)
	granted(m, 0)
	late := at(900 * time.Millisecond) // too late to renew the handoff
	m.Step(late, answer(Acquire, 1, Reply{Holder: "other:1", TTL: time.Second}))
	for cell := range int32(2) {
		m.Step(late, Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	if m.Phase() != Yielding {
		t.Fatalf("phase %d, want it to wait for the yield", m.Phase())
	}
	m.Step(late, answer(Yield, 0, Reply{}))
	if n, _ := m.Attempt(); n != 2 || m.Phase() != Asking {
		t.Errorf("phase %d of attempt %d, want it to ask again", m.Phase(), n)
	}
}

// A renewal that was under way does not extend a kept lock to the whole TTL.
func TestRenewalDoesNotLengthenAKeep(t *testing.T) {
	for left, want := range map[time.Duration]Do{time.Second: Keep, -time.Second: Release} {
		for _, decided := range []bool{true, false} { // when the renewal is answered
			m := start(2, 3)
			granted(m, 0, 1, 2)
			m.Step(at(0), Event{Kind: Extend})
			m.Step(at(0), Event{Kind: Unlock, Keep: 3 * time.Second})
			late := at(3*time.Second - left)
			e := answer(Renew, 1, Reply{OK: true})
			e.Call.Round = m.LastRound()
			var all []Call
			step := func(e Event) { all = append(all, m.Step(late, e).Calls...) }
			if !decided {
				step(e)
			}
			step(answer(Keep, 0, Reply{OK: true}))
			step(answer(Keep, 2, Reply{OK: true}))
			if decided {
				step(e)
			}
			if len(all) != 1 || all[0].Do != want || all[0].Cell != 1 || all[0].For != max(left, 0) {
				t.Errorf("%v left, decided: %v: %+v", left, decided, all)
			}
		}
	}
}

// An unanswered Keep may still be unsent, and reach a node that comes back. A caller that was told
// that the lock is not kept relies on the TTL there.
func TestThatALockIsNotKeptIsDecidedWithTheLastAnswer(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Unlock, Keep: time.Minute})
	for cell, e := range []Event{answer(Release, 2, Reply{}), answer(Keep, 1, Reply{Err: errNoAnswer}), answer(Keep, 0, Reply{Err: errNoAnswer})} {
		if fx := m.Step(at(0), e); fx.Released != (cell == 2) || len(fx.Calls) > 0 {
			t.Errorf("answer %d: %+v", cell, fx)
		}
	}
	if confirmed, _ := m.Released(); confirmed {
		t.Error("it counts as kept")
	}
}

// After a failed Unlock, a key that a renewal extended ends with its TTL at cells that have not
// confirmed the Keep.
func TestRenewalDoesNotRepeatAKeepThatHasFailed(t *testing.T) {
	for _, decided := range []bool{true, false} { // when the renewals are answered
		m := start(2, 3)
		granted(m, 0, 1, 2)
		m.Step(at(0), Event{Kind: Extend})
		round := m.LastRound()
		m.Step(at(0), Event{Kind: Unlock, Keep: time.Minute})
		var all []Call
		step := func(e Event) { all = append(all, m.Step(at(time.Second), e).Calls...) }
		renewed := func() {
			for cell := range int32(3) {
				e := answer(Renew, cell, Reply{Err: errNoAnswer})
				e.Call.Round = round
				step(e)
			}
		}
		if !decided {
			renewed()
		}
		for cell := range int32(3) {
			r := Reply{OK: true}
			if cell > 0 {
				r = Reply{Err: errNoAnswer}
			}
			step(answer(Keep, cell, r))
		}
		if decided {
			renewed()
		}
		if len(all) != 1 || all[0].Do != Keep || all[0].Cell != 0 || all[0].For != 59*time.Second {
			t.Errorf("decided: %v: %+v, want one Keep, for the cell that has confirmed", decided, all)
		}
	}
}

// inherited returns a hold with handoffs of two of three cells. The third still queues the waiter.
func inherited() *Machine {
	m := start(2, 3)
	for cell := range int32(3) {
		m.Step(at(0), answer(Acquire, cell, Reply{Holder: "other:1", TTL: time.Second}))
	}
	for cell := range int32(2) {
		m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	return m
}

// A call that is over is in no queue, though the nodes keep its lock for a while.
func TestKeepLeavesTheQueues(t *testing.T) {
	m := inherited()
	fx := m.Step(at(0), Event{Kind: Unlock, Keep: time.Second})
	for cell, want := range []Do{Keep, Keep, ReleaseAndLeave} {
		if got := calls(fx, int32(cell)); len(got) != 1 || got[0] != want {
			t.Errorf("cell %d is asked for %v, want %v", cell, got, want)
		}
	}
}

// If a cell hands over when the successor already has the lock, the waiter has left the queue
// there. Then a Release is enough, but only where the waiter was known to be queued.
func TestALateHandoffIsReleasedWithoutLeavingTheQueue(t *testing.T) {
	late := Event{Kind: Handoff, Cell: 2, Attempt: 1, Token: 9}
	for unlock, want := range map[Event]Do{{Kind: Unlock}: Release, {Kind: Unlock, Keep: time.Second}: Keep} {
		m := inherited()
		if fx := m.Step(at(0), late); len(fx.Calls) != 0 {
			t.Errorf("a late handoff: %+v, want no call", fx.Calls)
		}
		if got := calls(m.Step(at(0), unlock), 2); len(got) != 1 || got[0] != want {
			t.Errorf("the cell is asked for %v, want %v", got, want)
		}
	}

	m := start(2, 3)
	for cell := range int32(2) {
		m.Step(at(0), answer(Acquire, cell, Reply{Holder: "other:1", TTL: time.Second}))
		m.Step(at(0), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 9})
	}
	m.Step(at(0), late)
	if got := calls(m.Step(at(0), Event{Kind: Unlock}), 2); len(got) != 1 || got[0] != ReleaseAndLeave {
		t.Errorf("a cell that has not answered is asked for %v, want %v", got, ReleaseAndLeave)
	}
}

// A replica that takes over may lack a handoff: there the waiter is queued, and does not hold.
func TestAnUnlockAtACellThatForgotItsHandoffLeavesTheQueue(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Second} {
		m := inherited()
		leaves := []Call{{Do: ReleaseAndLeave, Attempt: 1, Successor: true, All: true}}
		if keep > 0 { // a renewal may yet find the key there
			leaves = []Call{{Do: Leave, Attempt: 1}}
		}
		for _, c := range slices.Clone(m.Step(at(1), Event{Kind: Unlock, Keep: keep}).Calls) {
			want := leaves
			if c.Cell > 0 {
				want = nil
			}
			again := slices.Clone(m.Step(at(2), Event{Kind: Replied, Call: c, Reply: Reply{OK: c.Cell > 0}}).Calls)
			if !slices.Equal(again, want) {
				t.Errorf("kept for %v, cell %d is asked for %+v after its answer, want %+v", keep, c.Cell, again, want)
			}
			for _, c := range again {
				if fx := m.Step(at(3), Event{Kind: Replied, Call: c}); len(fx.Calls) != 0 {
					t.Errorf("the cell is asked for %+v after the second", fx.Calls)
				}
			}
		}
	}
}

// The same, if the release itself fails during the failover.
func TestAReleaseThatIsSentAgainLeavesTheQueue(t *testing.T) {
	m := inherited()
	for _, c := range slices.Clone(m.Step(at(1), Event{Kind: Unlock}).Calls) {
		m.Step(at(2), Event{Kind: Replied, Call: c, Reply: Reply{Err: errNoAnswer}})
		if again, times := m.Retry(c, true); times == 0 || again.Do != ReleaseAndLeave || !again.All || again.Cell != c.Cell || !again.Successor {
			t.Errorf("%+v is sent again as %+v", c, again)
		}
	}

	m = again(t, nil)
	release := Call{Do: Release, Cell: 1, Attempt: 1}
	if again, times := m.Retry(release, true); times == 0 || again != release {
		t.Errorf("before the lock is acquired, %+v is sent again as %+v: the waiter would lose its place", release, again)
	}
}

// The same, if a renewal finds the key gone and restores it: a plain Release would then succeed,
// and leave the waiter queued.
func TestAHoldThatWasForgottenLeavesTheQueue(t *testing.T) {
	m := inherited()
	m.Step(at(1), Event{Kind: Extend})
	for cell := range int32(2) {
		m.Step(at(1), Event{Kind: Replied, Call: Call{Do: Renew, Cell: cell, Attempt: 1, Successor: true, Round: 1}, Reply: Reply{OK: cell > 0}})
	}
	if m.Phase() != Holding {
		t.Fatalf("control: phase %d", m.Phase())
	}
	m.Step(at(1), answer(Restore, 0, Reply{OK: true}))
	fx := m.Step(at(2), Event{Kind: Unlock})
	want(t, fx, 0, ReleaseAndLeave)
	want(t, fx, 1, Release)
}

// A renewal without a quorum is repeated long before the next one would be due.
func TestALateRenewalIsTriedAgainSoon(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(1), answer(Acquire, 2, Reply{Holder: "other:1", TTL: time.Second}))
	due := m.Wake()
	m.Step(Time{due, due}, Event{Kind: Tick})
	for cell := range int32(3) {
		m.Step(Time{due, due}, Event{Kind: Replied, Call: Call{Do: Renew, Cell: cell, Attempt: 1, Round: 1}, Reply: Reply{Err: errNoAnswer}})
	}
	if wait := m.Wake() - due; m.Phase() != Holding || wait <= 0 || wait > m.cfg.TTL/50 {
		t.Errorf("phase %d, looks again after %v, want %v at most", m.Phase(), wait, m.cfg.TTL/50)
	}
}

// A release of the attempt's own owner does not concern its successor.
func TestOnlyTheReleaseOfTheHoldIsSentAgain(t *testing.T) {
	m := inherited()
	want(t, m.Step(at(1), answer(ReleaseAndLeave, 0, Reply{})), 0)
	m.Step(at(2), Event{Kind: Unlock})
	want(t, m.Step(at(3), Event{Kind: Replied, Call: Call{Do: Release, Attempt: 1, Successor: true}}), 0, ReleaseAndLeave)
}

// A cell may hand over to the successor of an earlier attempt, if the last one did not reach it.
func TestSuccessorReleasesEarlierHandoffs(t *testing.T) {
	m := start(2, 3)
	m.attempt = 2
	late := Event{Kind: Handoff, Cell: 2, Attempt: 1, Token: 8}
	for cell := range int32(3) {
		e := answer(Acquire, cell, Reply{Holder: "other:1", TTL: time.Second})
		if e.Call.Attempt = 2; cell == 2 {
			e.Reply = Reply{Err: quorumlock.ErrClosed, Unsent: true}
		}
		m.Step(at(0), e)
	}
	check := func(fx *Effects) {
		t.Helper()
		if len(fx.Calls) != 1 || fx.Calls[0] != (Call{Do: Release, Cell: 2, Attempt: 1, Successor: true}) {
			t.Errorf("%+v", fx.Calls)
		}
	}
	m.Step(at(0), late)
	m.Step(at(0), Event{Kind: Handoff, Cell: 0, Attempt: 2, Token: 9})
	check(m.Step(at(0), Event{Kind: Handoff, Cell: 1, Attempt: 2, Token: 9}))
	check(m.Step(at(0), late))
}

// A late answer that needs a release does not end a kept lock.
func TestStragglerDoesNotEndAKeep(t *testing.T) {
	m := inherited()
	m.Step(at(0), Event{Kind: Unlock, Keep: time.Second})
	for cell := range int32(3) {
		m.Step(at(0), answer(Keep, cell, Reply{OK: cell < 2}))
	}
	fx := m.Step(at(0), Event{Kind: Replied, Call: Call{Do: Acquire, Attempt: 0, Cell: 0}, Reply: Reply{Err: quorumlock.ErrClosed}})
	for _, c := range fx.Calls {
		if c.All {
			t.Errorf("%+v takes back the hold that is kept", c)
		}
	}
}

// A raise for the attempt's own owner does not count for its successor.
func TestALateRaiseOfTheOwnOwnerDoesNotCountForItsSuccessor(t *testing.T) {
	m := start(3, 5)
	for i, token := range []uint64{5, 6, 7} {
		m.Step(at(0), answer(Acquire, int32(i), Reply{OK: true, Token: token}))
	}
	for i := int32(3); i < 5; i++ {
		m.Step(at(0), answer(Acquire, i, Reply{Holder: "o:1", TTL: time.Second}))
	}
	m.Step(at(0), answer(Raise, 0, Reply{}))
	for i, token := range []uint64{1: 8, 2: 9, 3: 20} {
		if token > 0 {
			m.Step(at(0), Event{Kind: Handoff, Cell: int32(i), Attempt: 1, Token: token})
		}
	}
	m.Step(at(0), answer(Raise, 1, Reply{OK: true}))
	e := answer(Raise, 2, Reply{OK: true})
	e.Call.Successor = true
	if m.Step(at(0), e); m.Phase() == Holding {
		t.Error("it holds with a token that only two cells have")
	}
}

// The own owner's grant is released if the successor won, and no quorum has the token.
func TestASuccessorThatCannotAgreeLeavesNothingOfItsAttempt(t *testing.T) {
	m := start(2, 3)
	m.Step(at(0), answer(Acquire, 0, Reply{OK: true, Token: 7}))
	m.Step(at(0), Event{Kind: Handoff, Cell: 1, Attempt: 1, Token: 8})
	m.Step(at(0), Event{Kind: Handoff, Cell: 2, Attempt: 1, Token: 9})
	e := answer(Raise, 1, Reply{Err: errors.New("lost")})
	e.Call.Successor = true
	for _, c := range m.Step(at(0), e).Calls {
		if c.Cell == 0 && c.Do == Release && !c.Successor && c.Attempt == 1 {
			return
		}
	}
	t.Error("nothing releases the attempt's own owner at the first cell")
}

// A holder is in no queue. A renewal finds cells that did not hand over, and the waiter leaves
// their queues, whatever they answered before.
func TestASuccessorLeavesTheQueuesOfAllCellsThatDidNotHandOver(t *testing.T) {
	refused, granted := Reply{Holder: "other:1", TTL: time.Second}, Reply{OK: true, Token: 7}
	for name, answers := range map[string][]Event{
		"queued":          {answer(Acquire, 4, refused)},
		"free":            {answer(Acquire, 4, granted), answer(Acquire, 3, granted), answer(Yield, 4, Reply{First: true})},
		"not asked again": {answer(Acquire, 4, Reply{Err: quorumlock.ErrClosed, Unsent: true})},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(3, 5)
			m.attempt = 2 // the first one has reached all cells
			for i := range m.Cells {
				m.Cells[i].reached = true
			}
			step := func(e Event) *Effects {
				e.Call.Attempt, e.Attempt = 2, 2
				return m.Step(at(0), e)
			}
			last := len(answers) - 1
			for _, e := range answers[:max(last, 1)] {
				step(e)
			}
			for cell := range int32(3) {
				step(answer(Acquire, cell, refused))
			}
			if last > 0 {
				step(answers[last])
			}
			for cell := range int32(3) {
				step(Event{Kind: Handoff, Cell: cell, Token: 9})
			}
			if m.Phase() != Holding {
				t.Fatalf("phase %d, want it to hold", m.Phase())
			}
			step(Event{Kind: Extend})
			e := answer(Renew, 4, Reply{})
			e.Call.Successor, e.Call.Round = true, m.LastRound()
			if got := calls(step(e), 4); len(got) == 0 || got[0] != Leave {
				t.Errorf("the cell is asked for %v, want a leave", got)
			}
		})
	}
}

// The next attempt takes over handoffs without a quorum. If it misses the node, but its own
// successor gets the lock from the others, the earlier handoff is released.
func TestAHandoffToThePreviousAttemptIsReleased(t *testing.T) {
	m := start(2, 3)
	held := Reply{Holder: "other:1", TTL: time.Second}
	for cell := range int32(3) {
		m.Step(at(0), answer(Acquire, cell, held))
	}
	m.Step(at(0), Event{Kind: Handoff, Cell: 0, Attempt: 1, Token: 8})
	m.Step(at(grace), Event{Kind: Tick})
	if n, _ := m.Attempt(); n != 2 {
		t.Fatalf("attempt %d, want the second", n)
	}
	for cell := int32(1); cell < 3; cell++ {
		e := answer(Acquire, cell, held)
		e.Call.Attempt = 2
		m.Step(at(grace), e)
	}
	m.Step(at(grace), Event{Kind: Handoff, Cell: 1, Attempt: 2, Token: 9})
	fx := m.Step(at(grace), Event{Kind: Handoff, Cell: 2, Attempt: 2, Token: 9})
	if m.Phase() != Holding {
		t.Fatalf("phase %d, want it to hold", m.Phase())
	}
	for _, c := range fx.Calls {
		if c.Cell == 0 && c.Do == Release && c.Successor && c.Attempt == 1 {
			return
		}
	}
	t.Errorf("node 1 keeps what it handed to the successor of attempt 1: %+v", fx.Calls)
}

// Two addresses of one server are never a quorum, even of a free lock. The waiter must ask rarely.
func TestAWaiterThatNeedsTwoAddressesOfOneServerAsksRarely(t *testing.T) {
	m := start(2, 2)
	granted(m, 0)
	m.Step(at(0), answer(Acquire, 1, Reply{Ours: true}))
	for cell := range int32(2) {
		m.Step(at(0), answer(Yield, cell, Reply{First: true}))
	}
	if wait := m.Wake() - at(0).Mono; m.Phase() != Waiting || wait < afterFailure/2 {
		t.Errorf("phase %d, asks again after %v, want %v at least", m.Phase(), wait, afterFailure/2)
	}
}

// The Yield of a TryLock may run at a slow node after the call's last release, which used a new
// connection. It queues the waiter again, and only its pending release can remove the waiter.
func TestWhatIsSentAgainForAYieldLeavesTheQueueIfTheCallIsOver(t *testing.T) {
	for _, tries := range []bool{true, false} {
		m := start(2, 3)
		m.cfg.Tries = tries
		m.Step(at(1), answer(Acquire, 0, Reply{OK: true, Token: 7}))
		m.Step(at(2), answer(Acquire, 1, Reply{Holder: "other:1.1.1"}))
		m.Step(at(3), answer(Acquire, 2, Reply{Holder: "another:1.1.2"}))
		if m.Phase() != Yielding {
			t.Fatalf("phase %d, not Yielding", m.Phase())
		}
		if !tries {
			m.Step(at(4), Event{Kind: Cancel})
		}
		failed := answer(Yield, 0, Reply{Err: errors.New("lost")})
		m.Step(at(m.cfg.NodeTimeout*2), failed)
		if m.Phase() != Over {
			t.Fatalf("phase %d, not Over", m.Phase())
		}
		if again, times := m.Retry(failed.Call, true); times == 0 || again.Do != ReleaseAndLeave || !again.All || again.Cell != 0 || again.Attempt != 1 {
			t.Errorf("a Yield that failed is sent again as %+v", again)
		}
	}

	m := start(2, 3)
	m.Step(at(1), answer(Acquire, 0, Reply{OK: true, Token: 7}))
	m.Step(at(2), answer(Acquire, 1, Reply{Holder: "other:1.1.1"}))
	m.Step(at(3), answer(Acquire, 2, Reply{Holder: "other:1.1.2"}))
	failed := answer(Yield, 0, Reply{Err: errors.New("lost")})
	m.Step(at(4), failed)
	if again, times := m.Retry(failed.Call, true); m.Phase() != Waiting || times == 0 || again.Do != Release {
		t.Errorf("in phase %d a Yield that failed is sent again as %+v: the waiter would lose its place", m.Phase(), again)
	}
}

// If many share a lock and a caller waits to have it alone, the nodes refuse a reader without a
// name. A TryRLock does not ask again.
func TestATryThatIsRefusedWithoutANameIsOver(t *testing.T) {
	m := start(2, 3)
	m.cfg.Tries = true
	m.Step(at(1), answer(Acquire, 0, Reply{TTL: time.Second}))
	fx := m.Step(at(2), answer(Acquire, 1, Reply{TTL: time.Second}))
	if fx.Outcome != Failed || fx.Reason != Held {
		t.Errorf("outcome %d, reason %d after two of three have refused", fx.Outcome, fx.Reason)
	}
}

// An attempt is sent again to a node that does not know its script, and the release behind it runs
// first. The answers may still come in the order of the calls.
func TestAReleaseThatRanBeforeItsAttemptIsSentAgain(t *testing.T) {
	m := start(2, 3)
	m.Step(at(1), Event{Kind: Cancel})
	m.Step(at(2), answer(Acquire, 0, Reply{OK: true, Token: 7}))
	if fx := m.Step(at(3), answer(ReleaseAndLeave, 0, Reply{})); len(calls(fx, 0)) != 1 || calls(fx, 0)[0] != ReleaseAndLeave {
		t.Errorf("%v after a release that found nothing", calls(fx, 0))
	}
	if fx := m.Step(at(4), answer(Release, 0, Reply{})); len(fx.Calls) != 0 {
		t.Errorf("%v after the second", fx.Calls)
	}
}

func TestAnUnlockThatRanBeforeItsAttemptIsSentAgain(t *testing.T) {
	m := start(2, 3)
	m.Step(at(1), answer(Acquire, 0, Reply{OK: true, Token: 7}))
	m.Step(at(2), answer(Acquire, 1, Reply{OK: true, Token: 7}))
	m.Step(at(3), Event{Kind: Unlock})
	m.Step(at(4), answer(Acquire, 2, Reply{OK: true, Token: 7}))
	if fx := m.Step(at(5), answer(Release, 2, Reply{})); len(calls(fx, 2)) != 1 || calls(fx, 2)[0] != ReleaseAndLeave {
		t.Errorf("%v after a release that found nothing", calls(fx, 2))
	}
	m.Step(at(6), answer(Release, 0, Reply{OK: true}))
	m.Step(at(7), answer(Release, 1, Reply{OK: true}))
	if fx := m.Step(at(8), answer(Release, 2, Reply{OK: true})); len(fx.Calls) != 0 {
		t.Errorf("%v after the second", fx.Calls)
	}
}

// Leases that begin together are not renewed together, but some of them share a write.
func TestFirstRenewalsAreSpread(t *testing.T) {
	const third = 10 * time.Second / 3
	at := make(map[time.Duration]bool)
	for seed := range uint64(5000) {
		c := &Config{Tree: Majority(1, 1), TTL: 10 * time.Second, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true}
		m := New(c, func(int) time.Duration { return time.Millisecond }, seed*0x9e3779b97f4a7c15+1)
		m.Step(Time{time.Second, time.Second}, Event{Kind: Start})
		granted(m, 0)
		after := m.renew - time.Second
		if after < third/2-third/2048 || after > third {
			t.Fatalf("the first renewal is %v after the grant", after)
		}
		at[m.renew] = true
	}
	if len(at) < 900 || len(at) > 1026 {
		t.Errorf("5,000 leases are renewed at %d times, want about 1,024", len(at))
	}
}
