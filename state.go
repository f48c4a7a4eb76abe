package quorumlock

import (
	"encoding/json"
	"time"
)

// State is the state of a lock at one node, at one instant.
type State struct {
	Owner Owner `json:"owner,omitempty"` // the holder; empty if the lock is free or readers share it

	// Data is the data of the holder, see WithData, or the value of a leader, see package election. It
	// is empty for a user who may not read it.
	Data string `json:"data,omitempty"`

	// HoldCount is how often the owner has entered the lock at the node and not left. It is 1 for a
	// Mutex of this library, which counts its leases in its process.
	HoldCount int `json:"hold_count,omitempty"`

	TTL   time.Duration `json:"ttl_seconds"` // until the key expires; 0 if the lock is free
	Token uint64        `json:"token"`       // the last fencing token; 0 if there was none in the last few minutes

	// Waiting is the length of the queue. A client has up to three entries in it, one for each
	// reader, and for a semaphore of k slots up to min(k, 64) + 2;
	// a LockN that collects its slots has up to 64 more.
	Waiting int `json:"waiting"`

	Queue   []Waiter `json:"queue,omitempty"`   // the first waiters, in the order of the queue
	Readers []Reader `json:"readers,omitempty"` // the readers, sorted by owner; see redlock.RWMutex

	// Permits is the number of slots of a semaphore; 0 if the semaphore is not in use.
	Permits int `json:"permits,omitempty"`

	Slots []Slot `json:"slots,omitempty"` // the taken slots of a semaphore, by number; see redlock.Semaphore
}

// Held reports whether the lock has a holder, a reader or a taken slot.
func (s State) Held() bool { return s.Owner != "" || len(s.Readers) > 0 || len(s.Slots) > 0 }

// MarshalJSON encodes the state with its TTL in seconds.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	return json.Marshal(struct {
		plain
		TTL float64 `json:"ttl_seconds"`
	}{plain(s), s.TTL.Seconds()})
}

// Reader is an owner that shares a lock.
type Reader struct {
	Owner Owner         `json:"owner"`
	TTL   time.Duration `json:"ttl_seconds"` // until its share ends, unless renewed
}

// MarshalJSON encodes the reader with its TTL in seconds.
func (r Reader) MarshalJSON() ([]byte, error) {
	type plain Reader
	return json.Marshal(struct {
		plain
		TTL float64 `json:"ttl_seconds"`
	}{plain(r), r.TTL.Seconds()})
}

// Slot is a taken slot of a semaphore.
type Slot struct {
	Number int           `json:"number"` // from 0
	Owner  Owner         `json:"owner"`
	TTL    time.Duration `json:"ttl_seconds"` // until the hold ends, unless renewed
	Token  uint64        `json:"token"`       // the fencing token of the hold
}

// MarshalJSON encodes the slot with its TTL in seconds.
func (s Slot) MarshalJSON() ([]byte, error) {
	type plain Slot
	return json.Marshal(struct {
		plain
		TTL float64 `json:"ttl_seconds"`
	}{plain(s), s.TTL.Seconds()})
}

// Waiter is an entry in the queue of a lock.
type Waiter struct {
	Owner Owner `json:"owner"` // `<client>:<n>`, with the same n for the whole wait

	// Since is the ticket: the time of the call of Lock, by the clock of the process, or by the
	// nodes' clocks if that clock is wrong.
	Since time.Time `json:"since"`

	Callers int  `json:"callers"`          // the calls of Lock in its process that the entry stands for, its own included
	Reader  bool `json:"reader,omitempty"` // the waiter wants to share the lock
}
