package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

var errNoAnswer = errors.New("no answer")

var (
	grant       = Reply{OK: true, Token: 7}
	heldByOther = Reply{Holder: "other:1", TTL: time.Second}
	lost        = Reply{Err: errNoAnswer}
	unsent      = Reply{Err: errNoAnswer, Unsent: true}

	extend = Event{Kind: Extend}
	unlock = Event{Kind: Unlock}
	cancel = Event{Kind: Cancel}
)

func config(tree Tree) *Config {
	return &Config{Tree: tree, TTL: 10 * time.Second, HandTTL: 1800 * time.Millisecond, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true}
}

// millisecond is the round trip to each cell.
func millisecond(int) time.Duration { return time.Millisecond }

// begin returns a machine that has asked all cells, at the time at(0).
func begin(c *Config) *Machine {
	m := New(c, millisecond, 1)
	m.Step(at(0), Event{Kind: Start})
	return m
}

func start(need, cells int) *Machine { return begin(config(Majority(need, cells))) }

// holding returns a hold of the given ones of three cells.
func holding(cells ...int32) *Machine {
	m := start(2, 3)
	granted(m, cells...)
	return m
}

func at(d time.Duration) Time { return Time{time.Second + d, time.Second + d} }

func keep(d time.Duration) Event { return Event{Kind: Unlock, Keep: d} }

// answer is one to a call of the first attempt.
func answer(do Do, cell int32, r Reply) Event { return reply(do, cell, 1, r) }

// reply is an answer to a call of an attempt.
func reply(do Do, cell, attempt int32, r Reply) Event {
	return Event{Kind: Replied, Call: Call{Do: do, Cell: cell, Attempt: attempt}, Reply: r}
}

// renewal is an answer in the first round of renewals.
func renewal(cell int32, r Reply) Event {
	e := answer(Renew, cell, r)
	e.Call.Round = 1
	return e
}

func ofSuccessor(e Event) Event {
	e.Call.Successor = true
	return e
}

// handed is a handoff to the successor of an attempt.
func handed(cell, attempt int32, token uint64) Event {
	return Event{Kind: Handoff, Cell: cell, Attempt: attempt, Token: token}
}

// plays plays events at the time at(0), and returns the effects of the last one.
func plays(m *Machine, events ...Event) (fx *Effects) {
	for _, e := range events {
		fx = m.Step(at(0), e)
	}
	return fx
}

// sends plays events, and returns the calls of all of them.
func sends(m *Machine, now Time, events ...Event) (all []Call) {
	for _, e := range events {
		all = append(all, m.Step(now, e).Calls...)
	}
	return all
}

func granted(m *Machine, cells ...int32) {
	for _, cell := range cells {
		plays(m, answer(Acquire, cell, grant))
	}
}

// refused plays the refusals of the first n cells.
func refused(m *Machine, n int32) {
	for cell := range n {
		plays(m, answer(Acquire, cell, heldByOther))
	}
}

// inherited returns a hold with handoffs of two of three cells. The third still queues the waiter.
func inherited() *Machine {
	m := start(2, 3)
	refused(m, 3)
	plays(m, handed(0, 1, 9), handed(1, 1, 9))
	return m
}

// asks returns the operations that calls ask of a cell.
func asks(calls []Call, cell int32) (all []Do) {
	for _, c := range calls {
		if c.Cell == cell {
			all = append(all, c.Do)
		}
	}
	return all
}

func want(t *testing.T, fx *Effects, cell int32, all ...Do) {
	t.Helper()
	if got := asks(fx.Calls, cell); !slices.Equal(got, all) {
		t.Errorf("cell %d is asked for %v, want %v", cell, got, all)
	}
}

// wantAsking checks that a machine has begun an attempt.
func wantAsking(t *testing.T, m *Machine, attempt int32) {
	t.Helper()
	if n, _ := m.Attempt(); n != attempt || m.Phase() != Asking {
		t.Errorf("phase %s of attempt %d, want it to ask in attempt %d", m.Phase(), n, attempt)
	}
}

