package quorumlock

import "time"

// State is what a node knows of a lock at one instant.
type State struct {
	Owner     Owner         // who holds it; empty if nobody does
	HoldCount int           // how many times the owner has entered and not left
	TTL       time.Duration // until the key expires; 0 if nobody holds it
	Token     uint64        // the last fencing token given out; 0 if none was in the last day
	Waiting   int           // how many stand in line
	Line      []Waiter      // the first of them, in their order
}

// Held reports whether somebody holds the lock.
func (s State) Held() bool { return s.Owner != "" }

// Waiter is a place in the line of a lock.
type Waiter struct {
	Owner Owner     // `<client uuid>:<n>`, with an n of its own for the whole wait
	Since time.Time // of its first attempt, by its own clock: its ticket
}
