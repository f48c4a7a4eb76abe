package quorumlock

import "time"

// State is what a node knows of a lock at one instant.
type State struct {
	Owner     Owner         // who holds it; empty if nobody does
	HoldCount int           // how often the owner has entered at the node and not left; 1 for a Mutex, which counts its leases in its process
	TTL       time.Duration // until the key expires; 0 if nobody holds it
	Token     uint64        // the last fencing token given out; 0 if none was in the last day
	Waiting   int           // the length of the queue; a client has up to three entries in it
	Queue     []Waiter      // the first waiters, in the order of the queue
}

// Held reports whether somebody holds the lock.
func (s State) Held() bool { return s.Owner != "" }

// Waiter is an entry in the queue of a lock.
type Waiter struct {
	Owner   Owner     // `<client>:<n>`, with an n of its own for the whole wait
	Since   time.Time // when Lock was called, by the clock of its process: the ticket
	Callers int       // the calls of Lock in its process that the entry stands for, its own included
}
