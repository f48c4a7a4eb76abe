package core

// Phase is where a machine is in its life.
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

// follow maps each phase to the other phases in which a step that begins there may end.
var follow = [...][]Phase{
	Idle: {Asking}, // Start
	Asking: {
		Agreeing, Holding, // a quorum has granted, or handed over
		Yielding, Waiting, // none can grant, or somebody else must go first
		Over, // Cancel, or a TryLock has failed
	},
	Agreeing: {
		Holding,          // a quorum has the token
		Yielding, Asking, // it cannot
		Over, // Cancel, or a TryLock has failed
	},
	Yielding: {
		Waiting,                   // every node that granted has the lock back
		Agreeing, Holding, Asking, // a quorum has handed over, or it is the waiter's turn
		Over, // Cancel, or a TryLock has failed
	},
	Waiting: {
		Asking,            // it may be the waiter's turn, or time to refresh
		Agreeing, Holding, // a quorum has handed over
		Over, // Cancel
	},
	Holding: {
		Losing,    // the validity is over, or the keys are gone
		Releasing, // Unlock
		Over,      // GiveBack
	},
	Losing:    {Releasing}, // Unlock
	Releasing: {Over},      // a quorum of every member has confirmed, or cannot
	Over:      {},
}
