package core

import "testing"

// A phase that must not follow the last one is reported. It ends a hold as lost, and begins none.
func TestAnEntryOutsideTheTableEndsTheHold(t *testing.T) {
	for from := range Over + 1 {
		for next := range Over + 1 {
			m := holding(0, 1)
			m.phase, m.fx = from, Effects{}
			m.become(next)
			want, lost := from, NoReason
			switch {
			case from.LeadsTo(next), max(from, next) < Holding:
				want = next
			case from == Holding:
				want, lost = Losing, Confused
			}
			if m.phase != want || m.fx.Lost != lost || (m.fx.Bug == "") != from.LeadsTo(next) {
				t.Errorf("%v before %v: phase %v, loss %d, report %q", from, next, m.phase, m.fx.Lost, m.fx.Bug)
			}
		}
	}
}
