package scriptmodel

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"strings"

	"github.com/quorumlock/quorumlock/scripts"
)

// What queue.lua calls by these names, in ms.
const (
	claim     = 1000
	patience  = 650
	fresh     = 650
	stretched = 2500
)

// The functions of queue.lua. A waiter of "" stands for nil.

func (n *Node) drop(waiter string) bool {
	stood := n.queue.zrem(waiter)
	if stood {
		n.entries.hdel(waiter)
	}
	return stood
}

// isSuccessor is called with an entry of "" if the script gives none.
func isSuccessor(owner, waiter, entry string) bool {
	rest, ok := strings.CutPrefix(owner, waiter)
	if !ok || rest == "" || rest[0] != '/' {
		return false
	}
	attempt := decimal(rest[1:])
	if attempt == "" || len(attempt)+1 == len(rest) || rest[len(attempt)+1] != '.' {
		return false
	}
	if entry == "" {
		return true
	}
	own := attemptOf(entry)
	if own == "" {
		return false
	}
	a, _ := tonumber(attempt)
	b, _ := tonumber(own)
	return a < b
}

// attemptOf matches ' (%d+) %S+$'.
func attemptOf(entry string) string {
	i := strings.LastIndexFunc(entry, func(r rune) bool { return r < 128 && space(byte(r)) })
	if i < 0 || entry[i] != ' ' || i == len(entry)-1 {
		return ""
	}
	from := i
	for from > 0 && entry[from-1]-'0' <= 9 {
		from--
	}
	if from == i || from == 0 || entry[from-1] != ' ' {
		return ""
	}
	return entry[from:i]
}

func (n *Node) takeBack(waiter, channel string) {
	held := n.lock.hgetall()
	for i := 0; i < len(held); i++ {
		if name := held[i].Name; isSuccessor(name, waiter, "") {
			n.lock.hdel(name)
			held = held[:len(held)-1]
			i--
			n.publish(channel, "0")
		}
	}
}

func deadline(stored string) float64 {
	if w := word(stored); w != "" {
		return must(tonumber(w))
	}
	return 0
}

// queued is a waiter and what is stored of it; a name of "" is nobody.
type queued struct{ name, stored string }

// front returns only the first of the two in the queue.
func (n *Node) front(me string, now float64) queued {
	first, _ := n.firstTwo(me, now)
	return first
}

// firstTwo is front in queue.lua.
func (n *Node) firstTwo(me string, now float64) (one, two queued) {
	for {
		q := n.queue.ranked()
		if len(q) == 0 {
			return queued{}, queued{}
		}
		one, two = n.stored(q[0].Name), queued{}
		if len(q) > 1 {
			two = n.stored(q[1].Name)
		}
		if one.name == me || deadline(one.stored) > now {
			return one, two
		}
		dead := 0
		for _, m := range q[:min(len(q), 100)] {
			if m.Name == me || deadline(n.stored(m.Name).stored) > now {
				break
			}
			dead++
		}
		for _, m := range q[:dead] {
			n.entries.hdel(m.Name)
		}
		n.queue.zremFrom(0, dead)
	}
}

func (n *Node) stored(waiter string) queued {
	stored, _ := n.entries.hget(waiter)
	return queued{waiter, stored}
}

func (n *Node) join(waiter, entry string, now float64) (stood bool) {
	ticket, rest, ok := cut(entry)
	life, rest, ok2 := cut(rest)
	callers, successor, ok3 := cut(rest)
	if !ok || !ok2 || !ok3 {
		panic(noNumber)
	}
	stood = !n.queue.zadd(ticket, waiter)
	ms := must(tonumber(life))
	b := make([]byte, 0, 128)
	b = append(appendWhole(b, now+ms), ' ')
	b = append(b, callers...)
	if successor != "" {
		b = append(appendWhole(append(b, ' '), now), ' ')
		b = append(b, successor...)
	}
	n.entries.hset(waiter, string(b))
	if float64(n.pttl(n.entries)) < ms || float64(n.pttl(n.queue)) < ms {
		if ms != math.Trunc(ms) {
			panic(notInteger)
		}
		n.pexpire(n.queue, int64(ms))
		n.pexpire(n.entries, int64(ms))
	}
	return stood
}