// control checks that a test plays what it says.
func control(t *testing.T, m *Machine, want Phase) {
	t.Helper()
	if m.Phase() != want {
		t.Fatalf("control: phase %s, want %s", m.Phase(), want)
	}
}

// Extend returns, whichever answer shows the loss of the hold. After that, no more calls are sent.
func TestLastAnswerThatEndsTheHoldEndsItsRound(t *testing.T) {
	fx := plays(holding(0, 1, 2), extend, renewal(0, grant), renewal(1, Reply{}), renewal(2, Reply{}))
	if fx.Lost != Gone || len(fx.Rounds) != 1 || fx.Rounds[0].Won || len(fx.Calls) > 0 {
		t.Errorf("%+v", fx)
	}
}

// inRound is the answer to a renewal of a round.
func inRound(id, cell int32, r Reply) Event {
	e := renewal(cell, r)
	e.Call.Round = id
	return e
}

// A late call sets the expiry that it had asked for. So a TTL that is longer than the lock's counts
// only where no older call may still run.
func TestALongerTTLCountsOnlyWhereNoOlderCallMayRun(t *testing.T) {
	const hour = time.Hour
	to := Event{Kind: Extend, Keep: hour}
	for name, tt := range map[string]struct {
		m      *Machine
		events []Event
		won    bool
	}{
		"all answered":               {holding(0, 1, 2), []Event{to, inRound(1, 0, grant), inRound(1, 1, grant)}, true},
		"a renewal was lost":         {holding(0, 1, 2), []Event{extend, renewal(0, lost), renewal(1, grant), renewal(2, grant), to, inRound(2, 0, grant), inRound(2, 1, grant), inRound(2, 2, Reply{})}, false},
		"others answer":              {holding(0, 1, 2), []Event{extend, renewal(0, lost), renewal(1, grant), renewal(2, grant), to, inRound(2, 0, grant), inRound(2, 1, grant), inRound(2, 2, grant)}, true},
		"a renewal was never sent":   {holding(0, 1, 2), []Event{extend, renewal(0, unsent), renewal(1, grant), renewal(2, grant), to, inRound(2, 0, grant), inRound(2, 1, grant)}, true},
		"a renewal is overtaken":     {holding(0, 1, 2), []Event{extend, to, inRound(2, 0, grant), inRound(2, 1, grant)}, false},
		"a renewal comes after":      {holding(0, 1, 2), []Event{to, extend, inRound(1, 0, grant), inRound(1, 1, grant)}, true},
		"an attempt is unanswered":   {holding(0, 1), []Event{to, inRound(1, 0, grant), inRound(1, 2, grant), inRound(1, 1, Reply{})}, false},
		"an attempt was lost":        {holding(0, 1), []Event{answer(Acquire, 2, lost), to, inRound(1, 2, grant), inRound(1, 0, grant), inRound(1, 1, Reply{})}, false},
		"a cell was restored":        {holding(0, 1, 2), []Event{extend, renewal(0, Reply{}), renewal(1, grant), renewal(2, grant), answer(Restore, 0, grant), to, inRound(2, 0, grant), inRound(2, 1, grant), inRound(2, 2, Reply{})}, false},
		"the TTL of the lock counts": {holding(0, 1), []Event{extend, renewal(0, lost), renewal(1, grant), renewal(2, grant), extend, inRound(2, 0, grant), inRound(2, 1, grant)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.m.Until()
			rounds := plays(tt.m, tt.events...).Rounds
			if len(rounds) != 1 || rounds[0].Won != tt.won {
				t.Fatalf("rounds: %+v, want one that is won: %v", rounds, tt.won)
			}
			want := before
			if tt.won && slices.Contains(tt.events, to) {
				want = at(0).Mono + tt.m.cfg.Drift.Validity(hour, 0)
			}
			if got := tt.m.Until(); got != want {
				t.Errorf("valid until %v, want %v", got, want)
			}
		})
	}
}

