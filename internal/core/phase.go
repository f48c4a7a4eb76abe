package core

import "slices"

// Phase is a stage in the life of a machine.
type Phase uint8

const (
	Idle Phase = iota
	Asking
	Agreeing
	Yielding
	Waiting
	Holding
	Losing
	Releasing
	Over
)

var phases = [...]string{"Idle", "Asking", "Agreeing", "Yielding", "Waiting", "Holding", "Losing", "Releasing", "Over"}

func (p Phase) String() string { return phases[p] }

// LeadsTo reports whether a machine in p may enter next, and whether a step that begins in p may
// end in next. The proof checks each step, and become checks each entry.
func (p Phase) LeadsTo(next Phase) bool { return p == next || slices.Contains(follow[p], next) }

// become is the only writer of the phase. An entry that is not in the table is a bug, and become
// reports it. Then a hold is lost, and none begins.
func (m *Machine) become(next Phase) {
	from := m.phase
	switch {
	case from.LeadsTo(next):
		m.phase = next
		return
	case from == Holding:
		m.lose(Confused)
	case max(from, next) < Holding: // nothing is held
		m.phase = next
	}
	m.fx.Bug = from.String() + " leads to " + next.String()
}

// follow has, for each phase, the other phases in which a step that begins there may end.
var follow = [...][]Phase{
	Idle: {Asking}, // Start
	Asking: {
		Agreeing, Holding, // a quorum granted, or handed over
		Yielding, Waiting, // no quorum can grant, or others go first
		Over, // Cancel, or the call fails
	},
	Agreeing: {
		Holding,          // a quorum has the token
		Yielding, Asking, // no quorum has it
		Over, // Cancel, or the call fails
	},
	Yielding: {
		Waiting,                   // every cell that granted has answered its Yield
		Agreeing, Holding, Asking, // a quorum handed over, or the waiter's turn has come
		Over, // Cancel, or the call fails
	},
	Waiting: {
		Asking,            // the waiter's turn may have come, or its entries need a refresh
		Agreeing, Holding, // a quorum handed over
		Over, // Cancel, or the key is not a lock
	},
	Holding: {
		Losing,    // the validity is over, the keys are gone, or Close
		Releasing, // Unlock, Detach
		Over,      // GiveBack
	},
	Losing: {
		Releasing, // Unlock, Detach
		Over,      // GiveBack
	},
	Releasing: {Over}, // a quorum of every member has confirmed, or cannot
	Over:      {},
}
