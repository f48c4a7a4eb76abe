package scriptmodel

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The constants of queue.lua with these names. Times are in ms.
const (
	claim     = 1000
	overdue   = 650
	fresh     = 650
	few       = 16
	stretched = 2500
)

// The functions of queue.lua and of the files that are included after it. A waiter of "" stands for
// nil.

func (n *Node) culprit(field string) string {
	switch mode, ok := n.lock.hget("mode"); {
	case !ok || mode == "mutex" || mode == "shared":
		return field
	case mode == "latch":
		return latchMark
	}
	return "mode"
}

// look returns a copy of the fields that are holds or shares.
func (n *Node) look() (held []Field, shared bool) {
	mode := ""
	for _, f := range n.fieldsOf(n.lock) {
		switch {
		case f.Name == "mode" && (f.Value == "mutex" || f.Value == "shared"):
			mode = f.Value
		case !isHold(f):
			panic(failure("NOTALOCK " + n.culprit(f.Name)))
		default:
			held = append(held, f)
		}
	}
	if mode == "shared" {
		now := n.clock()
		living := held[:0]
		for _, f := range held {
			if must(tonumber(f.Value)) >= now {
				living = append(living, f)
			} else {
				n.lock.hdel(f.Name)
			}
		}
		if len(living) == 0 {
			n.lock.del()
		}
		return living, true
	}
	if len(held) > 1 || len(held) == 1 && mode == "" && !isRedissons(held[0].Name) {
		panic(failure("NOTALOCK " + least(held)))
	}
	return held, false
}

func (n *Node) looks(fields int) bool { return int(n.now%1000000)%fields < few }

func (n *Node) isCrowded() bool {
	if n.lock.kind != hash || len(n.lock.fields) <= few {
		return false
	}
	if mode, _ := n.lock.hget("mode"); mode != "shared" || n.looks(len(n.lock.fields)) {
		return false
	}
	for _, f := range n.lock.fields {
		if until, ok := tonumber(f.Value); ok && len(f.Value) > 12 && until >= n.clock() {
			return true
		}
	}
	return false
}

// refusal is the reply of a refusal. It has a waiter's position and the node's clock.
func (n *Node) refusal(status, ms int64, waiter, who string) wire.Reply {
	if waiter == "" {
		return wire.Reply{Value: []any{status, ms, int64(-1), who}}
	}
	return wire.Reply{Value: []any{status, ms, int64(n.queue.zrank(waiter)), who, int64(n.clock())}}
}

// refusedBy is the status of a refusal: by one holder, or by sharing holders.
func refusedBy(shared bool) int64 {
	if shared {
		return 7
	}
	return 0
}

func least(held []Field) string {
	who := held[0].Name
	for _, h := range held[1:] {
		who = min(who, h.Name)
	}
	return who
}

func (n *Node) drop(waiter string, alone bool) bool {
	wasQueued := n.queue.zrem(waiter)
	if wasQueued {
		n.entries.hdel(waiter)
		if alone {
			n.entries.hdel("served")
		}
	}
	return wasQueued
}

// isSuccessor is called with an attempt of +Inf if the script gives none.
func isSuccessor(owner, waiter string, before float64) bool {
	rest, ok := strings.CutPrefix(owner, waiter)
	if !ok || rest == "" || rest[0] != '/' {
		return false
	}
	attempt := decimal(rest[1:])
	if attempt == "" || len(attempt)+1 == len(rest) || rest[len(attempt)+1] != '.' {
		return false
	}
	a, _ := tonumber(attempt)
	return a < before
}

// attemptIn matches ' (%d+) %S+$'.
func attemptIn(entry string) float64 {
	i := strings.LastIndexFunc(entry, func(r rune) bool { return r < 128 && space(byte(r)) })
	if i < 0 || entry[i] != ' ' || i == len(entry)-1 {
		return 0
	}
	from := i
	for from > 0 && entry[from-1]-'0' <= 9 {
		from--
	}
	if from == i || from == 0 || entry[from-1] != ' ' {
		return 0
	}
	attempt, _ := tonumber(entry[from:i])
	return attempt
}