// After an Extend to an hour, no renewal lets the key or the validity end earlier.
func TestNoRenewalShortensALongerTTL(t *testing.T) {
	m := holding(0, 1, 2)
	plays(m, Event{Kind: Extend, Keep: time.Hour}, renewal(0, grant), renewal(1, grant), renewal(2, grant))
	end, round := m.Until(), int32(1)
	renew := func(when, keep time.Duration) {
		t.Helper()
		round++
		for _, c := range sends(m, at(when), extend) {
			if c.For != keep {
				t.Errorf("at %v: renewed for %v, want %v", when, c.For, keep)
			}
			m.Step(at(when), inRound(round, c.Cell, grant))
		}
	}
	renew(30*time.Minute, 30*time.Minute)
	if m.Until() != end {
		t.Errorf("a renewal moved the end by %v", m.Until()-end)
	}
	renew(59*time.Minute+20*time.Second, 40*time.Second)
	last := 59*time.Minute + 23*time.Second
	renew(last, 37*time.Second)
	if want := at(last).Mono + m.cfg.Drift.Validity(m.cfg.TTL, 0); m.Until() != want {
		t.Errorf("at the end of the hour valid until %v, want %v", m.Until(), want)
	}
}

// A handoff that comes too late does not stop the waiter from asking again.
func TestWaiterGoesOnAfterALateHandoff(t *testing.T) {
	m := start(2, 2)
	granted(m, 0)
	late := at(900 * time.Millisecond) // too late to renew the handoff
	sends(m, late, answer(Acquire, 1, heldByOther), handed(0, 1, 9), handed(1, 1, 9))
	control(t, m, Yielding)
	m.Step(late, answer(Yield, 0, Reply{}))
	wantAsking(t, m, 2)
}

// A renewal that was under way does not extend a kept lock to the whole TTL.
func TestRenewalDoesNotLengthenAKeep(t *testing.T) {
	first, last, renewed := answer(Keep, 0, grant), answer(Keep, 2, grant), renewal(1, grant)
	for left, want := range map[time.Duration]Do{time.Second: Keep, -time.Second: Release} {
		for _, events := range [][]Event{{renewed, first, last}, {first, last, renewed}} {
			m := holding(0, 1, 2)
			plays(m, extend, keep(3*time.Second))
			all := sends(m, at(3*time.Second-left), events...)
			if len(all) != 1 || all[0].Do != want || all[0].Cell != 1 || all[0].For != max(left, 0) {
				t.Errorf("%v left: %+v after %+v", left, all, events)
			}
		}
	}
}

// After a failed Unlock, a key that a renewal extended ends with its TTL at cells that have not
// confirmed the Keep.
func TestRenewalDoesNotRepeatAKeepThatHasFailed(t *testing.T) {
	renewed := []Event{renewal(0, lost), renewal(1, lost), renewal(2, lost)}
	kept := []Event{answer(Keep, 0, grant), answer(Keep, 1, lost), answer(Keep, 2, lost)}
	for _, events := range [][]Event{slices.Concat(renewed, kept), slices.Concat(kept, renewed)} {
		m := holding(0, 1, 2)
		plays(m, extend, keep(time.Minute))
		all := sends(m, at(time.Second), events...)
		if len(all) != 1 || all[0].Do != Keep || all[0].Cell != 0 || all[0].For != 59*time.Second {
			t.Errorf("%+v, want one Keep, for the cell that has confirmed", all)
		}
	}
}

// An unanswered Keep may still be unsent, and reach a node that comes back. A caller that was told
// that the lock is not kept relies on the TTL there.
func TestThatALockIsNotKeptIsDecidedWithTheLastAnswer(t *testing.T) {
	m := holding(0, 1)
	plays(m, keep(time.Minute))
	for i, e := range []Event{answer(Release, 2, Reply{}), answer(Keep, 1, lost), answer(Keep, 0, lost)} {
		if fx := plays(m, e); fx.Released != (i == 2) || len(fx.Calls) > 0 {
			t.Errorf("answer %d: %+v", i, fx)
		}
	}
	if confirmed, _ := m.Released(); confirmed {
		t.Error("it counts as kept")
	}
}

