package scriptmodel

import "github.com/quorumlock/quorumlock/internal/wire"

// renew is renew.lua.
func (n *Node) renew() wire.Reply {
	owner := n.text(1)
	until, ok := n.lock.hget(owner)
	if !ok {
		return wire.Integer(0)
	}
	if before := n.pttl(n.lock); len(until) > 12 {
		share := must(tonumber(until))
		if share < n.clock() {
			return wire.Integer(0)
		}
		ends := n.clock() + n.number(2)
		n.lock.hset(owner, shareEnd(ends))
		if before < n.whole(2) {
			n.pexpire(n.lock, n.whole(2))
		} else if share > ends {
			n.ending(share)
		}
	} else {
		n.pexpire(n.lock, n.whole(2))
		n.earlier(before, n.number(2))
	}
	n.keepCounter()
	return wire.Integer(1)
}

// earlier is earlier.lua, after the expiry was set.
func (n *Node) earlier(before int64, ms float64) {
	if float64(before) <= ms+100 {
		return
	}
	channel := wire.UnlockChannel(n.name)
	n.publish(channel, "00")
	n.publish(channel, "01")
	n.tellFair(channel)
}

// ending is ending.lua.
func (n *Node) ending(share float64) (over bool) {
	now, before := n.clock(), n.pttl(n.lock)
	if !n.looks(len(n.lock.fields)) || share+1 < now+float64(before) {
		return false
	}
	last := 0.0
	for _, f := range n.lock.hgetall() {
		if ends, ok := digits(f.Value); ok {
			last = max(last, ends)
			over = over || ends < now
		}
	}
	if last > 0 {
		ms := max(last-now, 1)
		n.pexpire(n.lock, int64(ms))
		n.earlier(before, ms)
	}
	return over
}

// transfer is transfer.lua.
func (n *Node) transfer() wire.Reply {
	from, to := n.text(1), n.text(2)
	limit, takes := tonumber(n.text(3))
	if takes {
		from, to = to, from
	}
	last := 0.0
	if s, ok := n.token.get(); ok {
		if last, ok = tonumber(s); !ok || last != last {
			panic(n.badToken())
		}
	}
	held, has := n.lock.hget(from)
	_, again := n.lock.hget(to)
	late := takes && last > limit
	switch {
	case again && !late:
		return wire.Integers(2, int64(last), n.pttl(n.lock))
	case late || !has || len(held) > 12:
		all := n.lock.hgetall()
		if !takes || has || again || len(all) == 0 || len(all) > 2 {
			return wire.Integers(0, 0)
		}
		who := all[0].Name
		if who == "mode" {
			if len(all) < 2 {
				return wire.Integers(0, 0)
			}
			who = all[1].Name
		}
		counted := int64(0)
		if late {
			counted = int64(last)
		}
		return wire.Reply{Value: []any{int64(3), counted, who}}
	}
	n.lock.hset(to, held)
	n.lock.hdel(from)
	if n.text(3) == "park" {
		before := n.pttl(n.lock)
		n.pexpire(n.lock, n.whole(4))
		n.earlier(before, n.number(4))
		if left := n.pttl(n.token); left >= 0 && float64(left) < n.number(4)+60000 {
			n.pexpire(n.token, integer(whole(n.number(4)+120000)))
		}
	}
	return wire.Integers(1, int64(last), n.pttl(n.lock))
}

// raise is raise.lua.
func (n *Node) raise() wire.Reply {
	shares := n.text(5) != ""
	until, ok := n.lock.hget(n.text(1))
	if !ok || (shares || len(until) > 12) && must(tonumber(until)) < n.clock() {
		return wire.Integer(0)
	}
	last, counted := 0.0, true
	if s, ok := n.token.get(); ok {
		last, counted = tonumber(s)
	}
	if shares {
		if must(last, counted) >= n.number(4) {
			return wire.Integer(1)
		}
	} else if !counted || last != n.number(3) {
		return wire.Integer(0)
	}
	if seconds := float64(n.now / 1000000 * 1000000); last != 0 || n.pttl(n.token) == -1 || n.number(4) >= seconds-minute {
		n.replaceCounter(n.text(4), keepFor(n.number(4), seconds, n.number(2)))
	}
	return wire.Integer(1)
}

// replaceCounter sets the counter. The counter is kept for ms, or for its former TTL if that is
// longer.
func (n *Node) replaceCounter(value string, ms float64) {
	if left := n.pttl(n.token); left == -1 {
		n.token.set(value)
	} else {
		n.setFor(n.token, value, max(float64(left), ms))
	}
}

// inspect is inspect.lua.
func (n *Node) inspect() wire.Reply {
	fields := n.fieldsOf(n.lock)
	token := "0"
	if n.token.kind == hash {
		panic(failure("NOTALOCK " + semaphoreMark))
	} else if n.token.exists() {
		token = n.counter()
	}
	all := n.queue.ranked()
	queue := all[:min(len(all), int(n.number(1)))]
	entries := make([]any, len(queue))
	for i, m := range queue {
		entries[i] = n.stored(m.Name).stored
	}
	held := make([]any, 0, 2)
	for _, f := range fields {
		held = append(held, f.Name, f.Value)
	}
	waiters := make([]any, 0, 2*len(queue))
	for _, m := range queue {
		waiters = append(waiters, m.Name, score(m.Score))
	}
	return wire.Reply{Value: []any{held, n.pttl(n.lock), token, int64(len(all)), waiters, entries, n.now.ms()}}
}
