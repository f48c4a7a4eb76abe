package simulation

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// semaphore is the name of the semaphore.
const semaphore = "s"

// slotted is the prefix of the names of a semaphore's scripts.
const slotted = "slot_"

// slotName is the name of a slot among the names of the locks: each slot is a lock of its own.
func slotName(slot int) string { return semaphore + "#" + strconv.Itoa(slot) }

// locks are the names that the nodes know.
func (w *world) locks() []string {
	if w.plan.Permits > 0 {
		return []string{"x", "y", semaphore}
	}
	return []string{"x", "y"}
}

// slots adds callers of a semaphore to a plan, in one seed of four. Its own generator keeps the
// other seeds unchanged.
func (p *Plan) slots() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x5107))}
	if !g.chance(0.25) {
		return
	}
	p.Permits = pick(g, 1, 2, 2, 2, 3)
	names := []string{semaphore}
	if slices.ContainsFunc(p.Workers, func(w WorkerPlan) bool {
		return slices.ContainsFunc(w.Steps, func(s Step) bool { return s.Name == "x+y" })
	}) || g.chance(0.1) {
		names = append(names, "x+"+semaphore)
	}
	for range p.Permits + 1 + g.IntN(3) {
		p.Workers = append(p.Workers, g.worker(p, len(p.Workers), names))
	}
	if p.Readers {
		for _, w := range p.Workers {
			for i := range w.Steps {
				if s := &w.Steps[i]; s.Name == "x+"+semaphore && g.chance(0.5) {
					s.Read = readsX
				}
			}
		}
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Keys == "lock" && g.chance(0.3) {
			f.Keys = "slots"
		}
	}
}

// slots reads the holders of the slots at a node. Holds that are over, or have no end, do not
// count.
func (n *node) slots(s *state) {
	s.holders, s.ends, s.tokens = make(map[string]string), make(map[string]int64), make(map[string]string)
	taken, err := n.redis.SortedSet(wire.SlotsKey(semaphore))
	ends, err2 := n.redis.SortedSet(semaphore)
	if err == nil && err2 == nil {
		for who, slot := range taken {
			if end, ok := ends[who]; ok && int64(end) >= s.now {
				s.holders[base(who)], s.ends[base(who)] = strconv.Itoa(int(slot)), int64(end)
			}
		}
		s.ttl = min(n.redis.TTL(semaphore), n.redis.TTL(wire.SlotsKey(semaphore)))
	}
	fields, err := n.redis.HKeys(wire.TokenKey(semaphore))
	if err != nil {
		return
	}
	for _, f := range fields {
		s.tokens[f] = n.redis.HGet(wire.TokenKey(semaphore), f)
	}
}

// named is the name of an owner's lock; for the semaphore, with its slot.
func (s *state) named(lock, who string) string {
	if lock != semaphore {
		return lock
	}
	return lock + "#" + s.holders[who]
}

// before is how many living waiters are before one with that ticket.
func (s *state) before(waiter string, ticket float64) (count int) {
	for who, other := range s.line {
		if who != waiter && other < ticket && s.places[who] > s.now {
			count++
		}
	}
	return count
}

// slotted checks the slot of a new hold, and that there are no more holders than permits. It is
// called with the world's mutex held.
func (t *watch) slotted(h *hold) {
	if !slices.Contains(h.locks, semaphore) {
		return
	}
	permits := t.world.plan.Permits
	if h.slot < 0 || h.slot >= permits {
		t.world.violateLocked(mutualExclusion, "%s was granted slot %d of %d", h.owner, h.slot, permits)
	}
	in := 1
	for _, other := range t.holds {
		if other.live() && slices.Contains(other.locks, semaphore) {
			in++
		}
	}
	if in > permits && t.world.plan.Class != beyond {
		t.world.violateLocked(mutualExclusion, "%s was granted a slot as number %d of %d", h.owner, in, permits)
	}
}