// A kept lock stays at a node that has lost the key and has just got it back.
func TestRestoreDoesNotEndAKeep(t *testing.T) {
	m := holding(0, 1, 2)
	plays(m, keep(3*time.Second), answer(Keep, 0, grant), answer(Keep, 1, Reply{}), answer(Keep, 2, grant))
	if fx := m.Step(at(time.Second), answer(Restore, 1, grant)); len(fx.Calls) != 1 || fx.Calls[0].Do != Keep || fx.Calls[0].For != 2*time.Second {
		t.Errorf("%+v", fx.Calls)
	}
}

// If a cell hands over when the successor already has the lock, the waiter has left the queue
// there. Then a Release is enough, but only where the waiter was known to be queued.
func TestALateHandoffIsReleasedWithoutLeavingTheQueue(t *testing.T) {
	for end, do := range map[Event]Do{unlock: Release, keep(time.Second): Keep} {
		m := inherited()
		want(t, plays(m, handed(2, 1, 9)), 2)
		want(t, plays(m, end), 2, do)
	}
	m := start(2, 3)
	for cell := range int32(2) {
		plays(m, answer(Acquire, cell, heldByOther), handed(cell, 1, 9))
	}
	want(t, plays(m, handed(2, 1, 9), unlock), 2, ReleaseAndLeave)
}

