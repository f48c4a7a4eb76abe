package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

var (
	slotAcquire        = newScript("slot_acquire", lua("slot_acquire"))
	guardedSlotAcquire = newScript("slot_acquire", alwaysGuarded(lua("guard"))+lua("slot_acquire"))
	slotRelease        = newScript("slot_release", lua("slot_release"))
	slotLeave          = newScript("slot_leave", lua("slot_leave"))
	slotRenew          = newScript("slot_renew", lua("slot_renew"))
	slotRaise          = newScript("slot_raise", lua("slot_raise"))
	slotInspect        = newScript("slot_inspect", lua("slot_inspect"))
	slotForceRelease   = newScript("slot_force_release", lua("slot_force_release"))
)

// alwaysGuarded makes the guard check even if KEYS[1] exists: a replica that took over may have
// some slots and lack others.
func alwaysGuarded(guard string) string {
	return replace(guard, "if redis.pcall('hget', KEYS[1], 'mode') == 'shared' or redis.call('exists', KEYS[1]) == 0 then", "do")
}

const (
	slotsPrefix    = "quorumlock_slots"
	semaphoreField = "quorumlock_semaphore" // a member of the sorted set at the name
)

// SlotsKey returns the key that maps owners of a semaphore to their slots.
func SlotsKey(name string) string {
	return string(appendPrefixed(nil, slotsPrefix, braced(name), name))
}

// OfSemaphore turns the call into one for a semaphore with that many permits. slot is the preferred
// slot of an Acquire or Yield, and the owner's in a Restore or Renew. Re-entry has no counterpart.
func (c Call) OfSemaphore(permits, slot int) Call {
	c.keys = lockSlots
	switch c.Script {
	case acquire, guardedAcquire:
		if c.Script == acquire {
			c.Script = slotAcquire
		} else {
			c.Script = guardedSlotAcquire
		}
		if c.args[3].text == keep {
			c.args[3].text += strconv.Itoa(permits)
			c.args[5], c.args[4] = c.args[4], number(slot)
			c.count++
		}
	case release:
		c.Script = slotRelease
	case leave:
		c.Script = slotLeave
	case renew:
		c.Script = slotRenew
		c.add(number(slot))
	case raise:
		c.Script = slotRaise
	case inspect:
		c.Script = slotInspect
	case forceRelease:
		c.Script = slotForceRelease
	}
	for i := range c.args {
		if c.args[i].kind == aEntry {
			c.args[i].text = "k" + strconv.Itoa(permits) + "p" + strconv.Itoa(slot)
		}
	}
	return c
}

// Only makes the node grant the preferred slot or none. If that slot is taken, the node names a
// free one, the first from other on, so that callers are sent to different slots.
func (c Call) Only(other int) Call {
	for i := range c.args {
		if c.args[i].kind == aEntry {
			c.args[i].text += "o" + strconv.Itoa(other)
		}
	}
	return c
}

// InspectedSlots reads the reply to Inspect of a semaphore.
func (r Reply) InspectedSlots() (quorumlock.State, error) {
	var s quorumlock.State
	if r.Err != nil {
		return s, r.lookFailure()
	}
	fields, err := r.values()
	if err != nil {
		return s, err
	}
	if len(fields) != 8 {
		return s, r.unexpected()
	}
	owners, ok := fields[0].([]any)
	ends, ok2 := fields[1].([]any)
	tokens, ok3 := fields[2].([]any)
	length, ok4 := fields[3].(int64)
	waiters, ok5 := fields[4].([]any)
	entries, ok6 := fields[5].([]any)
	now, ok7 := fields[6].(int64)
	permits, ok8 := fields[7].(int64)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || !ok8 || len(owners) != 2*len(ends) || len(tokens) != len(ends) {
		return s, r.unexpected()
	}
	s.Waiting, s.Permits = int(length), int(permits)
	for i := range ends {
		owner, ok := owners[2*i].(string)
		slot, ok2 := asNumber(owners[2*i+1])
		end, ok3 := asNumber(ends[i])
		token, ok4 := asNumber(tokens[i])
		if !ok || !ok2 || !ok3 || !ok4 {
			return s, r.unexpected()
		}
		if int64(end) < now {
			continue // the hold has expired
		}
		ttl := time.Duration(max(int64(end)-now, 1)) * time.Millisecond
		s.Slots = append(s.Slots, quorumlock.Slot{Number: int(slot), Owner: Base(quorumlock.Owner(owner)), TTL: ttl, Token: uint64(token)})
		s.Token, s.TTL = max(s.Token, uint64(token)), max(s.TTL, ttl)
	}
	slices.SortFunc(s.Slots, func(a, b quorumlock.Slot) int { return a.Number - b.Number })
	for i := 0; i < len(entries) && s.Permits == 0; i++ {
		if stored, ok := entries[i].(string); ok {
			s.Permits = permitsOf(stored)
		}
	}
	s.Queue, err = r.queue(waiters, entries)
	return s, err
}

// permitsOf returns the number of permits in a waiter's entry (see slots.lua), 0 without one.
func permitsOf(stored string) int {
	f := strings.Fields(stored)
	if len(f) < 2 {
		return 0
	}
	_, k, _ := strings.Cut(f[1], "k")
	k, _, _ = strings.Cut(k, "p")
	n, _ := strconv.Atoi(k)
	return n
}

func asNumber(v any) (float64, bool) {
	s, ok := v.(string)
	n, err := strconv.ParseFloat(s, 64)
	return n, ok && err == nil
}

// otherPermits returns the error of a semaphore with another number of permits at the node.
func otherPermits(said string) error {
	here, there, _ := strings.Cut(said, " ")
	return mismatch(here, there)
}

// noSemaphore returns the error for keys of a semaphore that hold something else.
func noSemaphore(what string) error {
	switch {
	case what == "token":
		return wrongKind{"semaphore", "a mutex or a read-write lock that was locked within the last few minutes"}
	case what == "mode", isOwner(what):
		return wrongKind{"semaphore", "a mutex or a read-write lock"}
	case what == latchField:
		return wrongKind{"semaphore", "a latch"}
	case what == "WRONGTYPE":
		return wrongKind{"semaphore", "no sorted set, but " + stringAsLock}
	case what == "zset":
		return fmt.Errorf("%w: %s", quorumlock.ErrNotALock, what)
	}
	return fmt.Errorf("%w: it is a hash with the field %.100q", quorumlock.ErrNotALock, what)
}