// attemptOf matches '/(%d+)%.%d+$'.
func attemptOf(owner string) float64 {
	slash := strings.LastIndexByte(owner, '/')
	if slash < 0 {
		return math.Inf(1)
	}
	number, cell, _ := strings.Cut(owner[slash+1:], ".")
	if number == "" || cell == "" || decimal(number) != number || decimal(cell) != cell {
		return math.Inf(1)
	}
	attempt, _ := tonumber(number)
	return attempt
}

func (n *Node) removeHold(owner string) (free bool) {
	n.lock.hdel(owner)
	if len(n.lock.fields) <= 1 {
		n.lock.del()
		return true
	}
	return false
}

func (n *Node) removeSuccessors(waiter, channel, last string) {
	if attempts, cell, ok := lastAttempt(last); ok && len(n.lock.hgetall()) > 2*few {
		for attempt := max(int(attempts)-few, 1); attempt <= int(attempts); attempt++ {
			n.lock.hdel(fmt.Sprintf("%s/%d.%s", waiter, attempt, cell))
		}
		return
	}
	for _, h := range slices.Clone(n.lock.hgetall()) {
		if isSuccessor(h.Name, waiter, attemptOf(last)) && n.removeHold(h.Name) {
			n.publish(channel, "00")
			n.tellFair(channel)
		}
	}
}

func (n *Node) tellFair(channel string) {
	for _, thread := range n.fair.items[:min(len(n.fair.items), 2)] {
		n.publish(channel+":"+thread, "0")
	}
}

// lastAttempt matches (%d+)[. ](%d+)$.
func lastAttempt(s string) (attempts float64, cell string, ok bool) {
	i := strings.LastIndexAny(s, ". ")
	if i < 0 || i == len(s)-1 || decimal(s[i+1:]) != s[i+1:] {
		return 0, "", false
	}
	from := i
	for from > 0 && s[from-1]-'0' <= 9 {
		from--
	}
	attempts, ok = tonumber(s[from:i])
	return attempts, s[i+1:], ok
}

func deadline(stored string) float64 {
	ms, _ := tonumber(decimal(stored)) // 0 without digits
	return ms
}

func (n *Node) expiry(held []Field, shared bool) int64 {
	if !shared {
		return n.pttl(n.lock)
	}
	last := 0.0
	for _, h := range held {
		last = max(last, must(tonumber(h.Value)))
	}
	return int64(last + 1 - n.clock())
}

func (n *Node) hasten(w queued, now float64) {
	if deadline(w.stored) > now+stretched {
		n.entries.hset(w.name, whole(now+stretched)+w.stored[len(word(w.stored)):])
		n.tell("next", w.name, "")
	}
}

func wantsShare(stored string) bool { return marked(stored, "s") }

func tries(stored string) bool { return marked(stored, "t") }

// gathers matches ^%S+ %d+s[%d-]*m.
func gathers(stored string) bool { return gathering.MatchString(stored) }

var gathering = regexp.MustCompile(`^\S+ \d+s[\d-]*m`)

// isNobody matches ^%S+ 0.
func isNobody(stored string) bool {
	first := word(stored)
	return first != "" && strings.HasPrefix(stored[len(first):], " 0")
}

// leads reports whether a waiter is the first in the queue, or the first behind an entry for 0
// callers.
func (n *Node) leads(waiter string) bool {
	first := n.queue.first()
	return first == waiter || n.queue.zrank(waiter) == 1 && isNobody(n.stored(first).stored)
}

// marked matches ^%S+ %d+ and the mark.
func marked(stored, mark string) bool {
	rest := stored[len(word(stored)):]
	if len(rest) == len(stored) || len(rest) < 2 || rest[0] != ' ' {
		return false
	}
	callers := decimal(rest[1:])
	return callers != "" && strings.HasPrefix(rest[1+len(callers):], mark)
}

