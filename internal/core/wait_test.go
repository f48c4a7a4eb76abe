package core

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// waits checks that a machine waits until a time.
func waits(t *testing.T, m *Machine, want time.Duration) {
	t.Helper()
	waitsWithin(t, m, want, want)
}

func waitsWithin(t *testing.T, m *Machine, least, most time.Duration) {
	t.Helper()
	if got := m.Wake() - at(0).Mono; m.Phase() != Waiting || got < least || got > most {
		t.Errorf("phase %s, the next attempt is due at %v, want %v to %v", m.Phase(), got, least, most)
	}
}

// A waiter looks again when the keys of its refusals expire, also those of late ones. A release
// that leaves the lock to Redisson's clients for a moment calls nobody a second time.
func TestAWaiterLooksWhenTheKeysOfLateRefusalsExpire(t *testing.T) {
	const window = 20 * ms
	for name, tree := range map[string]Tree{"3 of 4": Majority(3, 4), "a MultiLock": Every([]Tree{Majority(2, 3), Majority(2, 3)})} {
		t.Run(name, func(t *testing.T) {
			m := begin(config(tree))
			for cell := range m.Cells {
				plays(m, answer(Acquire, int32(cell), Reply{Free: true, TTL: window, Position: 1, Holder: "b:0"}))
			}
			waitsWithin(t, m, window, 2*window)
		})
	}
	// The other cells grant after the refusal, and the waiter yields them.
	m := start(3, 3)
	plays(m, answer(Acquire, 0, Reply{Free: true, TTL: window, Position: 1, Holder: "b:0"}))
	for cell := int32(1); cell < 3; cell++ {
		plays(m, answer(Acquire, cell, Reply{OK: true, Token: 7}))
	}
	plays(m, answer(Yield, 1, Reply{OK: true, First: true}), answer(Yield, 2, Reply{OK: true, First: true}))
	waitsWithin(t, m, window, 2*window)
}

// A Redisson client has had one cell in a window, and its release calls the waiter. The windows of
// the other cells end without a message.
func TestACalledWaiterLooksWhenTheOtherKeysExpire(t *testing.T) {
	const window = 20 * ms
	for name, tree := range map[string]Tree{"3 of 3": Majority(3, 3), "a MultiLock": Every([]Tree{Majority(2, 2), Majority(1, 1)})} {
		t.Run(name, func(t *testing.T) {
			m := begin(config(tree))
			plays(m, answer(Acquire, 0, Reply{TTL: 10 * time.Second, Position: 1, Holder: "b:0"}))
			for cell := int32(1); cell < 3; cell++ {
				plays(m, answer(Acquire, cell, Reply{Free: true, TTL: window, Position: 1, Holder: "b:0"}))
			}
			waits(t, m, refresh)
			plays(m, Event{Kind: Turn, Cell: 0})
			waitsWithin(t, m, window, 2*window)
		})
	}
}

// The messages of a release arrive within a round trip to the nearest quorum, if the releaser is no
// further away. A waiter that asks earlier wastes an attempt.
func TestAWaiterIsPatientForARoundTripToTheNearestQuorum(t *testing.T) {
	for _, tt := range []struct {
		what  string
		trips []time.Duration
		want  time.Duration
	}{
		{"near", []time.Duration{ms, ms, ms, ms, ms}, grace},
		{"far", []time.Duration{50 * ms, 50 * ms, 50 * ms, 50 * ms, 50 * ms}, 50 * ms},
		{"two far", []time.Duration{50 * ms, ms, ms, 50 * ms, ms}, grace},
		{"at different distances", []time.Duration{50 * ms, ms, 2 * ms, 20 * ms, 10 * ms}, 10 * ms},
		{"two never answered", []time.Duration{0, 50 * ms, 20 * ms, 0, 10 * ms}, 50 * ms},
		{"only two ever answered", []time.Duration{0, 50 * ms, 0, 0, 10 * ms}, 50 * ms},
		{"too far, or measured during a stall", []time.Duration{ms, 50 * ms, 400 * ms, 400 * ms, 400 * ms}, maxGrace},
	} {
		t.Run(tt.what, func(t *testing.T) {
			m := start(3, 5)
			m.trip = func(cell int) time.Duration { return tt.trips[cell] }
			refused(m, 5)
			m.Step(at(ms), handed(1, 1, 8))
			waits(t, m, ms+tt.want)
		})
	}
}

