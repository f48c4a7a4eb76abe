package coresim

import (
	"math"
	"slices"
	"time"
)

// nameSet is a set of names, as bits.
type nameSet uint

func (s nameSet) has(name int) bool { return s>>name&1 != 0 }

// all returns the names of a lock.
func (l *lock) all() (s nameSet) {
	for _, name := range l.names {
		s |= 1 << name
	}
	return s
}

// progress checks that callers do not keep a lock from each other. A group is the set of callers in
// a call that want a name in common, directly or through other callers. While nobody blocks the
// first caller of a group, one of the group is granted its lock within 40 messages and the pauses
// of a split vote: no message is lost, so no caller waits for its refresh. The audits sample that.
// Lost holds count until their Unlock, which deletes the keys at the nodes. Plans with peers
// without messages are exempt: callers only poll for these peers.
func (t *tier) progress() {
	w, now := &t.watch, t.world.Now()
	all := nameSet(1)<<len(names) - 1
	if t.plan.Class != calm || t.isSilent() {
		return
	}
	if len(w.calls) == 0 {
		w.moved(all)
		return
	}
	soon := 20*time.Millisecond + 40*t.plan.Latency
	if len(t.peers) > 0 { // a window, see noticed
		soon += 20*time.Millisecond + time.Duration(10*len(w.calls))*time.Millisecond
	}
	if w.keeps { // nobody announces the end of a kept lock
		soon += refresh
	}
	taken, alone := t.taken()
	if n := t.moves(); n != w.moves {
		w.moves = n
		w.moved(all)
	}
	for all != 0 {
		group := t.group(all & -all)
		all &^= group
		k := t.mayGoOn(group, taken, alone)
		if k == nil {
			w.moved(group)
			continue
		}
		waits := t.now(k.process.number).Mono - k.began
		for name := range names {
			if group.has(name) {
				waits = min(waits, now-w.lastMoves[name])
			}
		}
		if slices.ContainsFunc(k.lock.names, k.process.overlooks) { // nobody announces a peer's release to it
			waits -= refresh
		}
		if waits > soon {
			t.violate(goesOn, "none of the callers that contend with w%d for %v was granted its lock for %v", k.number+1, k.lock.names, waits)
		}
	}
}

// keeps reports whether nodes keep a lock after the end of a hold.
func (p *Plan) keeps() bool {
	return slices.ContainsFunc(p.Workers, func(w WorkerPlan) bool {
		return slices.ContainsFunc(w.Steps, func(s Step) bool { return s.Keep > 0 || s.Detach > 0 })
	})
}

// moved notes progress with the names: a grant, the end of a hold, or a caller that waits for a
// holder.
func (w *watch) moved(s nameSet) {
	for name := range names {
		if s.has(name) {
			w.lastMoves[name] = w.world.Now()
		}
	}
}

// moves returns how often peers have taken or released a member.
func (t *tier) moves() (n int) {
	for _, p := range t.peers {
		n += p.moves + p.backs
	}
	return n
}

// taken returns the names that somebody has, and those that somebody has alone. The semaphore is in
// both while all its slots are taken. A peer counts as the holder of all its members from the first
// on: it takes one after another, and releases them after its own waits.
func (t *tier) taken() (taken, alone nameSet) {
	for _, h := range t.watch.holds {
		for _, name := range h.call.lock.names {
			if name == semaphore && t.takenSlots() < t.plan.Permits {
				continue
			}
			taken |= 1 << name
			if !h.shares(name) {
				alone |= 1 << name
			}
		}
	}
	for name := 0; name < len(names) && t.watch.keeps; name++ {
		if !t.free(name, true) {
			taken, alone = taken|1<<name, alone|1<<name
		}
	}
	for _, p := range t.peers {
		if p.has() > 0 {
			for _, s := range p.cells {
				taken, alone = taken|1<<s.name, alone|1<<s.name
			}
		}
	}
	return taken, alone
}

