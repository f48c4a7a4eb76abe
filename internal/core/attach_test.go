package core

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// attaching is a machine of an Attach at three cells, with a quorum of two.
func attaching() *Machine {
	c := config(Majority(2, 3))
	c.HandTTL, c.Source = 0, &Source{Token: 7, Counts: []uint64{7, 7, 7}}
	return begin(c)
}

var passedOn = Reply{OK: true, Token: 7, Left: time.Hour}

// The nodes keep the expiry of the Detach until the first renewal. It is sent even if automatic
// renewal is off.
func TestAnAttachedHoldLastsForWhatIsLeft(t *testing.T) {
	for left, valid := range map[time.Duration]time.Duration{time.Hour: 10 * time.Second, 4 * time.Second: 4 * time.Second, -1: 10 * time.Second} {
		m := attaching()
		m.cfg.Renew, m.cfg.Drift = false, quorumlock.Drift{}
		plays(m, answer(Attach, 0, passedOn), answer(Attach, 1, Reply{OK: true, Token: 7, Left: left}))
		if got := m.Remaining(at(0)); got != valid {
			t.Errorf("%v left: valid for %v, want %v", left, got, valid)
		}
		if wake, renews := m.Wake()-at(0).Mono, valid < 10*time.Second; renews != (wake < valid/2) {
			t.Errorf("%v left: wakes after %v", left, wake)
		}
		if valid == 10*time.Second {
			continue
		}
		m.Step(at(time.Second), answer(Attach, 2, Reply{OK: true, Token: 7, Left: time.Millisecond})) // late
		sent := sends(m, at(2*time.Second), Event{Kind: Tick})
		if len(sent) != 3 || sent[0].Do != Renew {
			t.Fatalf("%+v, want three renewals", sent)
		}
		for _, c := range sent {
			m.Step(at(2*time.Second), Event{Kind: Replied, Call: c, Reply: Reply{OK: true}})
		}
		if got := m.Remaining(at(2 * time.Second)); got != 10*time.Second || m.Wake() < at(10*time.Second).Mono {
			t.Errorf("renewed: valid for %v, wakes at %v", got, m.Wake())
		}
	}
}

// An Attach fails if the hold ends before its first renewal can arrive.
func TestAnAttachedHoldLastsForARenewal(t *testing.T) {
	for left, want := range map[time.Duration]Outcome{4 * time.Second: Acquired, 3 * time.Second: Failed} {
		m := attaching()
		m.cfg.Drift = quorumlock.Drift{}
		m.Step(at(time.Second), answer(Attach, 0, passedOn))
		fx := m.Step(at(time.Second), answer(Attach, 1, Reply{OK: true, Token: 7, Left: left + time.Second}))
		if want == Failed { // the last node may have more left
			control(t, m, Asking)
			fx = m.Step(at(time.Second), answer(Attach, 2, Reply{}))
		}
		if fx.Outcome != want || want == Failed && (fx.Reason != TooLate || len(fx.Calls) == 0 || fx.Calls[0].Do != Return) {
			t.Errorf("%v left: outcome %d, reason %d, %+v", left, fx.Outcome, fx.Reason, fx.Calls)
		}
	}
}

// An Attach survives one node with an early expiry, and a slow round trip with time left.
func TestAQuorumDecidesHowLongAnAttachedHoldLasts(t *testing.T) {
	for name, lefts := range map[string][]time.Duration{"an early end": {time.Millisecond, time.Hour, time.Hour}, "a slow client": {time.Hour, time.Hour}} {
		m := attaching()
		for i, left := range lefts {
			m.Step(at(4*time.Second), answer(Attach, int32(i), Reply{OK: true, Token: 7, Left: left}))
		}
		if control(t, m, Holding); m.ttl != m.cfg.TTL {
			t.Errorf("%s: valid for %v", name, m.ttl)
		}
	}
}

// An Attach that nobody wants any more frees no node, whenever it is closed and whatever the late
// answers say.
func TestAnAttachThatIsGivenBackFreesNothing(t *testing.T) {
	late := answer(Attach, 2, Reply{Moved: true, Rival: true, Of: 1, Holder: "p:1.1"})
	for name, events := range map[string][]Event{
		"in time": {{Kind: GiveBack}, late}, "after Close": {{Kind: Close}, {Kind: GiveBack}, late},
	} {
		t.Run(name, func(t *testing.T) {
			m := attaching()
			plays(m, answer(Attach, 0, passedOn), answer(Attach, 1, passedOn))
			control(t, m, Holding)
			sent := sends(m, at(0), events...)
			if slices.ContainsFunc(sent, func(c Call) bool { return c.Do != Return }) || len(sent) < 2 || m.Phase() != Over {
				t.Errorf("%+v, phase %s, want Returns only, two at least", sent, m.Phase())
			}
		})
	}
}

// A copy of a node, under the address of another one, does not count twice.
func TestOneCellOfTheFormerOwnerHasOneVote(t *testing.T) {
	moved := answer(Attach, 1, Reply{Moved: true, Rival: true, Of: 0, Holder: "p:1.1"})
	for name, copyFirst := range map[string]bool{"the copy first": true, "the copy last": false} {
		t.Run(name, func(t *testing.T) {
			m := attaching()
			last := moved
			if copyFirst {
				last = answer(Attach, 0, passedOn)
				for _, c := range sends(m, at(0), moved) {
					plays(m, Event{Kind: Replied, Call: c, Reply: passedOn})
				}
			} else {
				plays(m, answer(Attach, 0, passedOn))
			}
			if fx := plays(m, last); fx.Outcome == Acquired || m.Phase() != Asking {
				t.Errorf("outcome %v, phase %s", fx.Outcome, m.Phase())
			}
		})
	}
}

// A server that names the very cell that it was asked for is not asked again and again.
func TestACellThatHasNotMovedIsAskedOnce(t *testing.T) {
	if fx := plays(attaching(), answer(Attach, 0, Reply{Moved: true, Rival: true, Of: 0, Holder: "p:1.1"})); len(fx.Calls) > 0 {
		t.Errorf("%+v", fx.Calls)
	}
}