// queued is a waiter and its entry; a name of "" stands for nil.
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
			n.nobodyServed()
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

func (n *Node) forget(waiter string) {
	served, ok := n.entries.hget("served")
	if !ok {
		return
	}
	if ticket, queued := n.queue.zscore(waiter); queued && ticket < must(tonumber(served)) {
		n.entries.hset("served", score(ticket))
	}
}

func (n *Node) join(waiter, entry string, now float64, held bool) (wasQueued bool) {
	ticket, rest, ok := cut(entry)
	ticket, unsure := strings.CutSuffix(ticket, "?")
	life, rest, ok2 := cut(rest)
	callers, successor, ok3 := cut(rest)
	if !ok || !ok2 || !ok3 {
		panic(noNumber)
	}
	if unsure && math.Abs(must(tonumber(ticket))-now*1000) > 1000000 {
		ticket = whole(now * 1000)
	}
	if _, ok := float(ticket); !ok {
		panic(notFloat)
	}
	if _, wasQueued = n.queue.zscore(waiter); !wasQueued || !unsure {
		n.queue.zadd(ticket, waiter)
	}
	ms := must(tonumber(life))
	short := float64(n.pttl(n.entries)) < ms || float64(n.pttl(n.queue)) < ms
	if short {
		n.expire(n.queue, strconv.FormatFloat(ms, 'f', -1, 64))
	}
	b := make([]byte, 0, 128)
	b = append(appendWhole(b, now+ms), ' ')
	b = append(b, callers...)
	if successor != "" {
		b = append(appendWhole(append(b, ' '), now), ' ')
		b = append(b, successor...)
	}
	n.entries.hset(waiter, string(b))
	if short {
		n.pexpire(n.entries, int64(ms))
	}
	if !held && !strings.ContainsAny(callers, "st") {
		n.forget(waiter)
	}
	if !wasQueued {
		n.dropBefore(waiter, now)
	}
	return wasQueued
}

func (n *Node) dropBefore(me string, now float64) {
	for range 100 {
		q := n.queue.ranked()
		if len(q) < 2 || q[len(q)-1].Name != me || deadline(n.stored(q[len(q)-2].Name).stored) > now {
			return
		}
		n.drop(q[len(q)-2].Name, false)
	}
}

func (n *Node) tell(what, waiter, more string) {
	if i := strings.LastIndexByte(waiter, ':'); i >= 0 {
		n.publish(wire.WakeChannel(waiter[:i]), what+" "+waiter+" "+more+n.name)
	}
}

// summon is summon in queue.lua; slot is -1 for nil.
func (n *Node) summon(w queued, now float64, slot int) {
	if deadline(w.stored) > now+claim {
		n.entries.hset(w.name, whole(now+claim)+w.stored[len(word(w.stored)):])
	}
	if slot < 0 {
		n.tell("turn", w.name, "")
	} else {
		n.tell("slot", w.name, whole(float64(slot))+" ")
	}
}

