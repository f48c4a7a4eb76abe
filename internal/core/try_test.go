package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Two contenders have a part each of a lock that needs more than a plain majority, and each hears
// its refusals first. If both gave up then, nobody would have the lock.
func TestATryLockThatHearsItsRefusalFirstIsNotRefusedYet(t *testing.T) {
	for _, tt := range []struct{ need, cells, refused int }{{2, 2, 1}, {3, 3, 1}, {3, 4, 2}, {4, 5, 2}} {
		config := &Config{Tree: Majority(tt.need, tt.cells), TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true}
		m := New(config, func(int) time.Duration { return time.Millisecond }, 1)
		asked := callsOf(m.Step(Time{}, Event{Kind: Start}))
		for i, c := range asked {
			r := Reply{OK: true, Token: 7}
			if i < tt.refused {
				r = Reply{TTL: time.Second, Holder: quorumlock.Owner("b:1.1")}
			}
			fx := m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: r})
			if fx.Outcome != Undecided {
				t.Errorf("%d of %d: after %d answers the outcome is %v", tt.need, tt.cells, i+1, fx.Outcome)
				break
			}
		}
	}
}

// While one other holder may have a whole quorum, the missing answers decide.
func TestATryLockIsRefusedOnceAHolderHasAQuorum(t *testing.T) {
	m := New(&Config{Tree: Majority(3, 4), TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true}, func(int) time.Duration { return time.Millisecond }, 1)
	for i, c := range callsOf(m.Step(Time{}, Event{Kind: Start}))[:3] {
		fx := m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{TTL: time.Second, Holder: "b:1.1"}})
		if failed := fx.Outcome == Failed; failed != (i == 2) {
			t.Errorf("after %d answers: outcome %v", i+1, fx.Outcome)
		}
	}
}

// try returns a TryLock that needs need of the cells.
func try(need, cells int, trip time.Duration) *Machine {
	return New(&Config{Tree: Majority(need, cells), TTL: 10 * time.Second, NodeTimeout: 33 * time.Millisecond, Renew: true, Tries: true}, func(int) time.Duration { return trip }, 1)
}

