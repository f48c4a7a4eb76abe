package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

func trying(tree Tree) *Config {
	return &Config{Tree: tree, TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true}
}

// try returns a TryLock that needs need of the cells.
func try(need, cells int, trip time.Duration) *Machine {
	c := trying(Majority(need, cells))
	c.NodeTimeout = 33 * time.Millisecond
	return New(c, func(int) time.Duration { return trip }, 1)
}

func heldBy(owner string) Reply {
	return Reply{TTL: time.Second, Holder: quorumlock.Owner(owner + ":1.1")}
}

// play plays a TryLock to its end, for a minute at most. Answers take trip; a nil one never comes.
func play(m *Machine, trip time.Duration, answer func(Call) *Reply) *Effects {
	var now Time
	fx := m.Step(now, Event{Kind: Start})
	for fx.Outcome == Undecided && now.Mono < time.Minute {
		calls := callsOf(fx)
		now = now.Add(trip)
		if len(calls) == 0 {
			fx = m.Step(now, Event{Kind: Tick})
		}
		for _, c := range calls {
			if r := answer(c); r != nil {
				if fx = m.Step(now, Event{Kind: Replied, Call: c, Reply: *r}); fx.Outcome != Undecided {
					return fx
				}
			}
		}
	}
	return fx
}

// playRefused plays a TryLock that one cell always refuses, to its end. by returns the holder
// there.
func playRefused(m *Machine, trip time.Duration, cell int, by func(Call) string) *Effects {
	return play(m, trip, func(c Call) *Reply {
		r := grant
		if c.Do == Acquire && int(c.Cell) == cell {
			r = heldBy(by(c))
		}
		return &r
	})
}

func wantFailed(t *testing.T, fx *Effects, want Reason) {
	t.Helper()
	if fx.Outcome != Failed || fx.Reason != want {
		t.Errorf("outcome %d for reason %d, want it to fail for %d", fx.Outcome, fx.Reason, want)
	}
}

// A TryLock whose process stands still for longer than its bound takes the answers that have arrived
// meanwhile. Without answers, it waits for as long after the stop as the process was late, but at most
// a NodeTimeout. A process that is late again and again gets that time again, but not for ever.
func TestATryLockOfALateProcessTakesItsAnswers(t *testing.T) {
	const stop = time.Second
	for _, answered := range []bool{true, false} {
		m := try(2, 3, time.Millisecond)
		calls := callsOf(m.Step(Time{}, Event{Kind: Start}))
		now := Time{}.Add(stop)
		fx := m.Step(now, Event{Kind: Tick})
		if fx.Outcome != Undecided || m.Wake() != stop+m.cfg.NodeTimeout {
			t.Fatalf("outcome %d at the late tick, and the next at %v", fx.Outcome, m.Wake())
		}
		for _, c := range calls {
			if answered && fx.Outcome == Undecided {
				fx = m.Step(now, Event{Kind: Replied, Call: c, Reply: grant})
			}
		}
		if answered && m.phase != Agreeing && fx.Outcome != Acquired {
			t.Errorf("phase %v with all answers", m.phase)
		}
		late := 1
		for ; !answered && late < 100; late++ {
			now = Time{}.Add(m.Wake() + stop)
			if fx = m.Step(now, Event{Kind: Tick}); fx.Outcome != Undecided {
				break
			}
		}
		if !answered && (late != maxLateTicks || fx.Outcome != Failed || m.Lag() != maxLateTicks*(stop+m.cfg.NodeTimeout)-2*m.cfg.NodeTimeout) {
			t.Errorf("outcome %d after %d late ticks, and a lag of %v", fx.Outcome, late, m.Lag())
		}
	}
}

// A TryLock gives up at a tick in time, though an earlier one was late.
func TestATryLockThatWasLateOnceEndsInTime(t *testing.T) {
	m := try(2, 3, time.Millisecond)
	m.Step(Time{}, Event{Kind: Start})
	m.Step(Time{}.Add(time.Second), Event{Kind: Tick})
	wantFailed(t, m.Step(Time{}.Add(m.Wake()), Event{Kind: Tick}), HeldOrNone)
}

