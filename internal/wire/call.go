package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Call is one run of a script: the script, its keys and its arguments. If [SameSlot] is true for
// the name of the lock, all keys are in one cluster slot.
//
// It has no slices of its own, and encodes keys and arguments on demand: a call costs no
// allocation.
type Call struct {
	Script *Script
	name   string // of the lock
	keys   keys
	count  uint8 // of args
	args   [maxArgs]arg
	entry  *Entry        // the entry that the aEntry argument encodes; nil without one
	own    *own          // replaces name, keys and args in a Call from NewCall
	age    time.Duration // of the server in the aGuard argument; see Sight
}

// own are the keys and arguments of a script from outside this package.
type own struct {
	keys []string
	args []any
}

// keys is the set of a lock's keys that a script takes, in the order of KEYS.
type keys uint8

const (
	ownKeys    keys = iota // the keys given to NewCall
	lockToken              // the lock, the token
	lockQueue              // the lock, the queue, its entries
	lockAll                // lockQueue, the token
	lockLeader             // the lock, the leader's value
	lockSlots              // lockAll, the slots
)

// maxArgs is the largest number of arguments of a script of this package.
const maxArgs = 6

// arg is one argument of a script.
type arg struct {
	text   string
	number int64
	kind   argKind
}

type argKind uint8

const (
	aText   argKind = iota // text
	aNumber                // number
	aOwner                 // text as the owner at the cell in number: see OfCell
	// The call's entry for the cell in number (see cellBits). text follows the callers and is the
	// kind of request: see appendAt.
	aEntry
	aRange   // two numbers, one in the upper 32 bits, with a space between them
	aChannel // the channel of the lock
	aLeader  // the channel of the leader's value
	aGuard   // a quarantine in ms, the server in text, and the call's age: see guard.lua
)

// NewCall returns a run of a script from outside this package. fmt.Append formats its arguments.
func NewCall(s *Script, keys []string, args ...any) Call {
	return Call{Script: s, own: &own{keys, args}}
}

// At returns the call for one cell of a lock: the node stores the owner as [OfCell] does.
func (c Call) At(cell int) Call {
	c.args[0].kind, c.args[0].number = aOwner, int64(cell)
	return c
}

// Guarded adds the restart guard to an acquisition: until the server is known to be as old as the
// quarantine, it refuses each lock that it does not have. A quarantine of 0 adds nothing.
func (c Call) Guarded(quarantine time.Duration) Call {
	if quarantine > 0 {
		switch c.Script {
		case acquire:
			c.Script = guardedAcquire
		case share:
			c.Script = guardedShare
		case slotAcquire:
			c.Script = guardedSlotAcquire
		case transfer:
			c.Script = guardedTransfer
		}
		c.add(guard(quarantine))
	}
	return c
}

// Shared turns an Acquire, Restore, Raise or Yield into one for an owner that shares the lock. The
// other calls are the same for holders and sharers.
func (c Call) Shared() Call {
	switch c.Script {
	case acquire:
		c.Script = share
		c.add(text(""))
	case raise:
		c.add(text("share"))
	}
	for i := range c.args {
		if c.args[i].kind == aEntry {
			c.args[i].text = "s"
		}
	}
	return c
}

// Among makes the server refuse a share if another of the owner's cells from first to last has a
// share there: the server then has two addresses, and counts once. If the call has an entry, the
// server also hands the waiter no second share.
func (c Call) Among(first, last int) Call {
	if c.Script == share {
		c.args[4] = arg{kind: aRange, number: int64(first)<<32 | int64(last)}
	}
	for i := range c.args {
		if a := &c.args[i]; a.kind == aEntry && a.text == "s" && first < last {
			a.number |= int64(first)<<cellBits | int64(last)<<(2*cellBits)
		}
	}
	return c
}

// Lends marks the Release of an owner that shares the lock and also has other locks. The node may
// then hand a share to a waiter for several locks, to which this owner may release the others.
func (c Call) Lends() Call {
	c.add(text(""))
	return c
}

// cellBits is the width of a cell in an entry's number. The number holds three cells: the entry's
// own, and the first and the last that may lead to the same server (both 0 if there are no others).
const (
	cellBits = 21
	cellMask = 1<<cellBits - 1
)

// Lock returns the first key, which is the name of the lock.
func (c *Call) Lock() string {
	if c.keys == ownKeys {
		return c.own.keys[0]
	}
	return c.name
}

// KeyCount returns the number of keys.
func (c *Call) KeyCount() int {
	switch c.keys {
	case lockToken, lockLeader:
		return 2
	case lockQueue:
		return 3
	case lockAll:
		return 4
	case lockSlots:
		return 5
	}
	return len(c.own.keys)
}

// AppendKey appends the i-th key.
func (c *Call) AppendKey(b []byte, i int) []byte {
	switch {
	case c.keys == ownKeys:
		return append(b, c.own.keys[i]...)
	case i == 0:
		return append(b, c.name...)
	case c.keys == lockLeader:
		return appendPrefixed(b, leaderPrefix, braced(c.name), c.name)
	case i == 3, c.keys == lockToken:
		return appendPrefixed(b, tokenPrefix, "", c.name)
	case i == 4:
		return appendPrefixed(b, slotsPrefix, braced(c.name), c.name)
	case i == 1:
		return appendPrefixed(b, queuePrefix, braced(c.name), c.name)
	}
	return appendPrefixed(b, entriesPrefix, braced(c.name), c.name)
}