// A replica that takes over may lack a handoff: there the waiter is queued, and does not hold.
func TestAnUnlockAtACellThatForgotItsHandoffLeavesTheQueue(t *testing.T) {
	for _, d := range []time.Duration{0, time.Second} {
		m := inherited()
		leaves := []Call{{Do: ReleaseAndLeave, Attempt: 1, Successor: true, All: true}}
		if d > 0 { // a renewal may yet find the key there
			leaves = []Call{{Do: Leave, Attempt: 1}}
		}
		for _, c := range sends(m, at(1), keep(d)) {
			want := leaves
			if c.Cell > 0 {
				want = nil
			}
			again := sends(m, at(2), Event{Kind: Replied, Call: c, Reply: Reply{OK: c.Cell > 0}})
			if !slices.Equal(again, want) {
				t.Errorf("kept for %v, cell %d is asked for %+v after its answer, want %+v", d, c.Cell, again, want)
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
	for _, c := range sends(m, at(1), unlock) {
		m.Step(at(2), Event{Kind: Replied, Call: c, Reply: lost})
		if again, times := m.Retry(c, true); times == 0 || again.Do != ReleaseAndLeave || !again.All || again.Cell != c.Cell || !again.Successor {
			t.Errorf("%+v is sent again as %+v", c, again)
		}
	}
	release := Call{Do: Release, Cell: 1, Attempt: 1}
	if again, times := again(t, nil).Retry(release, true); times == 0 || again != release {
		t.Errorf("before the lock is acquired, %+v is sent again as %+v: the waiter would lose its place", release, again)
	}
}

// The same, if a renewal finds the key gone and restores it: a plain Release would then succeed,
// and leave the waiter queued.
func TestAHoldThatWasForgottenLeavesTheQueue(t *testing.T) {
	m := inherited()
	plays(m, extend, ofSuccessor(renewal(0, Reply{})), ofSuccessor(renewal(1, grant)))
	control(t, m, Holding)
	fx := plays(m, answer(Restore, 0, Reply{OK: true}), unlock)
	want(t, fx, 0, ReleaseAndLeave)
	want(t, fx, 1, Release)
}

// A renewal without a quorum is repeated long before the next one would be due.
func TestALateRenewalIsTriedAgainSoon(t *testing.T) {
	m := holding(0, 1)
	plays(m, answer(Acquire, 2, heldByOther))
	due := m.Wake()
	sends(m, Time{due, due}, Event{Kind: Tick}, renewal(0, lost), renewal(1, lost), renewal(2, lost))
	if wait := m.Wake() - due; m.Phase() != Holding || wait <= 0 || wait > m.cfg.TTL/50 {
		t.Errorf("phase %d, looks again after %v, want %v at most", m.Phase(), wait, m.cfg.TTL/50)
	}
}

// A release of the attempt's own owner does not concern its successor.
func TestOnlyTheReleaseOfTheHoldIsSentAgain(t *testing.T) {
	m := inherited()
	want(t, plays(m, answer(ReleaseAndLeave, 0, Reply{})), 0)
	want(t, plays(m, unlock, ofSuccessor(answer(Release, 0, Reply{}))), 0, ReleaseAndLeave)
}

// A cell may hand over to the successor of an earlier attempt, if the last one did not reach it.
func TestSuccessorReleasesEarlierHandoffs(t *testing.T) {
	m := start(2, 3)
	m.attempt = 2
	for cell, r := range []Reply{heldByOther, heldByOther, unsent} {
		plays(m, reply(Acquire, int32(cell), 2, r))
	}
	late, release := handed(2, 1, 8), []Call{{Do: Release, Cell: 2, Attempt: 1, Successor: true}}
	if fx := plays(m, late, handed(0, 2, 9), handed(1, 2, 9)); !slices.Equal(fx.Calls, release) {
		t.Errorf("%+v", fx.Calls)
	}
	if fx := plays(m, late); !slices.Equal(fx.Calls, release) {
		t.Errorf("once more: %+v", fx.Calls)
	}
}

// A raise for the attempt's own owner does not count for its successor.
func TestALateRaiseOfTheOwnOwnerDoesNotCountForItsSuccessor(t *testing.T) {
	m := start(3, 5)
	for cell, r := range []Reply{{OK: true, Token: 5}, {OK: true, Token: 6}, {OK: true, Token: 7}, heldByOther, heldByOther} {
		plays(m, answer(Acquire, int32(cell), r))
	}
	plays(m, answer(Raise, 0, Reply{}), handed(1, 1, 8), handed(2, 1, 9), handed(3, 1, 20))
	if plays(m, answer(Raise, 1, Reply{OK: true}), ofSuccessor(answer(Raise, 2, Reply{OK: true}))); m.Phase() == Holding {
		t.Error("it holds with a token that only two cells have")
	}
}

// The own owner's grant is released if the successor won, and no quorum has the token.
func TestASuccessorThatCannotAgreeLeavesNothingOfItsAttempt(t *testing.T) {
	m := start(2, 3)
	fx := plays(m, answer(Acquire, 0, grant), handed(1, 1, 8), handed(2, 1, 9), ofSuccessor(answer(Raise, 1, lost)))
	if !slices.ContainsFunc(fx.Calls, func(c Call) bool { return c.Cell == 0 && c.Do == Release && !c.Successor && c.Attempt == 1 }) {
		t.Error("nothing releases the attempt's own owner at the first cell")
	}
}

// A holder is in no queue. A renewal finds cells that did not hand over, and the waiter leaves
// their queues, whatever they answered before.
func TestASuccessorLeavesTheQueuesOfAllCellsThatDidNotHandOver(t *testing.T) {
	for name, answers := range map[string]struct{ before, after []Event }{ // the others refuse
		"queued":          {before: []Event{reply(Acquire, 4, 2, heldByOther)}},
		"free":            {[]Event{reply(Acquire, 4, 2, grant), reply(Acquire, 3, 2, grant)}, []Event{reply(Yield, 4, 2, Reply{First: true})}},
		"not asked again": {before: []Event{reply(Acquire, 4, 2, unsent)}},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(3, 5)
			m.attempt = 2 // the first one has reached all cells
			for i := range m.Cells {
				m.Cells[i].reached = true
			}
			plays(m, answers.before...)
			for cell := range int32(3) {
				plays(m, reply(Acquire, cell, 2, heldByOther))
			}
			plays(m, answers.after...)
			for cell := range int32(3) {
				plays(m, handed(cell, 2, 9))
			}
			control(t, m, Holding)
			e := ofSuccessor(renewal(4, Reply{}))
			e.Call.Attempt = 2
			if got := asks(plays(m, extend, e).Calls, 4); len(got) == 0 || got[0] != Leave {
				t.Errorf("the cell is asked for %v, want a leave", got)
			}
		})
	}
}

// The next attempt takes over handoffs without a quorum. If it misses the node, but its own
// successor gets the lock from the others, the earlier handoff is released.
func TestAHandoffToThePreviousAttemptIsReleased(t *testing.T) {
	m := start(2, 3)
	refused(m, 3)
	plays(m, handed(0, 1, 8))
	m.Step(at(grace), Event{Kind: Tick})
	wantAsking(t, m, 2)
	all := sends(m, at(grace), reply(Acquire, 1, 2, heldByOther), reply(Acquire, 2, 2, heldByOther), handed(1, 2, 9), handed(2, 2, 9))
	control(t, m, Holding)
	if !slices.ContainsFunc(all, func(c Call) bool { return c.Cell == 0 && c.Do == Release && c.Successor && c.Attempt == 1 }) {
		t.Errorf("node 1 keeps what it handed to the successor of attempt 1: %+v", all)
	}
}

// Two addresses of one server are never a quorum, even of a free lock. The waiter must ask rarely.
func TestAWaiterThatNeedsTwoAddressesOfOneServerAsksRarely(t *testing.T) {
	m := start(2, 2)
	plays(m, answer(Acquire, 0, grant), answer(Acquire, 1, Reply{Ours: true}), answer(Yield, 0, Reply{First: true}), answer(Yield, 1, Reply{First: true}))
	waitsWithin(t, m, afterFailure/2, refresh)
}

// The Yield of a TryLock may run at a slow node after the call's last release, which used a new
// connection. It queues the waiter again, and only its pending release can remove the waiter.
func TestWhatIsSentAgainForAYieldLeavesTheQueueIfTheCallIsOver(t *testing.T) {
	failed := answer(Yield, 0, lost)
	for _, tt := range []struct {
		tries, cancelled bool
		phase            Phase
		want             Call
	}{
		{true, false, Over, Call{Do: ReleaseAndLeave, Attempt: 1, All: true}},
		{false, true, Over, Call{Do: ReleaseAndLeave, Attempt: 1, All: true}},
		{false, false, Waiting, Call{Do: Release, Attempt: 1}}, // to leave would lose the waiter's place
	} {
		m := start(2, 3)
		m.cfg.Tries = tt.tries
		plays(m, answer(Acquire, 0, grant), answer(Acquire, 1, heldByOther), answer(Acquire, 2, Reply{Holder: "another:1"}))
		control(t, m, Yielding)
		if tt.cancelled {
			plays(m, cancel)
		}
		m.Step(at(m.cfg.NodeTimeout*2), failed)
		if again, times := m.Retry(failed.Call, true); m.Phase() != tt.phase || times == 0 || again != tt.want {
			t.Errorf("%+v: in phase %s a Yield that failed is sent again as %+v", tt, m.Phase(), again)
		}
	}
}

// If many share a lock and a caller waits to have it alone, the nodes refuse a reader without a
// name. A TryRLock does not ask again.
func TestATryThatIsRefusedWithoutANameIsOver(t *testing.T) {
	m := start(2, 3)
	m.cfg.Tries = true
	plays(m, answer(Acquire, 0, Reply{TTL: time.Second}))
	wantFailed(t, plays(m, answer(Acquire, 1, Reply{TTL: time.Second})), Held)
}

// Leases that begin together are not renewed together, but some of them share a write.
func TestFirstRenewalsAreSpread(t *testing.T) {
	const third = 10 * time.Second / 3
	times := make(map[time.Duration]bool)
	for seed := range uint64(5000) {
		m := New(config(Majority(1, 1)), millisecond, seed*0x9e3779b97f4a7c15+1)
		plays(m, Event{Kind: Start}, answer(Acquire, 0, grant))
		after := m.renew - at(0).Mono
		if after < third/2-third/renewSteps || after > third {
			t.Fatalf("the first renewal is %v after the grant", after)
		}
		times[after] = true
	}
	if len(times) < 60 || len(times) > 66 {
		t.Errorf("5,000 leases are renewed at %d times, want about 64", len(times))
	}
}