// A slow node does not hold the lock. Here only the last hold of the same client refuses the call,
// because its release is late.
func TestATryLockThatMetItsOwnClientBesideSlowNodesHasNoQuorum(t *testing.T) {
	wantFailed(t, play(try(2, 3, time.Millisecond), time.Millisecond, func(c Call) *Reply {
		switch {
		case c.Do != Acquire:
			return new(Reply)
		case c.Cell == 0, c.Cell == 1 && c.Attempt > 1:
			return &Reply{TTL: time.Second, Holder: "a:1.1", Ended: true}
		case c.Attempt == 1:
			return nil
		}
		return &lost
	}), NoQuorum)
}

// Two round trips to distant nodes may take a NodeTimeout. Contenders that give up then may leave
// the lock to nobody. But no attempt lasts longer than two NodeTimeouts after the call.
func TestATryLockMakesMoreThanTwoAttemptsWhereNodesAreFar(t *testing.T) {
	for trip, want := range map[time.Duration]int32{time.Millisecond: 8, 2 * time.Millisecond: 8, 8 * time.Millisecond: 4, 15 * time.Millisecond: 2} {
		m := try(3, 3, trip)
		fx := playRefused(m, trip, 0, func(c Call) string { return fmt.Sprint("b:", c.Attempt) })
		if fx.Outcome != Failed || m.attempt != want {
			t.Errorf("round trips of %v: outcome %v after %d attempts, want %d", trip, fx.Outcome, m.attempt, want)
		}
	}
}

// The last attempt ends two NodeTimeouts after the call. Agreement on its token may take one more.
func TestATryLockEndsWithinThreeNodeTimeouts(t *testing.T) {
	const limit = 33 * time.Millisecond
	// slow is the round trip of the last attempt.
	for _, slow := range []time.Duration{14 * time.Millisecond, limit} {
		m := try(3, 3, 8*time.Millisecond)
		var now Time
		fx := m.Step(now, Event{Kind: Start})
		for attempts := 0; fx.Outcome == Undecided && now.Mono <= 4*limit; {
			calls := callsOf(fx)
			after := 8 * time.Millisecond
			if m.Phase() == Asking && len(calls) > 0 {
				attempts++
			}
			switch {
			case m.Phase() == Agreeing:
				after = limit
			case attempts == 4:
				after = slow
			}
			if wake := m.Wake(); wake != 0 && wake < now.Mono+after {
				after, calls = wake-now.Mono, nil
			}
			if now = now.Add(after); len(calls) == 0 {
				fx = m.Step(now, Event{Kind: Tick})
			}
			for i, c := range calls {
				r := Reply{OK: true, Token: uint64(7 + i)}
				if c.Do == Acquire && i == 0 && attempts < 4 {
					r = heldBy(fmt.Sprint("b:", attempts))
				}
				fx = m.Step(now, Event{Kind: Replied, Call: c, Reply: r})
			}
		}
		if held := fx.Outcome == Acquired; held != (slow < limit) || fx.Outcome == Undecided || now.Mono > 3*limit {
			t.Errorf("answers after %v: outcome %v after %v", slow, fx.Outcome, now.Mono)
		}
	}
}

// An owner of a part of a lock may be yielding. An owner of a whole member most likely holds it.
func TestATryLockGivesWhoeverHasAPartTimeToGiveWay(t *testing.T) {
	for _, tt := range []struct {
		name     string
		tree     Tree
		met      string // in each attempt
		contends bool   // readers wait behind it, from its second attempt on
	}{
		{"4 of 4", Majority(4, 4), "bbb", true},
		{"4 of 4, another one first", Majority(4, 4), "abbb", true},
		{"every of two", Every([]Tree{Majority(2, 3), {}}), "bb", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New(trying(tt.tree), millisecond, 1)
			wantFailed(t, playRefused(m, time.Millisecond, tt.tree.Cells()-1, func(c Call) string {
				if c.Contends != (tt.contends && c.Attempt > 1) {
					t.Errorf("attempt %d contends: %v", c.Attempt, c.Contends)
				}
				return tt.met[min(int(c.Attempt), len(tt.met))-1:][:1]
			}), Held)
			if int(m.attempt) != len(tt.met) {
				t.Errorf("%d attempts, want %d", m.attempt, len(tt.met))
			}
		})
	}
}