// slotsAfter checks the state of the semaphore after a script.
func (t *watch) slotsAfter(n *node, m message, owner string, ok bool, was, is state, reply string) {
	violate := t.world.violateLocked
	me := t.wire(m, owner)
	permits := t.world.plan.Permits
	taken := make(map[string]string)
	for who, slot := range is.holders {
		if number, _ := strconv.Atoi(slot); number >= permits {
			violate(mutualExclusion, "%v has slot %s of %d for %s", n, slot, permits, t.alias(who))
		}
		if other := taken[slot]; other != "" {
			violate(mutualExclusion, "%v has slot %s for %s and for %s, after %s for %s", n, slot, t.alias(who), t.alias(other), m.script, m.owner)
		}
		taken[slot] = who
		if is.ttl+time.Millisecond < is.left(who) {
			violate(othersHold, "%v keeps the slots for %v, and one for %s for %v, after %s for %s", n, is.ttl, t.alias(who), is.left(who), m.script, m.owner)
		}
		if before, stayed := was.ends[who]; stayed && who != me && before != is.ends[who] && was.holders[who] == slot {
			violate(othersHold, "%v: %s for %s made the hold of %s end at %d, not %d", n, m.script, m.owner, t.alias(who), is.ends[who], before)
		}
	}
	slot := is.holders[me]
	switch {
	case ok && m.script == "renew" && slot != m.argv[2]:
		violate(yesToHolder, "%v renewed slot %s for %s, who has slot %q", n, m.argv[2], m.owner, slot)
	case ok && m.script == "acquire" && !strings.HasSuffix(reply, ":"+slot+"\r\n"):
		violate(yesToHolder, "%v granted %q to %s, who has slot %q", n, reply, m.owner, slot)
	}
	for slot, token := range was.tokens {
		if now := is.tokens[slot]; len(now) < len(token) || len(now) == len(token) && now < token {
			violate(tokensRise, "%v: %s for %s set the counter of slot %s from %s to %s", n, m.script, m.owner, slot, token, now)
		}
	}
	refused := m.script == "acquire" && strings.HasPrefix(reply, "*4\r\n:0\r\n") && !keeps(m.argv)
	// A successor's slot is released if the waiter prefers another.
	for who := range was.holders {
		refused = refused && !strings.HasPrefix(who, m.place.waiter+"/")
	}
	if refused && len(was.holders) < permits {
		violate(overIsOver, "%v refused s to %s, and %d of %d slots are taken", n, m.owner, len(was.holders), permits)
	}
}

// vacated is called, with the world's mutex held, when a slot may have become free. Where nothing
// fails, a waiter has it soon.
func (t *watch) vacated() {
	l := t.world.plan.Latency
	soon := 20*time.Millisecond + 40*l
	if t.world.plan.Class != calm || t.multi || !t.vacant() {
		return
	}
	grants, now := t.grantsOfSlots(), time.Now()
	t.world.post.send(soon, t.world.dice.of("vacated", now.String()), func() {
		if t.grantsOfSlots() != grants || !t.vacant() {
			return
		}
		for _, c := range t.calls {
			if c.name == semaphore && now.Sub(c.began) > 10*l && c.ends.After(time.Now()) {
				t.world.violateLocked(promptly, "a slot was free for %v, while somebody waits since %v", soon, c.began.Sub(t.world.began))
				return
			}
		}
	})
}

func (t *watch) vacant() bool {
	in := 0
	for _, h := range t.holds {
		if slices.Contains(h.locks, semaphore) {
			in++
		}
	}
	return in < t.world.plan.Permits
}

func (t *watch) grantsOfSlots() (count int) {
	for slot := range t.world.plan.Permits {
		count += t.names[slotName(slot)].count
	}
	return count
}

// triedSlot checks that a TryLock was refused only if enough others for all permits had a slot, or
// got one soon after, or waited.
func (t *watch) triedSlot(r span, soon time.Duration) {
	in := 0
	for _, h := range slices.Concat(t.past, t.waited) {
		if slices.Contains(h.names, semaphore) && h.from < r.to+soon && h.to > r.from-soon {
			in++
		}
	}
	if in < t.world.plan.Permits {
		t.world.violateLocked(oneWins, "%s tried s from %v to %v and was refused, and %d of %d had a slot", r.who, r.from, r.to, in, t.world.plan.Permits)
	}
}
