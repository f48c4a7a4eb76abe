package client

import (
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
)

// identity has the names of a client, and makes those of its calls and their owners.
type identity struct {
	id     string                            // `<label>~<uuid>`: the client in its owners
	wake   string                            // the channel on which nodes call its waiters
	place  quorumlock.Owner                  // owner of the entries that keep a window free: see wire.Call.Open
	calls  atomic.Uint64                     // number of calls begun
	jitter func(time.Duration) time.Duration // nil except in simulations
}

// ID returns the client's name in its owners: `<label>~<uuid>`.
func (c *identity) ID() string { return c.id }

// waiterOf returns the waiter of a call, and the owner of its first attempt. Both share one
// allocation.
func (c *identity) waiterOf(number uint64) (waiter, first quorumlock.Owner) {
	var memory [128]byte
	b := append(append(memory[:0], c.id...), ':')
	b = strconv.AppendUint(b, number, 10)
	first = quorumlock.Owner(append(b, ".1"...)) // as wire.OwnerOf
	return first[:len(b)], first
}

// newNumber returns the number of a call. Two copies of a process restored from one image share
// their client's identity and counters, but must have different owners. So the number is random,
// mixed with the time: even with equal randomness, copies seldom draw in the same nanosecond.
// Simulations count, because they need the same numbers in every run.
func (c *identity) newNumber(order uint64) uint64 {
	if c.jitter != nil {
		return order
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return (binary.LittleEndian.Uint64(b[:])^uint64(time.Now().UnixNano()))%numbers + numbers
}

const numbers = 1 << 52 // the range of the random numbers, which have 16 digits

// numberOf returns the number of the call that an owner of this client belongs to.
func (c *identity) numberOf(o quorumlock.Owner) (number uint64, ok bool) {
	rest, ok := strings.CutPrefix(string(o), c.id+":")
	if !ok {
		return 0, false
	}
	digits := 0
	for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
		digits++
	}
	number, err := strconv.ParseUint(rest[:digits], 10, 64)
	return number, err == nil
}

// seed returns a random seed for a machine, so that the pauses of machines differ.
func (c *identity) seed() uint64 {
	if c.jitter != nil {
		return uint64(c.jitter(time.Duration(1 << 40)))
	}
	return mathrand.Uint64()
}
