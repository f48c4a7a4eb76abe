package scriptmodel

import (
	"math"
	"regexp"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

const lastToken = 1<<53 - 1 // the last integer Lua can count to

const minute = 60000000 // µs

const exhausted failure = "ERR the fencing token is exhausted: use another lock name"

// acquire is acquire.lua.
func (n *Node) acquire() wire.Reply {
	owner, how := n.text(1), n.text(4)
	hold, enters := tonumber(how)
	if !enters {
		hold = 1
	}
	again := false
	former := ""
	if hold != 1 || n.lock.exists() || n.queue.exists() {
		waiter, entry, _ := cut(how)
		pttl, who := int64(-2), ""
		held, shared := []Field{{}}, true
		many := n.isCrowded()
		if !many {
			held, shared = n.look()
		}
		if len(held) > 0 {
			pttl, who = n.expiry(held, shared && !many), least(held)
			count, _ := digits(held[0].Value)
			again = !shared && who == owner && (count == hold || count == hold-1)
			if waiter != "" && !shared && isSuccessor(who, waiter, attemptIn(entry)) {
				former, pttl = who, -2
			}
		}
		free := pttl == -2 && hold == 1
		if !again {
			mine := free && (former != "" || how == "keep" || n.queue.first() == waiter)
			if !mine {
				now := n.clock()
				wasQueued := waiter != "" && n.join(waiter, entry, now, len(held) > 0 && !shared)
				first := ""
				if free || wasQueued {
					one := n.front(waiter, now)
					first = one.name
					mine = free && first != "" && first == waiter
					if !free && shared && wantsShare(one.stored) && deadline(one.stored) > now+claim {
						n.summon(one, now, -1)
					}
				}
				mine = mine || free && first == ""
				if !mine {
					status := refusedBy(shared && len(held) > 0)
					if free {
						status, who, pttl = 4, first, int64(n.call(waiter, now))
					}
					return n.refusal(status, pttl, waiter, who)
				}
			}
			if waiter != "" {
				n.drop(waiter, true)
			} else {
				n.nobodyServed()
			}
		}
	}

	last := n.count()
	asked, ttl := n.number(3), n.number(2)
	token := asked
	if again || last >= asked || last < asked-math.Mod(asked, minute) || math.Mod(last, minute) < 2000000 || asked > lastToken ||
		ttl > 120000 || how == "keep" || !n.token.incrby(asked-last) {
		token = n.grant(last, asked, ttl, how == "keep", again)
	}
	if former != "" {
		n.lock.hdel(former)
	}
	count := "1"
	if hold != 1 {
		count = how
	}
	n.lock.hset(owner, count)
	n.lock.hset("mode", "mutex")
	before := n.pttl(n.lock)
	n.expire(n.lock, n.text(2))
	if again {
		n.earlier(before, n.number(2))
		return wire.Integers(2, int64(token))
	}
	return wire.Integer(int64(token))
}

// grant counts with a look at the clock and at the counter's expiry.
func (n *Node) grant(last, asked, ttl float64, keeps, again bool) float64 {
	now, token := float64(n.now), last
	oldest := now - minute
	if !again || last == 0 {
		token = n.next(last, asked, keeps)
	}
	keep := keepFor(token, now, ttl)
	switch left := n.pttl(n.token); {
	case last == 0 && token == asked && token-now <= minute && ttl <= 120000 && token >= oldest:
		n.setFor(n.token, n.text(3), 240000)
	case last == 0 && token < oldest:
	case left != -1 && float64(left) < keep:
		n.setFor(n.token, whole(token), keep+60000)
	case token > last && !n.token.incrby(token-last):
		n.replaceCounter(whole(token), 0)
	}
	return token
}

// next returns the token of a new grant or of a restored one.
func (n *Node) next(last, asked float64, keeps bool) float64 {
	now, token := float64(n.now), asked
	switch {
	case keeps:
		token = max(last+1, asked)
	case asked > max(last, now-minute-1) && asked <= now+minute:
	case last >= now-minute:
		token = last + 1
	default:
		token = soon(now)
	}
	if token > lastToken {
		panic(exhausted)
	}
	return token
}

// soon returns the end of the clock's ten seconds, in which nodes agree without a hint.
func soon(now float64) float64 { return now - math.Mod(now, minute/6) + minute/6 }

// keepFor returns for how long a counter is kept, in ms: until two minutes after the minute of the
// token, and a minute after the lock.
func keepFor(token, now, ttl float64) float64 {
	return max(0, (token-now)/1000) + max(ttl, 120000) + 60000
}

// count reads the token counter.
func (n *Node) count() float64 {
	if !n.token.exists() {
		return 0
	}
	if n.token.kind == hash {
		panic(failure("NOTALOCK " + semaphoreMark))
	}
	token, ok := tonumber(n.counter())
	if !ok || token != token {
		panic(n.badToken())
	}
	return token
}

// counter is the text of the token, which is there.
func (n *Node) counter() string {
	if n.token.kind != text {
		panic(n.badToken())
	}
	return n.token.text
}

func (n *Node) badToken() failure {
	return failure("ERR the fencing token is not a number: delete " + wire.TokenKey(n.name))
}

// fieldsOf are the fields of a lock, which is a hash or not there.
func (n *Node) fieldsOf(lock *key) []Field {
	if lock.kind == zset && lock.zrank(semaphoreMark) >= 0 {
		panic(failure("NOTALOCK " + semaphoreMark))
	}
	if lock.kind != hash && lock.exists() {
		panic(failure("NOTALOCK WRONGTYPE"))
	}
	return lock.fields
}

// isRedissons matches ^%x+%-%x+%-%x+%-%x+%-%x+():%d+$, where the 37th character is the colon.
func isRedissons(owner string) bool {
	return redissons.MatchString(owner) && strings.IndexByte(owner, ':') == 36
}

var redissons = regexp.MustCompile(`^[0-9A-Fa-f]+(-[0-9A-Fa-f]+){4}:[0-9]+$`)

// isHold reports whether a field of the lock's hash may be an owner with its count or share's end.
func isHold(f Field) bool {
	if f.Value == "" || len(f.Value) > 15 || decimal(f.Value) != f.Value || word(f.Name) != f.Name {
		return false
	}
	i := strings.LastIndexByte(f.Name, ':')
	number := f.Name[i+1:]
	return i > 0 && number != "" && number[0]-'0' <= 9 && strings.Trim(number, "0123456789/.") == ""
}
