package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// A waiter looks again when the keys of its refusals expire, also those of late ones. A release
// that leaves the lock to Redisson's clients for a moment calls nobody a second time.
func TestAWaiterLooksWhenTheKeysOfLateRefusalsExpire(t *testing.T) {
	const window = 20 * time.Millisecond
	for name, tree := range map[string]Tree{
		"3 of 4":      Majority(3, 4),
		"a MultiLock": Every([]Tree{Majority(2, 3), Majority(2, 3)}),
	} {
		t.Run(name, func(t *testing.T) {
			m := New(&Config{Tree: tree, TTL: 10 * time.Second, HandTTL: 9 * time.Second, NodeTimeout: time.Second, Renew: true}, func(int) time.Duration { return time.Millisecond }, 1)
			now := Time{Mono: time.Second, Boot: time.Second}
			for _, c := range callsOf(m.Step(now, Event{Kind: Start})) {
				m.Step(now, Event{Kind: Replied, Call: c, Reply: Reply{Free: true, TTL: window, Position: 1, Holder: quorumlock.Owner("b:0")}})
			}
			if due := m.Wake() - now.Mono; m.Phase() != Waiting || due < window || due > 2*window {
				t.Errorf("phase %d, the next attempt is due after %v", m.Phase(), due)
			}
		})
	}
}

// The messages of a release arrive within a round trip to the nearest quorum, if the releaser is no
// further away. A waiter that asks earlier wastes an attempt.
func TestAWaiterIsPatientForARoundTripToTheNearestQuorum(t *testing.T) {
	ms := time.Millisecond
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
			c := &Config{Tree: Majority(3, 5), TTL: 10 * time.Second, HandTTL: 1800 * ms, NodeTimeout: time.Second, Renew: true}
			m := New(c, func(cell int) time.Duration { return tt.trips[cell] }, 1)
			m.Step(at(0), Event{Kind: Start})
			for cell := range int32(5) {
				m.Step(at(0), answer(Acquire, cell, heldByOther))
			}
			m.Step(at(ms), Event{Kind: Handoff, Cell: 1, Attempt: 1, Token: 8})
			if got := m.Wake() - at(ms).Mono; m.Phase() != Waiting || got != tt.want {
				t.Errorf("phase %d, the next attempt is due after %v, want %v", m.Phase(), got, tt.want)
			}
		})
	}
}

// Far back in a queue, a waiter refreshes rarely. As the next one, it does so like the first.
func TestAWaiterThatIsNextRefreshesSooner(t *testing.T) {
	const ms, far = time.Millisecond, 4
	m := New(&Config{Tree: Majority(2, 3), TTL: time.Minute, HandTTL: 1800 * ms, NodeTimeout: time.Second, Renew: true}, func(int) time.Duration { return ms }, 1)
	attempt, now := int32(0), at(0)
	asks := func(e EventKind, want time.Duration) {
		t.Helper()
		m.Step(now, Event{Kind: e})
		attempt++
		for cell := range int32(3) {
			m.Step(now, Event{Kind: Replied, Call: Call{Do: Acquire, Cell: cell, Attempt: attempt}, Reply: Reply{Holder: "other:1", TTL: time.Minute, Position: far * nearPositions}})
		}
		if got := m.Wake() - now.Mono; m.Phase() != Waiting || got != want {
			t.Errorf("phase %d, it refreshes after %v, want %v", m.Phase(), got, want)
		}
	}
	asks(Start, refresh) // the first attempt has no position
	now = at(refresh)
	asks(Tick, far*refresh)
	now = at(refresh + ms)
	m.Step(now, Event{Kind: Next})
	if got, want := m.Wake(), at(2*refresh).Mono; got != want {
		t.Errorf("it refreshes at %v, want %v", got, want)
	}
	now = at(2 * refresh)
	asks(Tick, refresh)
}

// More handoffs of a minority do not prolong the wait for the rest.
func TestAWaitForMissingVotesIsNotProlonged(t *testing.T) {
	m := New(&Config{Tree: Majority(3, 5), TTL: 10 * time.Second, HandTTL: 1800 * time.Millisecond, NodeTimeout: time.Second, Renew: true}, func(int) time.Duration { return time.Millisecond }, 1)
	m.Step(at(0), Event{Kind: Start})
	for cell := range int32(5) {
		m.Step(at(0), answer(Acquire, cell, heldByOther))
	}
	for cell := range int32(2) {
		m.Step(at(time.Duration(cell)*time.Millisecond), Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 8})
		if got := m.Wake() - at(0).Mono; m.Phase() != Waiting || got != grace {
			t.Errorf("phase %d, the next attempt is due at %v, want %v", m.Phase(), got, grace)
		}
	}
}

// Redisson's clients take and release the cells of a lock one after another. A waiter with one cell
// waits for each of the others, and asks after the last call. Earlier calls do not count.
func TestAWaiterWithOneCellWaitsForEachOfTheOthers(t *testing.T) {
	const ms = time.Millisecond
	c := &Config{Tree: Majority(3, 3), TTL: 10 * time.Second, HandTTL: 1800 * ms, NodeTimeout: time.Second, Renew: true}
	m := New(c, func(int) time.Duration { return 5 * ms }, 1)
	m.Step(at(0), Event{Kind: Start})
	m.Step(at(0), answer(Acquire, 0, heldByOther))
	m.Step(at(0), answer(Acquire, 1, heldByOther))
	m.Step(at(0), answer(Acquire, 2, Reply{OK: true, Token: 7}))
	m.Step(at(0), answer(Yield, 2, Reply{First: true})) // it is free
	m.Step(at(0), Event{Kind: Turn, Cell: 1})
	for _, e := range []Event{{Kind: Taken, Cell: 1}, {Kind: Taken, Cell: 2}, {Kind: Handoff, Cell: 0, Attempt: 1, Token: 8}} {
		if fx := m.Step(at(ms), e); len(fx.Calls) > 0 {
			t.Errorf("after %+v it asks for %v", e, fx.Calls)
		}
	}
	for called, want := range []time.Duration{15 * ms, 25 * ms} {
		if got := m.Wake() - at(ms).Mono; m.Phase() != Waiting || got != want {
			t.Errorf("phase %d, with %d cells called it asks after %v, want %v", m.Phase(), called, got, want)
		}
		m.Step(at(11*ms), Event{Kind: Turn, Cell: int32(1 + called)})
	}
	if m.Phase() != Asking {
		t.Errorf("phase %d after the last call", m.Phase())
	}
}

// A cell that is taken again did not refuse, and a cell of a hold is not taken.
func TestOnlyACellThatWaitsIsTakenAgain(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(0), Event{Kind: Taken, Cell: 0})
	if got := m.Cells[0].State; got != Granted {
		t.Errorf("state %d of a cell that the machine holds", got)
	}
}
