package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// attaching is a machine of an Attach at three cells, with a quorum of two.
func attaching() *Machine {
	c := &Config{Tree: Majority(2, 3), TTL: 10 * time.Second, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true,
		Source: &Source{Token: 7, Counts: []uint64{7, 7, 7}}}
	m := New(c, func(int) time.Duration { return time.Millisecond }, 1)
	m.Step(at(0), Event{Kind: Start})
	return m
}

// attached is attaching with a quorum.
func attached(t *testing.T) *Machine {
	m := attaching()
	for cell := range int32(2) {
		m.Step(at(0), answer(Attach, cell, Reply{OK: true, Token: 7}))
	}
	if m.Phase() != Holding {
		t.Fatalf("phase %s", phases[m.Phase()])
	}
	return m
}

// An Attach that nobody wants any more frees no node, whenever it is closed and whatever the late
// answers say.
func TestAnAttachThatIsGivenBackFreesNothing(t *testing.T) {
	for name, closed := range map[string]bool{"in time": false, "after Close": true} {
		t.Run(name, func(t *testing.T) {
			m := attached(t)
			if closed {
				m.Step(at(0), Event{Kind: Close})
			}
			sent := append([]Call(nil), m.Step(at(0), Event{Kind: GiveBack}).Calls...)
			sent = append(sent, m.Step(at(0), answer(Attach, 2, Reply{Moved: true, Rival: true, Of: 1, Holder: "p:1.1"})).Calls...)
			returns := 0
			for _, c := range sent {
				if c.Do == Return {
					returns++
				} else {
					t.Errorf("%+v, want Returns only", c)
				}
			}
			if returns < 2 || m.Phase() != Over {
				t.Errorf("%d Returns, phase %s", returns, phases[m.Phase()])
			}
		})
	}
}

// A copy of a node, under the address of another one, does not count twice.
func TestOneCellOfTheFormerOwnerHasOneVote(t *testing.T) {
	moved := Reply{Moved: true, Rival: true, Of: 0, Holder: "p:1.1"}
	for name, first := range map[string]bool{"the copy first": true, "the copy last": false} {
		t.Run(name, func(t *testing.T) {
			m := attaching()
			var fx *Effects
			if first {
				again := append([]Call(nil), m.Step(at(0), answer(Attach, 1, moved)).Calls...)
				for _, c := range again {
					m.Step(at(0), Event{Kind: Replied, Call: c, Reply: Reply{OK: true, Token: 7}})
				}
				fx = m.Step(at(0), answer(Attach, 0, Reply{OK: true, Token: 7}))
			} else {
				m.Step(at(0), answer(Attach, 0, Reply{OK: true, Token: 7}))
				fx = m.Step(at(0), answer(Attach, 1, moved))
			}
			if fx.Outcome == Acquired || m.Phase() != Asking {
				t.Errorf("outcome %v, phase %s", fx.Outcome, phases[m.Phase()])
			}
		})
	}
}

// A server that names the very cell that it was asked for is not asked again and again.
func TestACellThatHasNotMovedIsAskedOnce(t *testing.T) {
	m := attaching()
	if fx := m.Step(at(0), answer(Attach, 0, Reply{Moved: true, Rival: true, Of: 0, Holder: "p:1.1"})); len(fx.Calls) > 0 {
		t.Errorf("%+v", fx.Calls)
	}
}
