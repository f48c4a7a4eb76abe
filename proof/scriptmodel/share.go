package scriptmodel

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// share is share.lua.
func (n *Node) share() wire.Reply {
	owner, how := n.text(1), n.text(4)
	waiter, entry, _ := cut(how)
	queued := n.queue.exists()
	mode, there := "", n.lock.exists()
	if n.lock.kind == hash {
		mode, _ = n.lock.hget("mode")
	}
	if mode == "shared" && n.text(5) != "" {
		if refusal, refused := n.shareOfTwin(owner, n.text(5)); refused {
			return refusal
		}
	}
	tries := 0.0
	if waiter != "" {
		tries = attemptIn(entry)
	}
	if queued || tries > 1 || mode != "shared" && there {
		if refusal, refused := n.shareInTurn(waiter, entry, how, queued, mode == "shared", tries); refused {
			return refusal
		}
	}

	last := n.count()
	now, asked, token := float64(n.now), n.number(3), last
	if keeps := how == "keep"; last < 9e14 || keeps && asked > last {
		token = soon(now)
		if keeps || math.Abs(asked-now) <= minute {
			token = asked
		}
		if last != 0 || n.pttl(n.token) == -1 || token >= now-minute {
			n.replaceCounter(whole(token), keepFor(token, now, n.number(2)))
		}
	} else {
		n.keepCounter()
	}
	again := n.lock.hexists(owner) && n.lock.hexists("mode")
	n.sharedUntil(owner, n.clock()+n.number(2), float64(n.whole(2)))
	if again {
		return wire.Integers(2, int64(token))
	}
	return wire.Integer(int64(token))
}

// shareOfTwin is the part of share.lua that looks for a share that the owner has from another
// address.
func (n *Node) shareOfTwin(owner, cells string) (refusal wire.Reply, refused bool) {
	first, last, ok := strings.Cut(cells, " ")
	end := strings.LastIndexByte(owner, '.') + 1
	own, numbered := digits(owner[end:])
	if !ok || end == 0 || !numbered {
		return refusal, false
	}
	for cell := integer(first); cell <= integer(last); cell++ {
		twin := owner[:end] + strconv.FormatInt(cell, 10)
		until, ok := n.lock.hget(twin)
		if !ok || cell == int64(own) {
			continue
		}
		if left := must(tonumber(until)) + 1 - n.clock(); left > 0 {
			return wire.Reply{Value: []any{int64(0), int64(left), int64(-1), twin}}, true
		}
	}
	return refusal, false
}

// shareInTurn is the part of share.lua that looks at the queue. It returns the reply if it refuses.
func (n *Node) shareInTurn(waiter, entry, how string, hasQueue, isShared bool, tries float64) (refusal wire.Reply, refused bool) {
	fields := 0
	if isShared && n.text(5) != "" {
		fields = len(n.lock.fields)
	}
	many := fields > few && !n.looks(fields)
	held, shared := []Field{{}}, true
	var former []string
	if many {
		owner := n.text(1)
		own := owner[strings.LastIndexByte(owner, '.')+1:]
		for attempt := max(int(tries)-few, 1); attempt < int(tries) && own != owner; attempt++ {
			owner := fmt.Sprintf("%s/%d.%s", waiter, attempt, own)
			stored, _ := n.lock.hget(owner)
			if until, ok := tonumber(stored); ok && until >= n.clock() {
				former = append(former, owner)
			}
		}
	} else {
		held, shared = n.look()
		for _, h := range held {
			if waiter != "" && shared && isSuccessor(h.Name, waiter, tries) {
				former = append(former, h.Name)
			}
		}
	}
	open, blocked := shared || len(held) == 0, ""
	if how != "keep" && len(former) == 0 {
		now := n.clock()
		wasQueued := waiter != "" && (hasQueue || !open) && n.join(waiter, entry, now, false)
		if open {
			first := n.sharers(waiter, now, nil)
			blocked = first.name
			if blocked != "" && len(held) > 0 {
				n.hasten(first, now)
			}
		} else if wasQueued {
			n.front(waiter, now)
		}
		if blocked != "" && len(held) == 0 {
			again := int64(n.call(waiter, now))
			return n.refusal(4, again, waiter, blocked), true
		}
	}
	if blocked != "" || !open {
		if waiter != "" && !open {
			n.forget(waiter)
		}
		return n.refusal(refusedBy(shared), n.expiry(held, shared && !many), waiter, least(held)), true
	}
	if waiter != "" {
		n.drop(waiter, false)
		for _, f := range former {
			n.lock.hdel(f)
		}
		now := n.clock()
		if one := n.front("", now); wantsShare(one.stored) && deadline(one.stored) > now+claim {
			n.admit("", now, false, false)
		}
	}
	return refusal, false
}

// shareEnd is the format %013.0f.
func shareEnd(ms float64) string {
	s := whole(ms)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	return sign + strings.Repeat("0", max(13-len(sign)-len(s), 0)) + s
}

// sharedUntil writes that an owner shares the lock, in the scripts' own way.
func (n *Node) sharedUntil(owner string, until, ms float64) {
	n.lock.hset(owner, shareEnd(until))
	n.lock.hset("mode", "shared")
	if float64(n.pttl(n.lock)) < ms {
		n.expire(n.lock, strconv.FormatFloat(ms, 'f', -1, 64))
	}
}

// downgrade is downgrade.lua.
func (n *Node) downgrade() wire.Reply {
	owner := n.text(1)
	until, ok := n.lock.hget(owner)
	if !ok {
		return wire.Integer(0)
	}
	mode, _ := n.lock.hget("mode")
	now, shared := n.clock(), mode == "shared"
	if shared && must(tonumber(until)) < now {
		return wire.Integer(0)
	}
	n.lock.hset(owner, shareEnd(now+n.number(2)))
	n.lock.hset("mode", "shared")
	before := n.pttl(n.lock)
	if !shared || before < n.whole(2) {
		n.pexpire(n.lock, n.whole(2))
	}
	if !shared {
		n.earlier(before, n.number(2))
	}
	n.keepCounter()
	if !shared {
		n.admit("", now, true, true)
	}
	return wire.Integer(1)
}

// keepCounter keeps the counter for a minute longer than the lock. ARGV[2] is the lock's TTL.
func (n *Node) keepCounter() {
	if left := n.pttl(n.token); left >= 0 && float64(left) < n.number(2)+60000 {
		n.pexpire(n.token, integer(whole(n.number(2)+120000)))
	}
}
