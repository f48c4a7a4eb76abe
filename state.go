package quorumlock

import "time"

// State is what a node knows of a lock at one instant.
type State struct {
	Owner     Owner         // who holds it; empty if nobody does, or if readers share it
	HoldCount int           // how often the owner has entered at the node and not left; 1 for a Mutex, which counts its leases in its process
	TTL       time.Duration // until the key expires; 0 if nobody holds it
	Token     uint64        // the last fencing token given out; 0 if none was in the last day
	Waiting   int           // the length of the queue; a client has up to three entries in it, one for each reader, and for a semaphore of k slots up to min(k, 64) + 2
	Queue     []Waiter      // the first waiters, in the order of the queue
	Readers   []Reader      // who share it, sorted by owner; see redlock.RWMutex
	Permits   int           // of a semaphore, how many slots it has, by its waiters; 0 if nobody waits: holders do not tell the nodes
	Slots     []Slot        // of a semaphore, those that somebody has, by their numbers; see redlock.Semaphore
}

// Held reports whether somebody holds or shares the lock, or has a slot.
func (s State) Held() bool { return s.Owner != "" || len(s.Readers) > 0 || len(s.Slots) > 0 }

// Reader is an owner that shares a lock.
type Reader struct {
	Owner Owner
	TTL   time.Duration // until its share ends, if it is not renewed
}

// MaxPermits is how many permits a semaphore has at most.
const MaxPermits = 1000

// Slot is a slot of a semaphore that somebody has.
type Slot struct {
	Number int // from 0
	Owner  Owner
	TTL    time.Duration // until the hold ends, if it is not renewed
	Token  uint64        // the fencing token of the hold
}

// Waiter is an entry in the queue of a lock.
type Waiter struct {
	Owner   Owner     // `<client>:<n>`, with an n of its own for the whole wait
	Since   time.Time // the ticket: when Lock was called, by the clock of the process, or by those of the nodes if that one is wrong
	Callers int       // the calls of Lock in its process that the entry stands for, its own included
	Reader  bool      // it wants to share the lock
}