// play plays a TryLock to its end, for a minute at most. Answers take trip; a nil one never comes.
func play(m *Machine, trip time.Duration, answer func(Call) *Reply) *Effects {
	var now Time
	fx := m.Step(now, Event{Kind: Start})
	for fx.Outcome == Undecided && now.Mono < time.Minute {
		calls := callsOf(fx)
		now.Mono += trip
		now.Boot += trip
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

// refused plays a TryLock that one cell always refuses, to its end. by returns the holder there.
func refused(m *Machine, trip time.Duration, cell int, by func(Call) quorumlock.Owner) *Effects {
	return play(m, trip, func(c Call) *Reply {
		if c.Do == Acquire && int(c.Cell) == cell {
			return &Reply{TTL: time.Second, Holder: by(c)}
		}
		return &Reply{OK: true, Token: 7}
	})
}

// An ended hold of this client is not in the way. But if another caller had the lock during the
// call, or was about to take it, that is the reason.
func TestATryLockThatMetAnotherHolderSaysSoThoughItMetItsOwnClientLast(t *testing.T) {
	// others counts the attempts that another caller refuses.
	for others, want := range map[int32]Reason{0: NoQuorum, 1: Held} {
		for _, free := range []bool{false, true} { // or has another one first in the queue
			fx := play(try(3, 3, time.Millisecond), time.Millisecond, func(c Call) *Reply {
				if c.Do == Acquire && c.Cell == 0 {
					ended := c.Attempt > others
					return &Reply{TTL: time.Second, Holder: "b:1.1", Ended: ended, Free: free && !ended}
				}
				return &Reply{OK: true, Token: 7}
			})
			if fx.Outcome != Failed || fx.Reason != want {
				t.Errorf("refused %d times by somebody else, free %v: outcome %v for %v, want it to fail for %v", others, free, fx.Outcome, fx.Reason, want)
			}
		}
	}
}

// A slow node does not hold the lock. Here only the last hold of the same client refuses the call,
// because its release is late.
func TestATryLockThatMetItsOwnClientBesideSlowNodesHasNoQuorum(t *testing.T) {
	fx := play(try(2, 3, time.Millisecond), time.Millisecond, func(c Call) *Reply {
		switch {
		case c.Do != Acquire:
			return new(Reply)
		case c.Cell == 0, c.Cell == 1 && c.Attempt > 1:
			return &Reply{TTL: time.Second, Holder: "a:1.1", Ended: true}
		case c.Attempt == 1:
			return nil
		}
		return &Reply{Err: errNoAnswer}
	})
	if fx.Outcome != Failed || fx.Reason != NoQuorum {
		t.Errorf("outcome %v for %v, want it to fail for want of a quorum", fx.Outcome, fx.Reason)
	}
}

// Two round trips to distant nodes may take a NodeTimeout. Contenders that give up then may leave
// the lock to nobody. But no attempt lasts longer than two NodeTimeouts after the call.
func TestATryLockMakesMoreThanTwoAttemptsWhereNodesAreFar(t *testing.T) {
	for _, tt := range []struct {
		trip time.Duration
		want int
	}{{time.Millisecond, 8}, {2 * time.Millisecond, 8}, {8 * time.Millisecond, 4}, {15 * time.Millisecond, 2}} {
		t.Run(tt.trip.String(), func(t *testing.T) {
			m := try(3, 3, tt.trip)
			fx := refused(m, tt.trip, 0, func(c Call) quorumlock.Owner { return quorumlock.Owner(fmt.Sprint("b:1.", c.Attempt)) })
			if fx.Outcome != Failed || int(m.attempt) != tt.want {
				t.Errorf("outcome %v after %d attempts, want %d", fx.Outcome, m.attempt, tt.want)
			}
		})
	}
}

// The last attempt ends two NodeTimeouts after the call. Agreement on its token may take one more.
func TestATryLockEndsWithinThreeNodeTimeouts(t *testing.T) {
	const limit = 33 * time.Millisecond
	// slow is the round trip of the last attempt.
	for _, slow := range []time.Duration{14 * time.Millisecond, limit} {
		m := New(&Config{Tree: Majority(3, 3), TTL: 10 * time.Second, NodeTimeout: limit, Renew: true, Tries: true}, func(int) time.Duration { return 8 * time.Millisecond }, 1)
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
			now.Mono += after
			now.Boot += after
			if len(calls) == 0 {
				fx = m.Step(now, Event{Kind: Tick})
				continue
			}
			for i, c := range calls {
				r := Reply{OK: true, Token: uint64(7 + i)}
				if c.Do == Acquire && i == 0 && attempts < 4 {
					r = Reply{TTL: time.Second, Holder: quorumlock.Owner(fmt.Sprint("b:1.", attempts))}
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
			m := New(&Config{Tree: tt.tree, TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true}, func(int) time.Duration { return time.Millisecond }, 1)
			fx := refused(m, time.Millisecond, tt.tree.Cells()-1, func(c Call) quorumlock.Owner {
				if c.Contends != (tt.contends && c.Attempt > 1) {
					t.Errorf("attempt %d contends: %v", c.Attempt, c.Contends)
				}
				return quorumlock.Owner(tt.met[min(int(c.Attempt), len(tt.met))-1:][:1] + ":1.1")
			})
			if fx.Outcome != Failed || fx.Reason != Held || int(m.attempt) != len(tt.met) {
				t.Errorf("outcome %v, reason %v after %d attempts, want %d and Held", fx.Outcome, fx.Reason, m.attempt, len(tt.met))
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
		m := New(&Config{Tree: Majority(tt.nodes/2+1, tt.nodes), TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true}, func(int) time.Duration { return time.Millisecond }, 1)
		now := Time{Mono: time.Millisecond, Boot: time.Millisecond}
		for i, c := range callsOf(m.Step(Time{}, Event{Kind: Start}))[:len(tt.refused)+tt.granted] {
			r := Reply{OK: true, Token: 7}
			if i < len(tt.refused) {
				r = Reply{TTL: time.Second, Holder: quorumlock.Owner(tt.refused[i:i+1] + ":1.1"), Free: tt.refused[i] == '-'}
			}
			m.Step(now, Event{Kind: Replied, Call: c, Reply: r})
		}
		for m.Phase() != Asking || m.attempt == 1 {
			now.Mono, now.Boot = m.Wake(), m.Wake()
			if now.Mono == 0 {
				t.Fatalf("%+v: no other attempt", tt)
			}
			for _, c := range callsOf(m.Step(now, Event{Kind: Tick})) {
				if c.Do == Acquire && c.Contends != tt.contends {
					t.Errorf("%+v: the next attempt contends: %v", tt, c.Contends)
				}
				if c.Do == Yield && int(c.Cell) < len(tt.refused)+tt.granted {
					m.Step(now, Event{Kind: Replied, Call: c, Reply: Reply{OK: true}})
				}
			}
		}
	}
}

// If no node answers, another attempt would not help.
func TestATryLockThatHearsNobodyMakesOneAttempt(t *testing.T) {
	m := try(2, 3, time.Millisecond)
	fx := play(m, time.Millisecond, func(Call) *Reply { return &Reply{Err: errNoAnswer} })
	if n, _ := m.Attempt(); n != 1 || fx.Outcome != Failed || fx.Reason != NoQuorum {
		t.Errorf("outcome %d after %d attempts, reason %d, want no quorum after the first", fx.Outcome, n, fx.Reason)
	}
}

// A key that is no lock will not become one, so the call fails at once.
func TestWhatIsNoLockEndsTheCall(t *testing.T) {
	m := start(2, 3)
	m.Step(at(0), answer(Acquire, 0, Reply{Err: errNoAnswer, NotALock: true}))
	if fx := m.Step(at(0), answer(Acquire, 1, Reply{Err: errNoAnswer, NotALock: true})); fx.Outcome != Failed || fx.Reason != NotALock {
		t.Errorf("outcome %d, reason %d, want it to fail as no lock", fx.Outcome, fx.Reason)
	}
}

// Two nodes disagree on the token, and the raise at one fails, or finds no key. The others are a
// quorum, and nobody is in the way, so the next attempt of a TryLock gets the lock.
func TestATryLockRidesOutARaiseThatFails(t *testing.T) {
	for name, raised := range map[string]Reply{"no answer": {Err: errNoAnswer}, "not sent": {Err: errNoAnswer, Unsent: true}, "no key": {}} {
		t.Run(name, func(t *testing.T) {
			m := try(2, 3, time.Millisecond)
			down := false // cell 0, from the raise on
			fx := play(m, time.Millisecond, func(c Call) *Reply {
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
