package scriptmodel

import (
	"strings"

	"github.com/quorumlock/quorumlock/scripts"
)

// release is release.lua.
func (n *Node) release() scripts.Reply {
	owner, channel, waiter, entry := n.text(1), n.text(3), n.text(4), n.text(5)
	left, hands := 0.0, false
	if n.text(2) == "1" {
		if n.lock.hdel(owner) {
			hands = n.publish(channel, "0") == 0
		} else {
			left = -1
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

	if waiter == "" && !n.queue.exists() {
		return scripts.Integer(int64(left))
	}
	now := n.clock()
	rejoins, stood := entry != "", false
	if rejoins {
		_, rest, _ := strings.Cut(entry, " ")
		n.join(waiter, rest, now)
	} else if waiter != "" {
		stood = n.queue.first() == waiter
		n.drop(waiter)
		if n.text(6) == "all" {
			n.takeBack(waiter, channel)
		}
	}
	open := false
	if !n.lock.exists() {
		open = n.wake(waiter, now, hands)
	} else if stood {
		n.promote(now)
	}
	if !rejoins {
		return scripts.Integer(int64(left))
	}
	return scripts.Integers(int64(left), integerOf(open))
}

func integerOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// leave is leave.lua.
func (n *Node) leave() scripts.Reply {
	waiter := n.text(1)
	first := n.queue.first() == waiter
	stood := n.drop(waiter)
	if n.text(2) == "all" {
		n.takeBack(waiter, n.text(3))
	}
	if !n.queue.exists() {
		return scripts.Integer(integerOf(stood))
	}
	now := n.clock()
	if !n.lock.exists() {
		n.wake("", now, false)
	} else if first {
		n.promote(now)
	}
	return scripts.Integer(integerOf(stood))
}

// forceRelease is force_release.lua.
func (n *Node) forceRelease() scripts.Reply {
	held := n.lock.hgetall()
	if len(held) == 0 {
		return scripts.Integer(0)
	}
	for _, h := range held {
		if len(held) > 1 || !isHold(h) {
			panic(failure("NOTALOCK " + h.Name))
		}
	}
	n.lock.del()
	n.publish(n.text(1), "0")
	n.wake("", n.clock(), false)
	return scripts.Integer(1)
}
