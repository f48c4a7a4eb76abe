package quorumlock

import "time"

// State is the state of a lock at one node, at one instant.
type State struct {
	Owner Owner // the holder; empty if the lock is free or readers share it

	// Data is the data of the holder, see WithData, or the value of a leader, see package election. It
	// is empty for a user who may not read it.
	Data string

	// HoldCount is how often the owner has entered the lock at the node and not left. It is 1 for a
	// Mutex of this library, which counts its leases in its process.
	HoldCount int

	TTL   time.Duration // until the key expires; 0 if the lock is free
	Token uint64        // the last fencing token; 0 if there was none in the last few minutes

	// Waiting is the length of the queue. A client has up to three entries in it, one for each
	// reader, and for a semaphore of k slots up to min(k, 64) + 2;
	// a LockN that collects its slots has up to 64 more.
	Waiting int

	Queue   []Waiter // the first waiters, in the order of the queue
	Readers []Reader // the readers, sorted by owner; see redlock.RWMutex

	// Permits is the number of slots of a semaphore; 0 if the semaphore is not in use.
	Permits int

	Slots []Slot // the taken slots of a semaphore, by number; see redlock.Semaphore
}

// Held reports whether the lock has a holder, a reader or a taken slot.
func (s State) Held() bool { return s.Owner != "" || len(s.Readers) > 0 || len(s.Slots) > 0 }

// Reader is an owner that shares a lock.
type Reader struct {
	Owner Owner
	TTL   time.Duration // until its share ends, unless renewed
}

// Slot is a taken slot of a semaphore.
type Slot struct {
	Number int // from 0
	Owner  Owner
	TTL    time.Duration // until the hold ends, unless renewed
	Token  uint64        // the fencing token of the hold
}

// Waiter is an entry in the queue of a lock.
type Waiter struct {
	Owner Owner // `<client>:<n>`, with the same n for the whole wait

	// Since is the ticket: the time of the call of Lock, by the clock of the process, or by the
	// nodes' clocks if that clock is wrong.
	Since time.Time

	Callers int  // the calls of Lock in its process that the entry stands for, its own included
	Reader  bool // the waiter wants to share the lock
}