// Far back in a queue, a waiter refreshes rarely. As the next one, it does so like the first.
func TestAWaiterThatIsNextRefreshesSooner(t *testing.T) {
	const far = 4
	c := config(Majority(2, 3))
	c.TTL = time.Minute
	m := New(c, millisecond, 1)
	asks := func(kind EventKind, now, want time.Duration) {
		t.Helper()
		m.Step(at(now), Event{Kind: kind})
		for cell := range int32(3) {
			m.Step(at(now), reply(Acquire, cell, m.attempt, Reply{Holder: "other:1", TTL: time.Minute, Position: far * nearPositions}))
		}
		waits(t, m, now+want)
	}
	asks(Start, 0, refresh) // the first attempt has no position
	asks(Tick, refresh, far*refresh)
	m.Step(at(refresh+ms), Event{Kind: Next})
	waits(t, m, 2*refresh)
	asks(Tick, 2*refresh, refresh)
}

// A MultiLock far back in one queue is the first in another, of a free member. It refreshes rarely
// until that member calls it, in whatever state the cell is. Otherwise N of them with a member of
// their own ask N times as often. The node takes it for dead a second after the call.
func TestAFreeMemberNeedsNoRefreshUntilItCalls(t *testing.T) {
	const far = 4
	for name, tt := range map[string]struct {
		early, late []Event // before and after the reply to the yield
		slots       bool
		due         time.Duration
	}{
		"not called":               {due: (1 + far) * refresh},
		"called":                   {late: []Event{{Kind: Turn, Cell: 1}}, due: 2 * refresh},
		"called before the reply":  {early: []Event{{Kind: Turn, Cell: 1}}, due: 2 * refresh},
		"called for a slot":        {late: []Event{{Kind: TurnForSlot, Cell: 1, Slot: 2}}, slots: true, due: 2 * refresh},
		"taken by another, called": {late: []Event{{Kind: Taken, Cell: 1}, {Kind: Turn, Cell: 1}}, due: 2 * refresh},
		"called, taken by another": {late: []Event{{Kind: Turn, Cell: 1}, {Kind: Taken, Cell: 1}}, due: 2 * refresh},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(Every([]Tree{Majority(1, 1), Majority(1, 1)}))
			c.TTL = time.Minute
			if tt.slots {
				c.Slots = []Slots{{1, 1, 3}}
			}
			m := begin(c)
			step := func(now time.Duration, all ...Event) {
				for _, e := range all {
					m.Step(at(now), e)
				}
			}
			asks := func(now time.Duration, attempt int32, between ...Event) {
				step(now, reply(Acquire, 0, attempt, Reply{Holder: "other:1", TTL: time.Minute, Position: far * nearPositions}))
				step(now, reply(Acquire, 1, attempt, Reply{OK: true, Token: 1}))
				step(now, between...)
				step(now, reply(Yield, 1, attempt, Reply{OK: true, First: true}))
			}
			asks(0, 1) // the first attempt has no position
			step(refresh, Event{Kind: Tick})
			asks(refresh, 2, tt.early...)
			step(refresh, tt.late...)
			waits(t, m, tt.due)
		})
	}
}

// More handoffs of a minority do not prolong the wait for the rest.
func TestAWaitForMissingVotesIsNotProlonged(t *testing.T) {
	m := start(3, 5)
	refused(m, 5)
	for cell := range int32(2) {
		m.Step(at(time.Duration(cell)*ms), handed(cell, 1, 8))
		waits(t, m, grace)
	}
}

// Redisson's clients take and release the cells of a lock one after another. A waiter with one cell
// waits for each of the others, and asks after the last call. Earlier calls do not count.
func TestAWaiterWithOneCellWaitsForEachOfTheOthers(t *testing.T) {
	m := start(3, 3)
	m.trip = func(int) time.Duration { return 5 * ms }
	refused(m, 2)
	plays(m, answer(Acquire, 2, grant), answer(Yield, 2, Reply{First: true}), Event{Kind: Turn, Cell: 1}) // it is free
	for _, e := range []Event{{Kind: Taken, Cell: 1}, {Kind: Taken, Cell: 2}, handed(0, 1, 8)} {
		if fx := m.Step(at(ms), e); len(fx.Calls) > 0 {
			t.Errorf("after %+v it asks for %v", e, fx.Calls)
		}
	}
	waits(t, m, 16*ms)
	m.Step(at(11*ms), Event{Kind: Turn, Cell: 1})
	waits(t, m, 26*ms)
	m.Step(at(11*ms), Event{Kind: Turn, Cell: 2})
	control(t, m, Asking)
}

// Handoffs that are no quorum wake a waiter again and again, for instance while readers hand each
// other their shares. It slows down.
func TestAWaiterThatIsWokenInVainSlowsDown(t *testing.T) {
	m, now := start(2, 3), time.Duration(0)
	wait := func() time.Duration {
		attempt, _ := m.Attempt()
		for cell := range int32(3) {
			m.Step(at(now), Event{Kind: Replied, Call: Call{Do: Acquire, Cell: cell, Attempt: attempt}, Reply: heldByOther})
		}
		m.Step(at(now), handed(0, attempt, 7))
		d := m.Wake() - at(now).Mono
		now += d
		m.Step(at(now), Event{Kind: Tick})
		return d
	}
	first := wait()
	for range eagerWakeUps - 1 {
		if d := wait(); d != first {
			t.Fatalf("it waits %v, want %v as at first", d, first)
		}
	}
	for range 20 {
		wait()
	}
	if d := wait(); d < 16*first || d > refresh {
		t.Errorf("after many handoffs in vain it waits %v, want 16 times %v to %v", d, first, refresh)
	}
}

