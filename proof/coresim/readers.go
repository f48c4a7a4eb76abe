package coresim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// shares reports whether a lock shares a name with others.
func (l *lock) shares(name int) bool { return l.read&(1<<name) != 0 }

// Shares reports whether the lock shares a cell.
func (l *lock) Shares(cell int) bool { return l.shares(l.nameNumber(cell)) }

// shares reports whether a hold does, from the beginning or since a Downgrade.
func (h *hold) shares(name int) bool { return h.downgraded || h.call.lock.shares(name) }

// excludes reports whether two holds must not overlap: they have a name that they do not both
// share.
func (h *hold) excludes(other *hold) bool {
	if h.call.lock.other != other.call.lock.other {
		return false
	}
	for _, name := range h.call.lock.names {
		if other.call.lock.has(name) && !(h.shares(name) && other.shares(name)) && (name != semaphore || h.slot == other.slot) {
			return true
		}
	}
	return false
}

// readers turns some callers of a plan into readers, in one seed of four. Its own generator keeps
// the other seeds unchanged.
func (p *Plan) readers() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x4ead))}
	if p.Readers = g.chance(0.25); !p.Readers {
		return
	}
	names, limited := []int{0}, false
	for _, w := range p.Workers {
		for i := range w.Steps {
			s := &w.Steps[i]
			limited = limited || s.Limit > 0
			if s.Names > 0 {
				names = []int{0, 1, 2}
			}
		}
	}
	for range g.IntN(4) {
		p.Workers = append(p.Workers, g.worker(p, len(p.Workers), names, limited))
	}
	for _, w := range p.Workers {
		for i := range w.Steps {
			g.shares(p, &w.Steps[i])
		}
	}
}

// shares turns a step into a reader's, perhaps, or adds a Downgrade to its hold.
func (g generator) shares(p *Plan, s *Step) {
	switch all := s.Names + 1; {
	case g.chance(0.6) && all < 3:
		s.Read = all
	case all == 3 && g.chance(0.7):
		s.Read = pick(g, 1, 2, 3)
	case all < 3 && g.chance(0.5):
		s.Hold = slices.Insert(slices.Clone(s.Hold), g.IntN(len(s.Hold)+1), Use{After: g.between(0, p.TTL/8), Downgrade: true})
	}
}

// left returns how long a node keeps the lock for one of its holders.
func (s *shot) left(who string) time.Duration {
	until := s.expires
	for i := range s.holders {
		if h := &s.holders[i]; s.shared && h.Name == who {
			until = milliseconds(h.Value)
		}
	}
	return time.Duration(until-s.ms) * time.Millisecond
}

// wantsShare reports whether a waiter wants to share the lock.
func (s *shot) wantsShare(waiter string) bool { return s.marked(waiter, 's') }

// isPassed reports whether sharers may pass a waiter: it wants a share, too, or it only tries.
func (s *shot) isPassed(waiter string) bool { return s.marked(waiter, 's') || s.marked(waiter, 't') }

func (s *shot) marked(waiter string, mark byte) bool {
	e := s.entry(waiter)
	for i := range len(e) {
		if e[i] == ' ' {
			for i++; i < len(e) && e[i] >= '0' && e[i] <= '9'; i++ {
			}
			return i < len(e) && e[i] == mark
		}
	}
	return false
}

// sharing checks the state of a lock after a script: an exclusive holder is alone, the key lasts as
// long as every share, and no call is refused for a share that is over.
func (w *watch) sharing(node int, k *core.Call, refused bool) {
	s := &w.is
	if !s.shared && len(s.holders) > 1 {
		w.violate(mutualExclusion, "n%d has %v at the same time", node+1, s.holders)
	}
	for i := range s.holders {
		if until := milliseconds(s.holders[i].Value); s.shared && s.expires < until {
			w.violate(othersHold, "n%d keeps the lock until %d, and for %s until %d", node+1, s.expires, s.holders[i].Name, until)
		}
	}
	const few = 16 // of holds.lua: a call may not read more fields
	if k.Do == core.Acquire && refused && len(w.was.holders) == 0 && w.was.fields <= few {
		w.violate(overIsOver, "n%d refused the lock to %s, and nobody has it", node+1, w.me)
	}
}

// downgrade turns the worker's hold into a share.
func (k *worker) downgrade() {
	c, began := k.call, k.process.now.Mono
	c.apply(core.Event{Kind: core.Tick}) // the deadline may have passed
	if k.hold.lost || k.hold.shares(c.lock.names[0]) || c.machine.Phase() != core.Holding {
		c.flush()
		k.goOn()
		return
	}
	k.hold.downgraded = true
	c.process.tier.watch.moved(c.lock.all())
	c.process.tier.watch.changes++
	c.renewNow(core.Downgrade, func(r core.Round) {
		k.extended(c, began, r)
		if r.Won {
			c.process.tier.handoff(c.lock.names[0], true)
		}
	})
}

// ordered checks a granted token. Shares have tokens in no order among themselves. If too many
// nodes lose their counters, the first call to reach an empty node sets the token from which
// readers continue. That call may be old.
func (t *tier) ordered(h *hold, name int, bound bool) {
	g, c, shares := &t.watch.names[name], h.call, h.shares(name)
	g.count++
	if !shares {
		g.alone++
	}
	if name == semaphore {
		g = &t.watch.slots[h.slot]
	}
	for _, other := range g.tokens {
		switch {
		case shares && other.shares:
		case other.token == h.token && !shares && !other.shares:
			t.violate(tokensUnique, "%s was granted %s with token %d, as somebody was at %v", c.caller.Waiter, names[name], h.token, other.at)
		case (other.token > h.token || other.token == h.token && other.shares) && (bound || !h.heir && other.at < m0(c)) && !(shares && t.forgets(other.began)):
			t.violate(tokensRise, "%s was granted %s with token %d after token %d, shared %v", c.caller.Waiter, names[name], h.token, other.token, other.shares)
		}
	}
	g.tokens = append(g.tokens, token{h.token, m0(c), t.world.Now(), shares})
}

// forgets reports whether too many nodes have lost their counters since the given time.
func (t *tier) forgets(since time.Duration) bool {
	lost := make(map[int]bool)
	for _, f := range t.plan.Faults {
		switch f.Kind {
		case fleet.CrashLoss, fleet.Failover, fleet.Forget, fleet.Evict, fleet.Step:
			if f.At >= since && f.At <= t.world.Now() {
				lost[t.server(f.Node)] = true
			}
		}
	}
	return len(lost) > 2*t.plan.Quorum-t.plan.Nodes-1
}

// behind reports whether a waiter for exclusive use is before a call.
func (t *tier) behind(c *call, name int) bool {
	return slices.ContainsFunc(t.waiting(name), func(o *call) bool {
		return !o.lock.shares(name) && (o.entry.Ticket <= c.entry.Ticket || o.entry.Unsure || c.entry.Unsure)
	})
}