func (n *Node) hand(w queued, now float64) bool {
	s, ok := successorIn(w.stored)
	if !ok || n.token == nil {
		return false
	}
	came := must(tonumber(s.came))
	if now < came || now-came > min(fresh, must(tonumber(s.ttl))/2) {
		return false
	}
	shares := wantsShare(w.stored)
	token := 0.0
	if shares && !gathers(w.stored) {
		if n.token.kind != text {
			return false
		}
		if token, ok = tonumber(n.token.text); !ok || token != token || token > lastToken {
			return false
		}
	} else if token, ok = n.countUp(); !ok {
		return false
	}
	n.drop(w.name, !shares)
	owner := w.name + "/" + s.attempt + "." + s.cell
	if ttl := must(tonumber(s.ttl)); shares {
		if n.hasTwin(w, s, now) {
			return true
		}
		if !n.lock.hexists(owner) {
			n.sharedUntil(owner, now+ttl, ttl)
		}
	} else {
		left, keep := n.pttl(n.token), max(0, token/1000-now)+max(ttl, 120000)+60000
		if left >= 0 && float64(left) < keep {
			n.pexpire(n.token, integer(whole(keep+60000)))
		}
		n.lock.hset(owner, "1")
		n.lock.hset("mode", "mutex")
		n.expire(n.lock, s.ttl)
	}
	handoff := s.attempt + " " + s.cell + " " + whole(token) + " "
	sum := sha1.Sum([]byte(s.secret + " " + w.name + " " + handoff + n.name + " " + s.secret))
	n.tell("handoff", w.name, handoff+hex.EncodeToString(sum[:])+" ")
	return true
}

// countUp returns the token of a hold that is handed over. ok is false without a usable counter.
func (n *Node) countUp() (token float64, ok bool) {
	if n.token.kind == none || n.token.kind == text && n.token.text == strconv.FormatInt(math.MaxInt64, 10) || !n.token.incrby(1) {
		return 0, false
	}
	counted, _ := strconv.ParseInt(n.token.text, 10, 64)
	token = float64(counted)
	switch {
	case token < 2:
		n.token.del()
		return 0, false
	case token > lastToken:
		n.token.incrby(-1)
		return 0, false
	}
	return token, true
}

var cellsOf = regexp.MustCompile(`^\S+ \d+s(\d+)-(\d+)`)

// hasTwin reports whether a waiter's successor already has a share here as another cell.
func (n *Node) hasTwin(w queued, s successor, now float64) bool {
	cells := cellsOf.FindStringSubmatch(w.stored)
	if cells == nil {
		return false
	}
	own, _ := tonumber(s.cell)
	for cell := integer(cells[1]); cell <= integer(cells[2]); cell++ {
		until, shares := n.lock.hget(fmt.Sprintf("%s/%s.%d", w.name, s.attempt, cell))
		if shares && float64(cell) != own && must(tonumber(until)) >= now {
			return true
		}
	}
	return false
}

// successor is the part of an entry about the owner that may be handed the lock.
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

// sharers returns the zero queued if all waiters want to share the lock.
func (n *Node) sharers(me string, now float64, visit func(queued) (left bool)) (first queued) {
	from, count, start, passed := 0, 4, -1, ""
	defer func() {
		if visit != nil && start >= 0 && from > start+few {
			ticket, _ := n.queue.zscore(passed)
			n.entries.hset("served", score(ticket))
		}
	}()
	for {
		if from >= few && start < 0 {
			start = max(from, n.served())
			if rank := n.queue.zrank(me); start > from && rank >= 0 && rank < start {
				if visit == nil {
					return queued{}
				}
				visit(queued{name: me})
			}
			from = start
		}
		some := n.queue.ranked()
		some = slices.Clone(some[min(from, len(some)):min(from+count, len(some))])
		if len(some) == 0 {
			if from == 0 {
				n.nobodyServed()
			}
			return queued{}
		}
		if count = few; start >= 0 {
			count = 100
		}
		all := make([]queued, len(some))
		for i, m := range some {
			all[i] = n.stored(m.Name)
		}
		for _, w := range all {
			if from >= few && start < 0 {
				break
			}
			switch {
			case w.name == me && visit == nil:
				return queued{}
			case w.name != me && deadline(w.stored) <= now:
				n.drop(w.name, false)
			case !wantsShare(w.stored) && !tries(w.stored):
				return w
			case tries(w.stored), visit == nil, !visit(w):
				from, passed = from+1, w.name
			}
		}
	}
}

// nobodyServed deletes the field 'served'. A key of another type stays as it is.
func (n *Node) nobodyServed() {
	if n.entries.kind == hash {
		n.entries.hdel("served")
	}
}