// A call follows a release. So a waiter asks at once after calls, however many attempts have lost.
// Redisson's clients, for instance, hold the lock for moments, one after another.
func TestAWaiterThatLosesRacesAsksAfterEachRelease(t *testing.T) {
	m := start(2, 3)
	for attempt := int32(1); attempt < 4*eagerWakeUps; attempt++ {
		for cell := range int32(3) {
			plays(m, reply(Acquire, cell, attempt, heldByOther))
		}
		plays(m, Event{Kind: Turn, Cell: 0}, Event{Kind: Turn, Cell: 1})
		if n, _ := m.Attempt(); n != attempt+1 {
			t.Fatalf("called after attempt %d, it waits until %v", attempt, m.Wake()-at(0).Mono)
		}
	}
}

// A client that takes the cells in order needs a round trip for each. So once it has
// taken one, a called waiter waits longer for further calls.
func TestACalledWaiterWaitsLongerForAClientThatTakesCellsInOrder(t *testing.T) {
	m := start(3, 5)
	m.trip = func(int) time.Duration { return 10 * ms }
	refused(m, 5)
	plays(m, Event{Kind: Turn, Cell: 0})
	waits(t, m, 10*ms)
	plays(m, Event{Kind: Taken, Cell: 0}, Event{Kind: Turn, Cell: 1})
	waits(t, m, 30*ms)
}

// A waiter with a grant that came too late pauses, though all nodes are free for it.
func TestAWaiterPausesAfterALateGrant(t *testing.T) {
	m := start(2, 3)
	late := config(Tree{}).TTL
	for cell := range int32(3) {
		m.Step(at(late), answer(Acquire, cell, grant))
	}
	control(t, m, Yielding)
	for cell := range int32(3) {
		m.Step(at(late), answer(Yield, cell, Reply{OK: true, First: true}))
	}
	waitsWithin(t, m, late+afterFailure/2, late+refresh)
}

// Attempts on free cells alone become rarer. A released slot, a handoff, or a wait without enough
// free cells ends that.
func TestAttemptsOnFreeCellsAloneBecomeRarer(t *testing.T) {
	const enough = 3
	for name, tt := range map[string]struct {
		event Event
		free  int32 // cells at the next attempt
		wait  time.Duration
	}{
		"undisturbed":           {Event{Kind: Tick}, enough, maxGrace},
		"a call":                {Event{Kind: Turn, Cell: 4}, enough, maxGrace},
		"a released slot":       {Event{Kind: TurnForSlot, Cell: 4, Slot: 1}, enough, grace},
		"a handoff":             {handed(4, 0, 8), enough, grace},
		"too few cells at once": {Event{Kind: Tick}, enough - 1, grace},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSemaphore(5, 2, false)
			m.attempt = eagerMoves
			now := time.Duration(0)
			refuse := func(free int32) {
				for cell := range int32(5) {
					m.Step(at(now), reply(Acquire, cell, m.attempt, Reply{Elsewhere: cell < free, Slot: cell % 2, Holder: "b:0", TTL: time.Minute}))
				}
			}
			next := func(e Event, free int32) {
				if now = max(now, m.Wake()-at(0).Mono); e.Kind == Handoff {
					e.Attempt = m.attempt
				}
				m.Step(at(now), e)
				refuse(free)
			}
			for refuse(enough); now < 3*time.Second; {
				next(Event{Kind: Tick}, enough)
			}
			if next(tt.event, tt.free); tt.free < enough {
				next(Event{Kind: Tick}, enough)
			}
			waits(t, m, now+tt.wait)
		})
	}
}

// A pause lasts for 32 round trips, and leaves at least four. After it, there is no minimum.
func TestPauseOfCallersWithLittleTime(t *testing.T) {
	for _, tt := range []struct {
		since, left, pause time.Duration
		ok                 bool
	}{
		{0, 36 * ms, 32 * ms, true},
		{0, 35 * ms, 32 * ms, false},
		{30 * ms, 6 * ms, 2 * ms, true},
		{32 * ms, ms, 0, true},
		{40 * ms, ms, 0, true},
	} {
		if pause, ok := LostAt(time.Second).Pause(time.Second+tt.since, tt.left, ms); pause != tt.pause || ok != tt.ok {
			t.Errorf("%v after a caller gave up, with %v left: %v and %v, want %v and %v", tt.since, tt.left, pause, ok, tt.pause, tt.ok)
		}
	}
}