// A call that has heard one node of three, and has no grant, does not know that the lock is free.
// Its next attempt must not keep out a reader that joins a holder.
//
// A call with a grant contends, though another node is silent. Otherwise a writer and a reader with
// one node each would meet until both are refused.
func TestATryLockThatHasHeardLittleDoesNotContend(t *testing.T) {
	for _, tt := range []struct {
		nodes    int
		refused  string // owners that refuse at the first nodes; -: free, with another first
		granted  int    // the next nodes; the others are silent
		contends bool
	}{{3, "b", 0, false}, {3, "b", 1, true}, {4, "b", 1, true}, {4, "bcd", 0, true}, {5, "bc", 0, false}, {5, "bcde", 0, true}, {5, "bb", 2, true}, {3, "-", 0, false}, {4, "-", 2, true}} {
		m, heard := begin(trying(Majority(tt.nodes/2+1, tt.nodes))), len(tt.refused)+tt.granted
		for cell := range heard {
			r := grant
			if cell < len(tt.refused) {
				r = heldBy(tt.refused[cell : cell+1])
				r.Free = tt.refused[cell] == '-'
			}
			m.Step(at(time.Millisecond), answer(Acquire, int32(cell), r))
		}
		for m.Phase() != Asking || m.attempt == 1 {
			now := Time{m.Wake(), m.Wake()}
			if now.Mono == 0 {
				t.Fatalf("%+v: no other attempt", tt)
			}
			for _, c := range sends(m, now, Event{Kind: Tick}) {
				if c.Do == Acquire && c.Contends != tt.contends {
					t.Errorf("%+v: the next attempt contends: %v", tt, c.Contends)
				}
				if c.Do == Yield && int(c.Cell) < heard {
					m.Step(now, Event{Kind: Replied, Call: c, Reply: Reply{OK: true}})
				}
			}
		}
	}
}

// A key that is no lock will not become one, so the call fails at once.
func TestWhatIsNoLockEndsTheCall(t *testing.T) {
	noLock := Reply{Err: errNoAnswer, WrongUse: true}
	wantFailed(t, plays(start(2, 3), answer(Acquire, 0, noLock), answer(Acquire, 1, noLock)), WrongUse)
}

// Two nodes disagree on the token, and the raise at one fails, or finds no key. The others are a
// quorum, and nobody is in the way, so the next attempt of a TryLock gets the lock.
func TestATryLockRidesOutARaiseThatFails(t *testing.T) {
	for name, raised := range map[string]Reply{"no answer": lost, "not sent": unsent, "no key": {}} {
		t.Run(name, func(t *testing.T) {
			down := false // cell 0, from the raise on
			fx := play(try(2, 3, time.Millisecond), time.Millisecond, func(c Call) *Reply {
				switch {
				case c.Do == Raise:
					down = raised.Err != nil
					return &raised
				case c.Cell == 0 && down:
					return nil // for a while: a TryLock must not wait
				case c.Do == Acquire && c.Attempt == 1 && c.Cell == 2:
					return nil // late
				case c.Do == Acquire && c.Attempt == 1:
					return &Reply{OK: true, Token: uint64(10 + c.Cell)}
				}
				return &Reply{OK: true, Token: 20}
			})
			if fx.Outcome != Acquired {
				t.Errorf("outcome %d for reason %d, want the lock", fx.Outcome, fx.Reason)
			}
		})
	}
}

// The last attempt of a TryLock ended without answers. The reason is that of the attempt before,
// unless a cell has failed.
func TestATryLockThatIsCutShortKeepsItsReason(t *testing.T) {
	for _, tt := range []struct {
		before Reason
		failed bool
		want   Reason
	}{{Held, false, Held}, {Held, true, HeldOrNone}, {NoQuorum, false, HeldOrNone}} {
		m := begin(trying(Majority(2, 3)))
		m.reason, m.Cells[0].failed = tt.before, tt.failed
		m.abandonAttempt(at(2*time.Second), HeldOrNone)
		wantFailed(t, &m.fx, tt.want)
	}
}
