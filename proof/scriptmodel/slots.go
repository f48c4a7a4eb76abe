package scriptmodel

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"regexp"
	"slices"
	"strings"
)

// The functions of slots.lua.

const (
	semaphoreMark = "quorumlock_semaphore"
	slotsScore    = 1e15
	latchMark     = "quorumlock_latch" // of a latch
)

// record is the member with the slot of a successor; "" if the owner is none.
func record(owner string) string { return owner[:strings.LastIndexByte(owner, '/')+1] }

// give returns -1 if the owner has no slot.
func (n *Node) give(owner string) int {
	slot, ok := n.slots.zscore(owner)
	if !ok {
		return -1
	}
	if r := record(owner); r != "" {
		if kept, _ := n.slots.zscore(r); kept == -1-slot {
			n.slots.zrem(r)
		}
	}
	n.slots.zrem(owner)
	n.lock.zrem(owner)
	if len(n.lock.ranked()) == 1 {
		n.lock.del()
	}
	return int(slot)
}

func (n *Node) prune(now float64) {
	if !n.lock.exists() {
		n.slots.del()
		return
	}
	var over []string
	for _, m := range n.lock.ranked() {
		if m.Score < now {
			over = append(over, m.Name)
		}
	}
	for _, owner := range over {
		if n.give(owner) < 0 {
			n.lock.zrem(owner)
		}
	}
}

// check panics if the name has another use. Otherwise it returns the number of slots, 0 if it is
// unknown.
func (n *Node) check() int {
	if what := n.wrong(); what != "" {
		panic(failure("NOSEMAPHORE " + what))
	}
	return n.permits()
}

func (n *Node) permits() int {
	score, ok := n.lock.zscore(semaphoreMark)
	if !ok || math.IsInf(score, 1) {
		return 0
	}
	return int(score - slotsScore)
}

func (n *Node) isOther(number, k int) bool { return number != 0 && number != k && n.lock.exists() }

// wrong returns the other use of the name, as the error NOSEMAPHORE names it; "" if there is none.
func (n *Node) wrong() string {
	switch {
	case n.lock.kind == hash:
		return n.culprit(least(n.lock.fields))
	case n.lock.kind == text:
		return "WRONGTYPE"
	case n.lock.kind == zset && n.lock.zrank(semaphoreMark) < 0:
		return "zset"
	case n.token.exists() && n.token.kind != hash:
		return "token"
	}
	return ""
}

// taken has the owners with a slot, in its order.
func (n *Node) taken() (owners []Member) {
	for _, m := range n.slots.ranked() {
		if m.Score >= 0 {
			owners = append(owners, m)
		}
	}
	return owners
}

func (n *Node) lowest() string {
	if all := n.taken(); len(all) > 0 {
		return all[0].Name
	}
	return ""
}

func (n *Node) vacancies(k int) int { return k - n.slots.zcount(0, k-1) }

