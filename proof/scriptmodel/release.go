package scriptmodel

import (
	"fmt"
	"math"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// release is release.lua.
func (n *Node) release() wire.Reply {
	owner, channel, waiter, entry := n.text(1), n.text(3), n.text(4), n.text(5)
	left, hands, released := 0.0, false, false
	freed := func() bool {
		released = true
		return n.publish(channel, "00") == 0
	}
	share := -1.0
	if n.text(2) == "1" {
		held, there := n.lock.hget(owner)
		switch {
		case !there:
			left = -1
		case len(held) <= 12:
			n.lock.hdel(owner)
			n.lock.hdel("mode")
			hands = freed()
		default:
			n.lock.hdel(owner)
			if ends, ok := tonumber(held); ok {
				share = ends
			}
		}
	} else {
		left = n.number(2) - 1
		count := 0.0
		if s, ok := n.lock.hget(owner); ok {
			count = must(tonumber(s))
		}
		if count <= left {
			left = -1
		} else {
			n.lock.hset(owner, whole(left))
		}
	}

	now := n.clock()
	if waiter == "" && !n.queue.exists() && !n.fair.exists() {
		fields := len(n.lock.fields)
		switch {
		case share < 0:
			return wire.Integer(int64(left))
		case fields <= 1:
			n.lock.del()
			n.publish(channel, "00")
			return wire.Integer(int64(left))
		case fields != few:
			if !n.ending(share) {
				return wire.Integer(int64(left))
			}
		}
	}
	if share >= 0 {
		fields, before := len(n.lock.fields), n.pttl(n.lock)
		ended := fields > 1 && share+1 >= now+float64(before)
		if fields == few || ended && n.looks(fields) {
			if held, err := n.tryLook(); err == "" && len(held) > 0 {
				ms := max(n.expiry(held, true)-1, 1)
				n.pexpire(n.lock, ms)
				n.earlier(before, float64(ms))
			}
		}
		if len(n.lock.fields) <= 1 {
			n.lock.del()
			hands = freed()
		} else if waiter == "" && len(n.lock.fields) > few {
			return wire.Integer(int64(left))
		}
	}
	rejoins, led := entry != "", false
	if rejoins {
		_, rest, _ := strings.Cut(entry, " ")
		n.join(waiter, rest, now, false)
	} else if waiter != "" {
		led = n.leads(waiter)
		n.drop(waiter, false)
		if n.text(6) == "all" {
			n.removeSuccessors(waiter, channel, owner)
		}
	}
	lends := waiter == "" && (len(n.args) == 4 || share < 0)
	open := n.serveQueue(waiter, now, hands, led, lends)
	if rejoins && !open {
		n.forget(waiter)
	}
	if released && !n.lock.exists() {
		n.tellFair(channel)
	}
	if !rejoins {
		return wire.Integer(int64(left))
	}
	return wire.Integers(int64(left), integerOf(open))
}

func integerOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// leaveOpen is open.lua.
func (n *Node) leaveOpen() wire.Reply {
	owner, channel, window, waiter := n.text(1), n.text(2), math.Abs(n.number(3)), n.text(5)
	_, held := n.lock.hget(owner)
	now := n.clock()
	free, led := held && n.removeHold(owner), false
	if waiter != "" {
		led = n.leads(waiter)
		n.drop(waiter, false)
		if n.text(6) == "all" {
			n.removeSuccessors(waiter, channel, owner)
		}
	}
	if !free {
		n.serveQueue("", now, window == 0, led, false)
		if !held {
			return wire.Integer(-1)
		}
		return wire.Integer(0)
	}
	if window > 0 {
		first := n.front("", now)
		n.join(n.text(4), fmt.Sprintf("0 %.0f 0 ", window), now, false)
		if first.name != "" {
			n.tell("turn", first.name, "")
		}
	} else {
		n.wake("", now, true, false, true)
	}
	if n.number(3) >= 0 && n.pttl(n.token) >= 0 {
		n.pexpire(n.token, 315360000000)
	}
	if window == 0 && n.queue.exists() {
		n.publish(channel, "2")
		return wire.Integer(0)
	}
	n.publish(channel, strings.Repeat("0", 3+int(window)))
	n.tellFair(channel)
	return wire.Integer(0)
}

// leave is leave.lua.
func (n *Node) leave() wire.Reply {
	waiter := n.text(1)
	first := n.leads(waiter)
	led := n.drop(waiter, false)
	if n.text(2) == "all" {
		n.removeSuccessors(waiter, n.text(3), n.text(4))
	}
	if !n.queue.exists() {
		n.nobodyServed()
		return wire.Integer(integerOf(led))
	}
	n.serveQueue("", n.clock(), false, first, false)
	return wire.Integer(integerOf(led))
}

// forceRelease is force_release.lua.
func (n *Node) forceRelease() wire.Reply {
	if held, _ := n.look(); len(held) == 0 {
		return wire.Integer(0)
	}
	n.lock.del()
	n.publish(n.text(1), "00")
	n.tellFair(n.text(1))
	n.wake("", n.clock(), false, false, false)
	return wire.Integer(1)
}
