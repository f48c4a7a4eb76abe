package core

import (
	"slices"
	"testing"
	"time"
)

// lackingMember returns a waiter for two members of three cells each. The second member has no
// quorum, and the next attempt is due: the first one is handed over at cell 2, and queued at others.
func lackingMember(t *testing.T) (m *Machine, calls []Call) {
	t.Helper()
	m = begin(config(Every([]Tree{Majority(2, 3), Majority(2, 3)})))
	refused(m, 1)
	granted(m, 1, 2, 3)
	plays(m, answer(Acquire, 4, unsent), answer(Acquire, 5, lost))
	for cell := range int32(4) {
		plays(m, answer(Yield, cell, Reply{}))
	}
	plays(m, handed(2, 1, 9))
	if m.phase != Waiting {
		t.Fatalf("it is %v", m.phase)
	}
	return m, sends(m, at(m.Wake()-time.Second), Event{Kind: Tick})
}

func TestAnAttemptSparesTheMembersBesideOneWithoutAQuorum(t *testing.T) {
	m, calls := lackingMember(t)
	for cell, want := range [][]Do{{Leave}, {Leave}, {Leave, Release}, {Acquire}, {Acquire}, {Acquire}} {
		if got := asks(calls, int32(cell)); !slices.Equal(got, want) {
			t.Errorf("cell %d is asked for %v, want %v", cell, got, want)
		}
	}
	for _, c := range calls {
		if c.All || c.Do == Release && (!c.Successor || c.Attempt != 1) {
			t.Errorf("%+v may release a later attempt", c)
		}
	}
	// A late handoff of a member that the waiter has left.
	if late := sends(m, at(0), handed(0, 1, 9)); len(late) != 1 || late[0].Do != Release || !late[0].Successor || late[0].Attempt != 1 {
		t.Errorf("the handoff is answered by %v", late)
	}
	// The member has a quorum again: one more grant.
	if rest := sends(m, at(0), reply(Acquire, 3, 2, grant)); len(rest) > 0 {
		t.Errorf("a single vote leads to %v", rest)
	}
	rest := sends(m, at(0), reply(Acquire, 5, 2, heldByOther))
	for cell := range int32(3) {
		if got := asks(rest, cell); !slices.Equal(got, []Do{Acquire}) {
			t.Errorf("cell %d is asked for %v once the member has voted", cell, got)
		}
	}
	plays(m, reply(Acquire, 4, 2, grant), reply(Acquire, 0, 2, grant), reply(Acquire, 1, 2, grant))
	if m.phase != Holding {
		t.Errorf("with a quorum of both it is %v", m.phase)
	}
}

func TestACallThatEndsWhileItSparesMembersLeavesThemForGood(t *testing.T) {
	m, _ := lackingMember(t)
	calls := sends(m, at(0), cancel)
	for _, c := range calls {
		if c.Cell < 3 && (c.Do != Leave || !c.All) || c.Cell >= 3 && c.Do != ReleaseAndLeave {
			t.Errorf("cell %d is asked for %v, all %v", c.Cell, c.Do, c.All)
		}
	}
	if len(calls) != 6 {
		t.Errorf("it is left by %v", calls)
	}
}

// A RedLock that needs all of its nodes is one lock, with one queue: its waiters keep their places.
func TestALockThatIsNoMultiLockSparesNoCell(t *testing.T) {
	m := start(3, 3)
	granted(m, 0, 1)
	plays(m, answer(Acquire, 2, lost), answer(Yield, 0, Reply{}), answer(Yield, 1, Reply{}))
	if calls := sends(m, at(m.Wake()-time.Second), Event{Kind: Tick}); len(calls) != 3 || calls[0].Do != Acquire {
		t.Errorf("the next attempt is %v", calls)
	}
}