// ArgCount returns the number of arguments.
func (c *Call) ArgCount() int {
	if c.own != nil {
		return len(c.own.args)
	}
	return int(c.count)
}

// AppendArg appends the i-th argument.
func (c *Call) AppendArg(b []byte, i int) []byte {
	if c.own != nil {
		return fmt.Append(b, c.own.args[i])
	}
	switch a := &c.args[i]; a.kind {
	case aNumber:
		return strconv.AppendInt(b, a.number, 10)
	case aOwner:
		return appendOfCell(b, a.text, int(a.number))
	case aEntry:
		return c.entry.appendAt(b, a)
	case aRange:
		b = append(strconv.AppendInt(b, a.number>>32, 10), ' ')
		return strconv.AppendInt(b, a.number&math.MaxUint32, 10)
	case aChannel:
		return appendPrefixed(b, channelPrefix, "", c.name)
	case aLeader:
		return appendPrefixed(b, leaderPrefix, braced(c.name), c.name)
	case aGuard:
		b = append(strconv.AppendInt(b, a.number, 10), ' ')
		b = append(append(b, a.text...), ' ')
		return strconv.AppendInt(b, c.age.Milliseconds(), 10)
	default:
		return append(b, a.text...)
	}
}

// Keys returns the keys.
func (c Call) Keys() []string {
	all := make([]string, c.KeyCount())
	for i := range all {
		all[i] = string(c.AppendKey(nil, i))
	}
	return all
}

// Args returns the arguments.
func (c Call) Args() []string {
	all := make([]string, c.ArgCount())
	for i := range all {
		all[i] = string(c.AppendArg(nil, i))
	}
	return all
}

func newCall(s *Script, name string, k keys, args ...arg) Call {
	c := Call{Script: s, name: name, keys: k}
	c.add(args...)
	return c
}

func (c *Call) add(args ...arg) { c.count += uint8(copy(c.args[c.count:], args)) }

func text(s string) arg { return arg{kind: aText, text: s} }

func who(o quorumlock.Owner) arg { return text(string(o)) }

func number[T int | int64 | uint64](n T) arg { return arg{kind: aNumber, number: int64(n)} }

func ms(d time.Duration) arg { return number(milliseconds(d)) }

func guard(quarantine time.Duration) arg { return arg{kind: aGuard, number: milliseconds(quarantine)} }

func channel() arg { return arg{kind: aChannel} }

func leaderChannel() arg { return arg{kind: aLeader} }

// Waiter returns the client and the number of the owner or waiter in the call, "" if the first
// argument is no owner. Calls with the same Waiter must run in the order in which they were made.
func (c *Call) Waiter() string {
	if c.count == 0 || c.args[0].kind != aText && c.args[0].kind != aOwner {
		return ""
	}
	owner := c.args[0].text
	end := strings.LastIndexByte(owner, ':') + 1
	for end < len(owner) && '0' <= owner[end] && owner[end] <= '9' {
		end++
	}
	return owner[:end]
}

// Queue returns Entry.Queue and Entry.Decided of an attempt; nil for other calls.
func (c *Call) Queue() (queue any, decided <-chan struct{}) {
	switch c.Script {
	case acquire, guardedAcquire, slotAcquire, guardedSlotAcquire:
		if c.entry != nil {
			return c.entry.Queue, c.entry.Decided
		}
	}
	return nil, nil
}

// Begins reports whether the call may give its waiter a hold or an entry in the queue. Such a call
// must not run after a release.
func (c *Call) Begins() bool {
	switch c.Script {
	case acquire, guardedAcquire, share, guardedShare, slotAcquire, guardedSlotAcquire:
		return true
	case transfer, guardedTransfer:
		return c.args[2].kind == aNumber
	}
	return c.entry != nil
}

// ErrRecalled is the error of an attempt that was cancelled before it was sent. The release that
// cancelled it was not sent either, and has the same error.
var ErrRecalled = errors.New("not sent: the attempt was given back before the node's turn came")

// IsFirst reports whether the call is the first attempt of its waiter: before it, the node has
// nothing of that waiter.
func (c *Call) IsFirst() bool {
	return c.Begins() && c.Script != release && c.Script != slotRelease && c.Script != transfer && c.Script != guardedTransfer && !strings.HasPrefix(c.args[3].text, keep) && strings.HasSuffix(c.args[0].text, ".1")
}

// GivesBack reports whether the call releases everything that its waiter may have at the node.
func (c *Call) GivesBack() bool {
	switch c.Script {
	case release, slotRelease:
		return c.entry == nil && c.args[1] == number(1)
	case open, leave, slotLeave:
		return true
	}
	return false
}

// Detached returns the call with a copy of its entry, which no longer changes with the original.
func (c Call) Detached() Call {
	if c.entry != nil {
		e := *c.entry
		c.entry = &e
	}
	return c
}
