package core

import (
	"testing"
	"time"
)

// Lost answers, and calls that overtake each other when a connection breaks.

// again returns a machine in its second attempt at three cells. Two of them refused the first one,
// and called; third is the answer of the third, if any.
func again(t *testing.T, third *Reply) *Machine {
	t.Helper()
	m := start(2, 3)
	if third != nil {
		plays(m, answer(Acquire, 2, *third))
	}
	refused(m, 2)
	plays(m, Event{Kind: Turn, Cell: 0}, Event{Kind: Turn, Cell: 1})
	wantAsking(t, m, 2)
	return m
}

func TestTheLastOfTheseAnswersAsksTheThirdCellFor(t *testing.T) {
	for _, tt := range []struct {
		what   string
		m      *Machine
		events []Event
		want   Do
		phase  Phase
	}{
		{"after its successor has the lock, an attempt's own owner gets a grant", start(2, 3),
			[]Event{answer(Acquire, 0, heldByOther), handed(0, 1, 9), answer(Acquire, 1, heldByOther), handed(1, 1, 9),
				answer(Acquire, 2, grant)}, ReleaseAndLeave, Holding},
		{"a cell that turns out to share the server of another one has queued the waiter", holding(0, 1),
			[]Event{unlock, answer(Acquire, 2, Reply{Ours: true})}, Leave, Releasing},
		{"a cell that refused the attempt has the key from a Restore before its answer comes, and queues the waiter", holding(0, 1),
			[]Event{extend, renewal(2, grant), answer(Acquire, 2, heldByOther)}, Leave, Holding},
		{"the same, after the Unlock", holding(0, 1),
			[]Event{extend, renewal(2, grant), unlock, answer(Acquire, 2, heldByOther)}, Leave, Releasing},
		{"a Restore has overtaken the release", holding(0, 1, 2), []Event{unlock, answer(Restore, 2, grant)}, Release, Releasing},
		// Unlock keeps the key for a while, so the cell only has to leave the queue.
		{"a renewal has shown that the cell has the lock, and the answer to the attempt is lost", holding(0, 1),
			[]Event{extend, renewal(2, grant), keep(time.Second), answer(Acquire, 2, lost)}, Leave, Releasing},
		{"a release has run before the attempt that it ends", holding(0, 1),
			[]Event{unlock, answer(Release, 2, Reply{}), answer(Acquire, 2, grant)}, ReleaseAndLeave, Releasing},
		{"the same, after the call has given up", start(2, 3),
			[]Event{cancel, answer(Acquire, 2, grant), answer(ReleaseAndLeave, 2, Reply{})}, ReleaseAndLeave, Over},
		{"the first attempt queues the waiter after the second one was answered, before the hold", again(t, nil),
			[]Event{reply(Acquire, 2, 2, grant), reply(Acquire, 2, 1, heldByOther), reply(Acquire, 0, 2, grant)}, Leave, Holding},
		{"the same, during the hold", again(t, nil),
			[]Event{reply(Acquire, 2, 2, grant), reply(Acquire, 0, 2, grant), reply(Acquire, 2, 1, heldByOther)}, Leave, Holding},
		{"the answer to an earlier attempt, which may still run, is lost", again(t, nil),
			[]Event{reply(Acquire, 2, 1, lost)}, Release, Asking},
		{"and may have queued the waiter", again(t, nil),
			[]Event{reply(Acquire, 2, 1, lost), reply(Acquire, 2, 2, grant), reply(Acquire, 0, 2, grant)}, Leave, Holding},
		{"its answer to the first attempt was lost, and the successor of the second holds", again(t, &lost),
			[]Event{answer(Yield, 2, Reply{}), reply(Acquire, 2, 2, heldByOther), reply(Acquire, 0, 2, heldByOther), reply(Acquire, 1, 2, heldByOther),
				handed(0, 2, 9), handed(1, 2, 9)}, Leave, Holding},
		{"a Yield was answered, and the call gives up", again(t, &lost),
			[]Event{answer(Yield, 2, Reply{}), reply(Acquire, 2, 2, heldByOther), cancel}, Leave, Over},
		{"a Yield without an answer may run after the next attempt, whose possible grant is released", again(t, &lost),
			[]Event{reply(Acquire, 2, 2, heldByOther), cancel}, ReleaseAndLeave, Over},
		{"it did not answer a Yield, and its next grant is part of the hold", start(2, 3),
			[]Event{answer(Acquire, 2, grant), answer(Acquire, 0, heldByOther), answer(Acquire, 1, heldByOther), answer(Yield, 2, lost),
				{Kind: Turn, Cell: 0}, {Kind: Turn, Cell: 1}, reply(Acquire, 2, 2, grant), reply(Acquire, 0, 2, grant)}, Leave, Holding},
	} {
		t.Run(tt.what, func(t *testing.T) {
			want(t, plays(tt.m, tt.events...), 2, tt.want)
			control(t, tt.m, tt.phase)
		})
	}
}

// The release ran before the attempt, at a node that UnlockAfter did not know to have granted.
func TestALateGrantBesideAKeepIsGivenBack(t *testing.T) {
	m := holding(0, 1)
	want(t, plays(m, keep(time.Second)), 2, Release)
	want(t, plays(m, answer(Release, 2, Reply{})), 2)
	want(t, plays(m, answer(Acquire, 2, grant)), 2, ReleaseAndLeave)
}