func (n *Node) tell(what, waiter, more string) {
	if i := strings.LastIndexByte(waiter, ':'); i >= 0 {
		n.publish(scripts.WakeChannel(waiter[:i]), what+" "+waiter+" "+more+n.name[0])
	}
}

func (n *Node) summon(w queued, now float64) {
	if deadline(w.stored) > now+claim {
		n.entries.hset(w.name, whole(now+claim)+w.stored[len(word(w.stored)):])
	}
	n.tell("turn", w.name, "")
}

func (n *Node) hand(w queued, now float64) bool {
	s, ok := successorIn(w.stored)
	if !ok {
		return false
	}
	came := must(tonumber(s.came))
	if now < came || now-came > min(fresh, must(tonumber(s.ttl))/2) {
		return false
	}
	if n.token.kind != text {
		return false
	}
	last, ok := tonumber(n.token.text)
	if !ok || last != last || last >= lastToken {
		return false
	}
	kept, ahead := 93600000.0, last/1000-now
	if ttl := must(tonumber(s.ttl)); ahead > 3600000 || ttl > 3600000 {
		kept = ttl + 86400000 + max(0, ahead)
	}
	token := whole(last + 1)
	n.drop(w.name)
	n.lock.hset(w.name+"/"+s.attempt+"."+s.cell, "1")
	n.pexpire(n.lock, integer(s.ttl))
	n.setFor(n.token, token, kept)
	handoff := s.attempt + " " + s.cell + " " + token + " "
	sum := sha1.Sum([]byte(s.secret + " " + w.name + " " + handoff + n.name[0] + " " + s.secret))
	n.tell("handoff", w.name, handoff+hex.EncodeToString(sum[:])+" ")
	return true
}

// successor is what an entry says of the owner to whom the lock may be handed.
type successor struct{ came, ttl, cell, attempt, secret string }

// successorIn matches ^%S+ %S+ (%S+) (%S+) (%S+) (%S+) (%S+)$.
func successorIn(stored string) (successor, bool) {
	var f [6]string
	rest := stored
	for i := range f {
		var ok bool
		if f[i], rest, ok = cut(rest); !ok {
			return successor{}, false
		}
	}
	return successor{f[2], f[3], f[4], f[5], rest}, rest != "" && word(rest) == rest
}

func (n *Node) wake(me string, now float64, hands bool) (first bool) {
	one, two := n.firstTwo(me, now)
	if one.name == "" || one.name == me {
		return one.name != ""
	}
	if !hands || !n.hand(one, now) {
		n.summon(one, now)
	}
	if two.name != "" && deadline(two.stored) > now+stretched {
		n.tell("next", two.name, "")
	}
	return false
}

func (n *Node) promote(now float64) {
	if one, _ := n.firstTwo("", now); one.name != "" && deadline(one.stored) > now+stretched {
		n.tell("next", one.name, "")
	}
}

func (n *Node) call(me string, now float64) float64 {
	first := n.front(me, now)
	left := deadline(first.stored) - now
	if left > claim {
		n.summon(first, now)
		left = claim
	}
	if left > claim-patience {
		return left - (claim - patience)
	}
	last := 0
	if me != "" {
		last = max(n.queue.zrank(me), 0)
	}
	for _, m := range n.queue.ranked()[:last] {
		w := n.stored(m.Name)
		if deadline(w.stored) > now+claim {
			n.summon(w, now)
		}
		// What summon has just stored does not count: it is the claim at most.
		left = max(left, math.Min(deadline(w.stored)-now, claim))
	}
	return max(left, 1)
}