// served returns how many waiters have been served: see sharers.lua.
func (n *Node) served() int {
	served, ok := n.entries.hget("served")
	if !ok {
		return 0
	}
	return n.before(must(tonumber(served)))
}

// before returns how many waiters have lower tickets.
func (n *Node) before(ticket float64) int {
	at, _ := slices.BinarySearchFunc(n.queue.ranked(), Member{"", ticket}, compareMembers)
	return at
}

func (n *Node) admit(me string, now float64, hands, lends bool) (mine bool) {
	first := n.sharers(me, now, func(w queued) bool {
		switch {
		case w.name == me:
			mine = true
		case hands && (lends || !gathers(w.stored)) && n.hand(w, now):
			lends = lends && !gathers(w.stored)
			return true
		case deadline(w.stored) > now+claim:
			n.summon(w, now, -1)
		}
		return false
	})
	if first.name != "" && first.name != me {
		n.hasten(first, now)
	}
	return mine
}

func (n *Node) wake(me string, now float64, hands, led, lends bool) (first bool) {
	one, two := n.firstTwo(me, now)
	switch {
	case one.name == "":
		return false
	case wantsShare(one.stored):
		return n.admit(me, now, hands, lends)
	case one.name == me:
		return true
	case isNobody(one.stored):
		if two.name == "" {
			left := int64(deadline(one.stored) - now)
			n.pexpire(n.queue, left)
			n.pexpire(n.entries, left)
		} else if led {
			n.tell("turn", two.name, "")
		}
		return false
	}
	if !hands || !n.hand(one, now) {
		n.summon(one, now, -1)
	}
	if two.name != "" && deadline(two.stored) > now+stretched {
		n.tell("next", two.name, "")
	}
	return false
}

func (n *Node) serveQueue(me string, now float64, hands, led, lends bool) (mine bool) {
	if !n.lock.exists() {
		return n.wake(me, now, hands, led, lends)
	}
	if mode, _ := n.lock.hget("mode"); mode == "shared" {
		if len(n.lock.fields) <= few {
			if held, err := n.tryLook(); err == "" && len(held) == 0 {
				return n.wake(me, now, hands, led, lends)
			}
		}
		return n.admit(me, now, true, lends)
	}
	if led {
		one, two := n.firstTwo("", now)
		if isNobody(one.stored) {
			one = two
		}
		if one.name != "" && deadline(one.stored) > now+stretched {
			n.tell("next", one.name, "")
		}
	}
	return false
}

// tryLook is look for a script that goes on after an error.
func (n *Node) tryLook() (held []Field, err failure) {
	defer func() {
		if f, ok := recover().(failure); ok {
			err = f
		}
	}()
	held, _ = n.look()
	return held, ""
}

var markOf = regexp.MustCompile(`,(\d+)`)

func (n *Node) call(me string, now float64) float64 {
	first := n.front(me, now)
	left := deadline(first.stored) - now
	if left > claim {
		n.summon(first, now, -1)
		left = claim
	}
	if left > claim-overdue {
		return left - (claim - overdue)
	}
	if isNobody(first.stored) {
		return left
	}
	last := 0
	if me != "" {
		last = max(n.queue.zrank(me), 0)
	}
	called := 0
	if mark := markOf.FindStringSubmatch(first.stored); mark != nil {
		called = n.before(must(tonumber(mark[1])))
	}
	if called < last {
		ticket, _ := n.queue.zscore(me)
		n.entries.hset(first.name, whole(now+left)+","+score(ticket)+first.stored[len(word(first.stored)):])
	}
	for i, m := range n.queue.ranked()[:last] {
		w := n.stored(m.Name)
		if i >= called && deadline(w.stored) > now+claim {
			n.summon(w, now, -1)
		}
		// The entry just stored by summon does not count: it is the claim at most.
		left = max(left, math.Min(deadline(w.stored)-now, claim))
	}
	return max(left, 1)
}