// group returns these names and all that are connected with them: the names that a caller of one of
// them wants, the names that a caller of one of those wants, and so on.
func (t *tier) group(s nameSet) nameSet {
	for was := nameSet(0); was != s; {
		was = s
		for _, k := range t.watch.calls {
			if all := k.lock.all(); all&s != 0 {
				s |= all
			}
		}
	}
	return s
}

// mayGoOn returns a patient caller of a group that nobody blocks and that is before all callers
// that wait for a holder; nil if there is none. A caller that its local queue has not admitted, or
// that has an unsure ticket, may be anywhere in the queues. Callers with a limited wait are exempt:
// they may pause, or have given up.
func (t *tier) mayGoOn(group, taken, alone nameSet) (first *worker) {
	blocked, lowest, least := false, int64(math.MaxInt64), int64(math.MaxInt64)
	for _, k := range t.watch.calls {
		if k.lock.all()&group == 0 {
			continue
		}
		ticket := int64(math.MinInt64)
		if !k.hasUnknownPlace() {
			ticket = k.call.entry.Ticket
		}
		switch {
		case k.isBlocked(taken, alone):
			blocked, lowest = true, min(lowest, ticket)
		case !k.isPatient():
		case first == nil, ticket != math.MinInt64 && ticket < least:
			first = k
			if ticket != math.MinInt64 {
				least = ticket
			}
		}
	}
	if blocked && lowest <= least {
		return nil
	}
	return first
}

// gaveUp notes progress with the names of a blocked caller that gave up, if a patient caller behind
// it can go on now. That caller's time begins here, not at the last audit. Callers that give up
// behind the patient caller do not count, so its time runs out at last.
func (w *watch) gaveUp(k *worker) {
	taken, alone := w.tier.taken()
	if k.hasUnknownPlace() || !k.isBlocked(taken, alone) {
		return
	}
	for left := k.lock.all(); left != 0; {
		group := w.group(left & -left)
		left &^= group
		if first := w.mayGoOn(group, taken, alone); first != nil && (first.hasUnknownPlace() || k.call.entry.Ticket <= first.call.entry.Ticket) {
			w.moved(group)
		}
	}
}

// hasUnknownPlace reports whether a caller may be anywhere in the queues: its local queue has not
// admitted it, or its ticket is unsure.
func (k *worker) hasUnknownPlace() bool {
	return k.call == nil || k.call.entry.Ticket == 0 || k.call.entry.Unsure
}

func (k *worker) isPatient() bool {
	s := k.step
	return !s.Try && s.Limit == 0 && s.Cancel == 0 && s.Told == 0
}

// isBlocked reports whether a holder keeps the worker from a name of its lock.
func (k *worker) isBlocked(taken, alone nameSet) bool {
	for _, name := range k.lock.names {
		if alone.has(name) || taken.has(name) && !k.lock.shares(name) {
			return true
		}
	}
	return false
}

// polls counts the attempts of a worker since the last change.
type polls struct {
	attempts int
	changes  int
	since    time.Duration // by the monotonic clock
}

// paced checks an attempt. Without a change, a waiter makes up to 16 attempts for other slots
// (eagerMoves) and up to 16 in vain (eagerWakeUps), five more until the pause is long, and a
// TryLock makes four; the rest of the 50 is room. Then it waits for at least 3 ms (grace), except
// beside clients without messages: it looks at each cell that such a client has, every 5 ms on
// average (engine.PollInterval). If all but one of a quorum are free, each look is an attempt. Of
// seven nodes the client has up to four, so there are four attempts in 5 ms. This holds for each
// caller: others do not make it ask more often.
func (t *tier) paced(k *worker) {
	const burst, pause = 50, time.Millisecond
	p, now := &k.polls, t.now(k.process.number).Mono
	if p.changes != t.watch.changes {
		*p = polls{changes: t.watch.changes, since: now}
	}
	p.attempts++
	if long := now - p.since; p.attempts > burst+int(long/pause) {
		t.violate(paced, "w%d has made %d attempts in %v, and nothing has changed", k.number+1, p.attempts, long)
	}
}