// A Downgrade before the grant did not change the grant.
func TestALateGrantAfterADowngradeIsShared(t *testing.T) {
	m := holding(0, 1)
	fx := plays(m, Event{Kind: Downgrade}, answer(Acquire, 2, grant))
	if want(t, fx, 2, Renew); len(fx.Calls) > 0 && !fx.Calls[0].Shared {
		t.Error("the cell is not asked to share it")
	}
	want(t, plays(holding(0, 1, 2), Event{Kind: Downgrade}, answer(Restore, 2, Reply{Ours: true})), 2, Renew)
}

// A Yield that is answered in Waiting shows that the lock is free there.
func TestALateYieldTellsOfAFreeLock(t *testing.T) {
	m := start(2, 3)
	plays(m, answer(Acquire, 0, lost), answer(Acquire, 1, lost), answer(Acquire, 2, heldByOther))
	plays(m, answer(Yield, 0, Reply{First: true}), answer(Yield, 1, Reply{First: true}))
	waits(t, m, grace)
}

func TestHandoffsThatCannotWinBeginTheNextAttempt(t *testing.T) {
	t.Run("to an earlier attempt", func(t *testing.T) {
		m := again(t, nil)
		for cell := range int32(3) {
			plays(m, reply(Acquire, cell, 2, heldByOther))
		}
		plays(m, handed(0, 1, 9), handed(1, 1, 9))
		wantAsking(t, m, 3)
	})
	t.Run("before the other answers, and too late for a renewal", func(t *testing.T) {
		m := start(2, 3)
		sends(m, at(900*time.Millisecond), answer(Acquire, 0, heldByOther), handed(0, 1, 9), handed(1, 1, 9))
		wantAsking(t, m, 2)
	})
	t.Run("whose token is agreed on after their TTL", func(t *testing.T) {
		m := start(2, 3)
		refused(m, 3)
		plays(m, handed(0, 1, 9), handed(1, 1, 8))
		m.Step(at(2*time.Second), ofSuccessor(answer(Raise, 1, Reply{OK: true})))
		wantAsking(t, m, 2)
	})
}

// A cell missed the last attempt. It may have handed the lock to an earlier successor, and the
// message may be lost. The release covers that handoff, too, even after a renewal has shown that
// the cell has the hold.
func TestAReleaseTakesBackWhatEarlierSuccessorsGot(t *testing.T) {
	quarantined := Reply{Err: errNoAnswer, Quarantined: true}
	for name, test := range map[string]struct {
		missed Reply
		early  bool // the attempt is answered before the others hand over
		shown  bool
		keep   time.Duration
	}{
		"a lost answer":                          {missed: lost, early: true},
		"a lost answer, and the others keep it":  {missed: lost, early: true, keep: time.Second},
		"a lost answer, and then a renewal":      {missed: lost, early: true, shown: true},
		"never sent, and then a renewal":         {missed: unsent, early: true, shown: true},
		"in quarantine, and then a renewal":      {missed: quarantined, early: true, shown: true},
		"never sent, as is told late, and shown": {missed: unsent, shown: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, missed := again(t, nil), reply(Acquire, 2, 2, test.missed)
			if test.early {
				plays(m, missed)
			}
			for cell := range int32(2) {
				plays(m, reply(Acquire, cell, 2, heldByOther), handed(cell, 2, 9))
			}
			control(t, m, Holding)
			if !test.early {
				plays(m, missed)
			}
			if test.shown {
				e := ofSuccessor(renewal(2, grant))
				e.Call.Attempt = 2
				plays(m, extend, e)
			}
			fx := plays(m, keep(test.keep))
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
		plays(m, answer(Acquire, cell, heldByOther))
	}
	want(t, plays(m, answer(Acquire, 4, grant)), 4, Yield)
	plays(m, answer(Yield, 4, Reply{}))
	control(t, m, Yielding)
	plays(m, answer(Yield, 0, Reply{}))
	control(t, m, Waiting)
}

// A failed release is repeated, unless no attempt has reached the cell. It is repeated once more if
// a lost call may still run.
func TestHowOftenAReleaseIsConfirmed(t *testing.T) {
	for name, tt := range map[string]struct {
		answers          []Event // of the cell
		failed, answered int
	}{
		"not answered":               {nil, 2, 0},
		"granted":                    {[]Event{answer(Acquire, 2, grant)}, 1, 0},
		"refused":                    {[]Event{answer(Acquire, 2, heldByOther)}, 1, 0},
		"never sent":                 {[]Event{answer(Acquire, 2, unsent)}, 0, 0},
		"refused by the guard":       {[]Event{answer(Acquire, 2, Reply{Err: errNoAnswer, Quarantined: true})}, 0, 0},
		"lost":                       {[]Event{answer(Acquire, 2, lost)}, 2, 1},
		"granted, a restore is lost": {[]Event{answer(Acquire, 2, grant), answer(Restore, 2, lost)}, 2, 1},
		"granted, a renewal is lost": {[]Event{answer(Acquire, 2, grant), answer(Renew, 2, lost)}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := holding(0, 1)
			plays(m, append(tt.answers, unlock)...)
			for failed, want := range map[bool]int{true: tt.failed, false: tt.answered} {
				if _, times := m.Retry(Call{Do: Release, Cell: 2, Attempt: 1}, failed); times != want {
					t.Errorf("release failed %v: needs %d confirmations, want %d", failed, times, want)
				}
			}
			if _, times := m.Retry(Call{Do: Renew, Cell: 2, Attempt: 1}, true); times != 0 {
				t.Errorf("a renewal needs %d confirmations, want 0", times)
			}
		})
	}
}
