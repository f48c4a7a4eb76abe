package core

import (
	"slices"
	"testing"
)

// attaching is a machine of an Attach at three cells, with a quorum of two.
func attaching() *Machine {
	c := config(Majority(2, 3))
	c.HandTTL, c.Source = 0, &Source{Token: 7, Counts: []uint64{7, 7, 7}}
	return begin(c)
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
			plays(m, answer(Attach, 0, grant), answer(Attach, 1, grant))
			control(t, m, Holding)
			sent := sends(m, at(0), events...)
			if slices.ContainsFunc(sent, func(c Call) bool { return c.Do != Return }) || len(sent) < 2 || m.Phase() != Over {
				t.Errorf("%+v, phase %s, want Returns only, two at least", sent, phases[m.Phase()])
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
				last = answer(Attach, 0, grant)
				for _, c := range sends(m, at(0), moved) {
					plays(m, Event{Kind: Replied, Call: c, Reply: grant})
				}
			} else {
				plays(m, answer(Attach, 0, grant))
			}
			if fx := plays(m, last); fx.Outcome == Acquired || m.Phase() != Asking {
				t.Errorf("outcome %v, phase %s", fx.Outcome, phases[m.Phase()])
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
