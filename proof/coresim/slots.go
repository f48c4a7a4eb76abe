package coresim

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// semaphore is the number of the semaphore among the names.
const semaphore = 2

// names returns how many of the names a plan uses.
func (p *Plan) names() int {
	if p.Permits > 0 {
		return len(names)
	}
	return semaphore
}

// slots adds callers of a semaphore to a plan, in one seed of ten. Its own generator keeps the
// other seeds unchanged.
func (p *Plan) slots() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x5107))}
	if p.Twins || p.Contest || !g.chance(0.1) {
		return
	}
	p.Permits = pick(g, 1, 2, 2, 2, 3, 5)
	kinds, limited, multi := []int{3}, p.Class != calm || g.chance(0.3), g.chance(0.1)
	for _, w := range p.Workers {
		multi = multi || slices.ContainsFunc(w.Steps, func(s Step) bool { return s.Names == 2 })
	}
	if multi {
		kinds = append(kinds, 4, 5)
	}
	for range p.Permits + 1 + g.IntN(3) {
		p.Workers = append(p.Workers, g.worker(p, len(p.Workers), kinds, limited))
	}
	for _, w := range p.Workers {
		for i := range w.Steps {
			switch s := &w.Steps[i]; {
			case s.Names < 4 || !p.Readers || g.chance(0.5):
			case s.Names == 4:
				s.Read = 1
			default:
				s.Read = pick(g, 1, 2, 3)
			}
		}
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Kind == fleet.Evict && g.chance(0.5) {
			k := &keysOf[semaphore]
			f.Key = pick(g, k.lock, k.slots, k.token, k.queue, k.entries)
		}
	}
}

// permits returns how many slots a cell has; 0 if it is of no semaphore.
func (l *lock) permits(cell int) int {
	if l.nameNumber(cell) != semaphore {
		return 0
	}
	return l.lock.Slots[0].Permits
}

// isAlone reports whether one caller at a time can have the lock.
func (l *lock) isAlone() bool {
	return slices.ContainsFunc(l.names, func(name int) bool {
		return !l.shares(name) && (name != semaphore || l.lock.Slots[0].Permits == 1)
	})
}

// readSlots reads the holders of the slots at a node as those of a shared lock: each has its own
// end.
func (s *shot) readSlots(n *scriptmodel.Node, now scriptmodel.Time, p *places) {
	v, _ := n.Look(now, p.lock)
	ends, expires := v.Members, v.Expires
	v, _ = n.Look(now, p.slots)
	s.holders, s.shared, s.ms, s.expires, s.token = s.holders[:0], true, int64(now/1000), min(expires, v.Expires), ""
	for _, m := range v.Members {
		i := slices.IndexFunc(ends, func(e scriptmodel.Member) bool { return e.Name == m.Name })
		if m.Score < 0 || i < 0 || int64(ends[i].Score) < s.ms { // a record of a successor, or it is over
			continue
		}
		s.holders = append(s.holders, scriptmodel.Field{Name: m.Name, Value: strconv.FormatInt(int64(ends[i].Score), 10)})
		s.slots = append(s.slots, int(m.Score))
	}
	v, _ = n.Look(now, p.token)
	s.tokens = append(s.tokens[:0], v.Fields...)
}

// slotOf returns the slot of a holder; -1 if it has none.
func (s *shot) slotOf(who string) int {
	for i := range s.slots {
		if s.holders[i].Name == who {
			return s.slots[i]
		}
	}
	return -1
}

// before returns how many waiters with time left are before one with that ticket.
func (s *shot) before(waiter string, ticket float64, now int64) (count int) {
	for _, m := range s.queue {
		if m.Name != waiter && m.Score < ticket && s.deadline(m.Name) > now {
			count++
		}
	}
	return count
}

// slotted checks the state of the semaphore after a script: each slot has one holder, no script
// changes the slot of another owner, the keys last as long as every hold, and no call is refused
// while a slot is free.
func (w *watch) slotted(node int, it *item, ok, refused bool) {
	s := &w.is
	for i := range s.holders {
		who := s.holders[i].Name
		if s.slots[i] >= w.plan.Permits || slices.Contains(s.slots[:i], s.slots[i]) {
			w.violate(mutualExclusion, "n%d has slots %v of %d for %v", node+1, s.slots, w.plan.Permits, s.holders)
		}
		if until := milliseconds(s.holders[i].Value); s.expires < until {
			w.violate(othersHold, "n%d: the keys of the slots end at %d, before the slot of %s at %d", node+1, s.expires, who, until)
		}
		if was := w.was.slotOf(who); was >= 0 && was != s.slots[i] && who != string(w.me) {
			w.violate(othersHold, "n%d: what %s sent moved %s from slot %d to %d", node+1, w.me, who, was, s.slots[i])
		}
	}
	if ok && it.k.Do.Renews() && s.slotOf(string(w.me)) != int(it.k.Slot) {
		w.violate(yesToHolder, "n%d has slot %d for %s, who renews %d", node+1, s.slotOf(string(w.me)), w.me, it.k.Slot)
	}
	for _, f := range w.was.tokens {
		i := slices.IndexFunc(s.tokens, func(now scriptmodel.Field) bool { return now.Name == f.Name })
		if i < 0 || len(s.tokens[i].Value) < len(f.Value) || len(s.tokens[i].Value) == len(f.Value) && s.tokens[i].Value < f.Value {
			w.violate(tokensRise, "n%d: a script of %s set the counter of slot %s back from %s: %v", node+1, w.me, f.Name, f.Value, s.tokens)
		}
	}
	// A waiter's successor may have a slot that the waiter no longer wants.
	own := slices.ContainsFunc(w.was.holders, func(h scriptmodel.Field) bool { return isSuccessorOf(h.Name, string(it.entry.Waiter)) })
	if it.k.Do == core.Acquire && refused && !own && len(w.was.holders) < w.plan.Permits {
		w.violate(overIsOver, "n%d refused a slot to %s, and %d of %d are taken", node+1, w.me, len(w.was.holders), w.plan.Permits)
	}
}

// takenSlots returns the number of slots that are held, or kept after the end of a hold.
func (t *tier) takenSlots() (taken int) {
	for _, h := range t.watch.holds {
		if h.call.lock.has(semaphore) {
			taken++
		}
	}
	for _, c := range t.calls {
		if c.lock.has(semaphore) && c.kept > 0 && t.now(c.process.number).Mono < c.kept+t.plan.TTL {
			taken++
		}
	}
	return taken
}