// vacant returns a free slot below k by the search of slots.lua, or a taken one if none is free:
// waiters may know different numbers of slots.
func (n *Node) vacant(k, from int) int {
	low, high := from%k, k
	if n.slots.zcount(low, high-1) == high-low {
		low, high = 0, low
	}
	if n.slots.zcount(low, low) == 0 {
		return low
	}
	for high-low > 1 {
		if middle := (low + high) / 2; n.slots.zcount(low, middle-1) < middle-low {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

func (n *Node) lengthen(k *key, ms float64) { n.lengthenBy(k, ms, 0) }

// lengthenBy makes a key last for at least ms, and for some more if it must change the expiry.
func (n *Node) lengthenBy(k *key, ms, more float64) {
	if float64(n.pttl(k)) < ms {
		n.pexpire(k, integer(whole(ms+more)))
	}
}

// assign has a k of 0 for nil.
func (n *Node) assign(owner string, slot int, token, now, ttl float64, k int) {
	number := whole(float64(slot))
	if token/1000 >= now-60000 || n.token.hexists(number) {
		n.token.hset(number, whole(token))
		n.lengthenBy(n.token, max(0, math.Floor(token/1000)-now)+max(ttl, 120000)+60000, 60000)
	}
	n.lock.zadd(whole(now+ttl), owner)
	if k > 0 {
		n.lock.zadd(whole(slotsScore+float64(k)), semaphoreMark)
	} else if _, ok := n.lock.zscore(semaphoreMark); !ok {
		n.lock.zadd("+inf", semaphoreMark)
	}
	n.lengthen(n.lock, ttl)
	n.slots.zadd(number, owner)
	if r := record(owner); r != "" {
		n.slots.zadd(whole(float64(-1-slot)), r)
	}
	n.lengthen(n.slots, ttl)
}

var lastDigits = regexp.MustCompile(`\d+$`)

var wanted = regexp.MustCompile(` \d+k(\d+)p(\d+)(?:o(\d+))?`)

// wants returns an other of -1 for nil.
func wants(stored string) (k, wish, other int, ok bool) {
	m := wanted.FindStringSubmatch(stored)
	if m == nil {
		return 0, 0, -1, false
	}
	other = -1
	if m[3] != "" {
		other = int(must(tonumber(m[3])))
	}
	return int(must(tonumber(m[1]))), int(must(tonumber(m[2]))), other, true
}

func (n *Node) successorOf(waiter string) string {
	kept, ok := n.slots.zscore(waiter + "/")
	if !ok {
		return ""
	}
	return n.slots.at(int(-1 - kept))
}

func (n *Node) handSlot(w queued, slot int, now float64, k int) bool {
	s, ok := successorIn(w.stored)
	if !ok {
		return false
	}
	came, ttl := must(tonumber(s.came)), must(tonumber(s.ttl))
	if now < came || now-came > min(fresh, ttl/2) || n.successorOf(w.name) != "" || n.token.kind != hash {
		return false
	}
	stored, _ := n.token.hget(whole(float64(slot)))
	token, ok := tonumber(stored)
	if !ok || token != token || token >= lastToken {
		return false
	}
	n.drop(w.name, false)
	n.assign(w.name+"/"+s.attempt+"."+s.cell, slot, token+1, now, ttl, k)
	handoff := s.attempt + " " + s.cell + " " + whole(token+1) + "@" + whole(float64(slot)) + " "
	sum := sha1.Sum([]byte(s.secret + " " + w.name + " " + handoff + n.name + " " + s.secret))
	n.tell("handoff", w.name, handoff+hex.EncodeToString(sum[:])+" ")
	return true
}

func (n *Node) final(free int) int { return min(free, len(n.queue.ranked())) - 1 }

func (n *Node) callLast(free int, now float64) {
	if last := n.final(free); last >= 0 {
		if w := n.stored(n.queue.ranked()[last].Name); deadline(w.stored) > now+claim {
			n.summon(w, now, -1)
		}
	}
}

// serve is serve in slots.lua; released is -1 for nil.
func (n *Node) serve(me string, now float64, hands bool, released int) bool {
	if n.wrong() != "" {
		return false
	}
	number := n.permits()
	n.prune(now)
	from, served, mine := 0, false, false
	for {
		q := n.queue.ranked()
		if from >= len(q) {
			return mine
		}
		w := n.stored(q[from].Name)
		k, wish, _, ok := wants(w.stored)
		switch {
		case !ok || w.name != me && deadline(w.stored) <= now:
			n.drop(w.name, false)
		case n.vacancies(k) <= from || served && me == "":
			free := n.vacancies(k)
			if served && free > 0 {
				n.callLast(free, now)
			}
			if free <= from && w.name != me && deadline(w.stored) > now+stretched {
				n.tell("next", w.name, "")
			}
			return mine
		case w.name == me:
			return true
		case !served && hands && n.vacancies(k) == 1 && !n.isOther(number, k) && n.handSlot(w, n.vacant(k, wish), now, k):
			served = true
		default:
			if !served && deadline(w.stored) > now+claim {
				if released >= k {
					released = -1
				}
				n.summon(w, now, released)
				served = true
			}
			if from++; from == few && n.final(n.vacancies(k)) > from {
				from = n.final(n.vacancies(k))
				if me != "" && n.queue.zrank(me) < from {
					me, mine = "", true
				}
			}
		}
	}
}

func (k *key) zscore(member string) (float64, bool) {
	i := k.zrank(member)
	if i < 0 {
		return 0, false
	}
	return k.members[i].Score, true
}

// zcount counts the members with scores from low to high.
func (k *key) zcount(low, high int) (count int) {
	for _, m := range k.ranked() {
		if float64(low) <= m.Score && m.Score <= float64(high) {
			count++
		}
	}
	return count
}

// at returns the first member with a score, "" if there is none.
func (k *key) at(score int) string {
	i := slices.IndexFunc(k.ranked(), func(m Member) bool { return m.Score == float64(score) })
	if i < 0 {
		return ""
	}
	return k.members[i].Name
}
