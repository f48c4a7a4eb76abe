package scriptmodel

import (
	"fmt"
	"math"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The scripts of a semaphore, each as its Lua.

// runSlots runs a script of a semaphore.
func (n *Node) runSlots(s *wire.Script) wire.Reply {
	switch s {
	case slotAcquireScript:
		return n.slotAcquire()
	case slotReleaseScript:
		return n.slotRelease()
	case slotLeaveScript:
		return n.slotLeave()
	case slotRenewScript:
		return n.slotRenew()
	case slotRaiseScript:
		return n.slotRaise()
	case slotInspectScript:
		return n.slotInspect()
	case slotForceReleaseScript:
		return n.slotForceRelease()
	}
	return wire.Reply{Err: errUnknown}
}

// slotAcquire is slot_acquire.lua.
func (n *Node) slotAcquire() wire.Reply {
	number := n.check()
	now, owner := n.clock(), n.text(1)
	n.prune(now)
	waiter, entry, _ := cut(n.text(4))
	k, wish, other, ok := wants(entry)
	slot := -1
	if s, ok := n.slots.zscore(owner); ok {
		slot = int(s)
	}
	again, former, gone := slot >= 0, "", -1
	refuse := func(status int64, who string, ms float64) wire.Reply {
		if ms == 0 && status != 8 {
			m := n.lock.ranked()
			if len(m) == 0 {
				panic(noNumber)
			}
			ms = m[0].Score + 1 - now
		}
		return n.refusal(status, int64(ms), waiter, who)
	}

	if waiter == "" {
		must(0, len(n.args) > 4) // an entry that cannot be read is no mode
		permits, _ := tonumber(lastDigits.FindString(n.text(4)))
		k = int(permits)
		if asked := int(n.number(5)); slot != asked {
			who := n.slots.at(asked)
			gone = n.give(owner)
			if who != "" {
				if gone >= 0 {
					n.serve("", now, false, -1)
				}
				return refuse(0, who, 0)
			}
			slot, again = asked, false
			if name, _, ok := strings.Cut(owner, "/"); ok {
				if other := n.successorOf(name); other != "" && isSuccessor(other, name, attemptOf(owner)) {
					former = other
				}
			}
		}
	} else if !again {
		must(0, ok)
		if n.isOther(number, k) {
			panic(failure(fmt.Sprintf("OTHERPERMITS %d %d", k, number)))
		}
		taken := other >= 0 && n.slots.zcount(wish, wish) > 0
		former = n.successorOf(waiter)
		if former != "" && !isSuccessor(former, waiter, attemptIn(entry)) {
			former = ""
		}
		if former != "" {
			s, _ := n.slots.zscore(former)
			if slot = int(s); slot != wish {
				if n.slots.zcount(wish, wish) > 0 {
					n.give(former)
					n.join(waiter, entry, now, true)
					n.serve("", now, false, -1)
					return refuse(0, n.lowest(), 0)
				}
				slot = wish
			}
		} else if taken || n.queue.exists() || n.vacancies(k) == 0 {
			n.join(waiter, entry, now, true)
			first := n.front(waiter, now).name
			free := n.vacancies(k)
			if free == 0 {
				return refuse(0, n.lowest(), 0)
			} else if max(n.queue.zrank(waiter), 0) >= free {
				n.callLast(free, now)
				return refuse(4, first, n.call(waiter, now))
			} else if taken {
				return refuse(8, n.slots.at(wish), float64(n.vacant(k, other)))
			}
		}
		if slot < 0 {
			slot = n.vacant(k, wish)
		}
	}

	last := 0.0
	if s, ok := n.token.hget(whole(float64(slot))); ok {
		if last, ok = tonumber(s); !ok || last != last {
			panic(n.badToken())
		}
	}
	token := last
	if !again || last == 0 {
		token = n.next(last, n.number(3), waiter == "")
	}
	if former != "" {
		gone = n.give(former)
	}
	left := waiter != "" && n.drop(waiter, false)
	n.assign(owner, slot, token, now, n.number(2), k)
	if gone >= 0 && gone != slot || left && (gone >= 0 || again) {
		n.serve("", now, false, -1)
	}
	status := int64(5)
	if again {
		status = 6
	}
	return wire.Integers(status, int64(token), int64(slot))
}

// slotRelease is slot_release.lua.
func (n *Node) slotRelease() wire.Reply {
	slot, left := n.give(n.text(1)), int64(0)
	if slot < 0 {
		left = -1
	}
	waiter, entry := n.text(4), n.text(5)
	if waiter == "" && !n.queue.exists() {
		return wire.Integer(left)
	}
	now := n.clock()
	if entry != "" {
		n.check()
		_, rest, _ := strings.Cut(entry, " ")
		n.join(waiter, rest, now, true)
		if !n.serve(waiter, now, false, -1) {
			return wire.Integers(left, 0)
		}
		k, wish, other, _ := wants(entry)
		if other < 0 {
			other = wish
		}
		return wire.Integers(left, int64(n.vacant(k, other))+1)
	}
	if waiter != "" {
		n.drop(waiter, false)
		if n.text(6) == "all" {
			n.giveSuccessor(waiter, attemptOf(n.text(1)))
		}
	}
	n.serve("", now, true, slot)
	return wire.Integer(left)
}

func (n *Node) giveSuccessor(waiter string, before float64) {
	if successor := n.successorOf(waiter); isSuccessor(successor, waiter, before) {
		n.give(successor)
	}
}

// slotLeave is slot_leave.lua.
func (n *Node) slotLeave() wire.Reply {
	wasQueued := n.drop(n.text(1), false)
	if n.text(2) == "all" {
		n.giveSuccessor(n.text(1), math.Inf(1))
	}
	if n.queue.exists() {
		n.serve("", n.clock(), false, -1)
	}
	return wire.Integer(integerOf(wasQueued))
}

// slotRenew is slot_renew.lua.
func (n *Node) slotRenew() wire.Reply {
	slot, ok := n.slots.zscore(n.text(1))
	ends, ok2 := n.lock.zscore(n.text(1))
	now, ttl := n.clock(), n.number(2)
	if !ok || !ok2 || slot != n.number(3) || ends < now {
		return wire.Integer(0)
	}
	n.lock.zadd(whole(now+ttl), n.text(1))
	n.lengthen(n.lock, ttl)
	n.lengthen(n.slots, ttl)
	n.lengthenBy(n.token, ttl+60000, 60000)
	return wire.Integer(1)
}

// slotRaise is slot_raise.lua.
func (n *Node) slotRaise() wire.Reply {
	s, ok := n.slots.zscore(n.text(1))
	ends, ok2 := n.lock.zscore(n.text(1))
	if !ok || !ok2 || ends < n.clock() {
		return wire.Integer(0)
	}
	slot, last, counted := whole(s), 0.0, true
	if stored, ok := n.token.hget(slot); ok {
		last, counted = tonumber(stored)
	}
	if !counted || last != n.number(3) {
		return wire.Integer(0)
	}
	n.token.hset(slot, n.text(4))
	n.lengthen(n.token, max(0, math.Floor(n.number(4)/1000)-float64(n.now/1000000*1000))+max(n.number(2), 120000)+60000)
	return wire.Integer(1)
}

// slotInspect is slot_inspect.lua.
func (n *Node) slotInspect() wire.Reply {
	number := n.check()
	owners, ends, tokens := []any{}, []any{}, []any{}
	for _, m := range n.taken() {
		slot := score(m.Score)
		owners = append(owners, m.Name, slot)
		end, token := "0", "0"
		if s, ok := n.lock.zscore(m.Name); ok {
			end = score(s)
		}
		if s, ok := n.token.hget(slot); ok {
			token = s
		}
		ends, tokens = append(ends, end), append(tokens, token)
	}
	all := n.queue.ranked()
	queue := all[:min(len(all), int(n.number(1)))]
	waiters, entries := []any{}, []any{}
	for _, m := range queue {
		waiters = append(waiters, m.Name, score(m.Score))
		entries = append(entries, n.stored(m.Name).stored)
	}
	return wire.Reply{Value: []any{owners, ends, tokens, int64(len(all)), waiters, entries, n.now.ms(), int64(number)}}
}

// slotForceRelease is slot_force_release.lua.
func (n *Node) slotForceRelease() wire.Reply {
	n.check()
	now := n.clock()
	n.prune(now)
	owners := n.taken()
	for i, m := range owners {
		n.give(m.Name)
		if i < 100 {
			n.serve("", now, false, -1)
		}
	}
	return wire.Integer(integerOf(len(owners) > 0))
}
