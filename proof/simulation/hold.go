package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

// hold is a lease that was granted.
type hold struct {
	lease    *quorumlock.Lease
	proc     *process
	locks    []string
	names    []string        // of the locks; that of a semaphore is followed by the slot
	slot     int             // of the semaphore, if it has one of it
	reads    map[string]bool // the shared ones
	owner    string
	order    map[string]int // of the grant, for each name
	renewed  bool           // by the watchdog
	released bool           // its Unlock has begun
	past     int            // among all that there were
	lost     bool
}

// live reports whether the holder may believe to hold. It is called with the world's mutex held.
func (h *hold) live() bool {
	return !h.released && !h.lost && !errors.Is(context.Cause(h.lease.Context()), quorumlock.ErrLost) && h.left() > 0
}

// excludes reports whether two holds must not overlap: they have a name that they do not both
// share.
func (h *hold) excludes(other *hold) bool {
	return slices.ContainsFunc(h.names, func(n string) bool { return slices.Contains(other.names, n) && !(h.reads[n] && other.reads[n]) })
}

// left is for how much longer the lease is valid.
func (h *hold) left() time.Duration { return time.Until(instant(h.lease.ValidUntil())) }

// granted checks a new lease when Lock returns it, or Attach, which goes on with the hold from.
func (t *watch) granted(p *process, l *quorumlock.Lease, s Step, from *hold) *hold {
	h := &hold{lease: l, proc: p, locks: strings.Split(l.Name(), " + "), slot: l.Slot(), reads: make(map[string]bool), order: make(map[string]int), renewed: !s.NoRenew}
	for _, name := range h.locks {
		h.reads[name] = s.reads(name)
		if name == semaphore {
			name = slotName(h.slot)
		}
		h.names = append(h.names, name)
	}
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	h.owner = p.alias(string(l.Owner()))
	t.grants++
	t.world.trace(fmt.Sprintf("%v: granted %s to %s with token %d until %v", p, l.Name(), h.owner, l.Token(), instant(l.ValidUntil()).Sub(t.world.began)))
	a := t.owners[h.owner]
	if a == nil {
		t.world.violateLocked(backed, "%s was granted %s without asking any node", h.owner, l.Name())
		return h
	}
	a.inUse, a.granted = true, true
	if w := t.waiterOf(h); w != nil {
		w.inUse = true
	}
	if h.left() <= 0 {
		t.world.violateLocked(notOver, "%s was granted %s until %v ago", h.owner, l.Name(), -h.left())
	}
	bound := t.world.plan.Class != beyond
	for _, other := range t.holds {
		if other.live() && bound && h.excludes(other) {
			t.world.violateLocked(mutualExclusion, "%s was granted %s while %s holds %s for %v yet", h.owner, l.Name(), other.owner, other.lease.Name(), other.left())
		}
	}
	t.slotted(h)
	t.besideJava(h)
	for _, name := range h.names {
		g := t.names[name]
		if g == nil {
			return h // violated
		}
		if from != nil {
			h.order[name] = from.order[name]
			continue
		}
		g.count++
		if !h.reads[name] {
			g.alone++
		}
		h.order[name] = g.count
		t.ordered(h, name, began(h, a, t.world.plan), bound)
	}
	t.holds = append(t.holds, h)
	h.past = len(t.past)
	t.past = append(t.past, span{h.locks, s.Read, t.world.now(), 1 << 62, h.owner})
	t.backed(h)
	return h
}

// began returns the start of the acquire from which the lease's validity counts: its token may be
// of that time. The first message may have left the client later, behind others.
func began(h *hold, a *activity, p *Plan) time.Time {
	drift := time.Duration(p.Drift.Rate*float64(p.TTL)) + p.Drift.Floor
	if asked := instant(h.lease.ValidUntil()).Add(drift - p.TTL); asked.Before(a.first) {
		return asked
	}
	return a.first
}

// backed checks that a lease lasts no longer than promised by a quorum: Q nodes have granted or
// renewed it since the start of its validity.
func (t *watch) backed(h *hold) {
	plan := t.world.plan
	until := instant(h.lease.ValidUntil())
	for _, name := range h.names {
		n := 0
		for _, node := range t.world.nodes {
			p, ok := t.owners[h.owner].since[cell{node, name}]
			drift := time.Duration(plan.Drift.Rate*float64(p.ttl)) + plan.Drift.Floor
			// The library rounds its drift up.
			if ok && !p.at.Add(p.ttl).Before(until.Add(drift-1)) {
				n++
			}
		}
		if n < plan.Quorum {
			t.world.violateLocked(backed, "%s has %s until %v, which %d nodes have promised", h.owner, name, until.Sub(t.world.began), n)
		}
	}
}

// follow checks that the lease ends by its deadline, until it ends.
func (t *watch) follow(h *hold) {
	ctx := h.lease.Context()
	until, stepped := instant(h.lease.ValidUntil()), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(until) + stepped + 1):
		}
		t.world.mu.Lock()
		over := ctx.Err() != nil
		now := instant(h.lease.ValidUntil())
		switch {
		case over && errors.Is(context.Cause(ctx), quorumlock.ErrLost):
			h.lost = true
			t.world.trace(fmt.Sprintf("%v: %s has lost %s", h.proc, h.owner, h.lease.Name()))
			if t.world.plan.Class == calm && h.renewed && !h.released {
				t.world.violateLocked(nothingFails, "%s has lost %s", h.owner, h.lease.Name())
			}
			if loss, ok := errors.AsType[*quorumlock.LostError](context.Cause(ctx)); ok && h.proc.boots && time.Now().Before(until) && strings.HasSuffix(loss.Reason, "in time") {
				t.world.violateLocked(lossTold, "%s has lost %s %v before the end of its validity", h.owner, h.lease.Name(), time.Until(until))
			}
			// If the wall clock is set forward, the validity may end before the client notices.
			if late := min(time.Since(now), time.Since(until)); late > 1+stepped {
				t.world.violateLocked(lossTold, "%s learned of the loss %v late", h.owner, late)
			}
		case over:
		case now.After(until.Add(1)):
			t.backed(h)
			until, stepped = now, 0
		// Its wall clock was set forward, maybe before until was read: the client compares its
		// clocks once a second.
		case stepped == 0 && !h.proc.boots && h.proc.forward.After(until.Add(-t.world.plan.TTL)):
			stepped = time.Second
		default:
			t.world.violateLocked(lossTold, "%s was not told that %s is over", h.owner, h.lease.Name())
			over = true
		}
		t.world.mu.Unlock()
		if over {
			return
		}
	}
}

// releasing handles the start of an Unlock that releases.
func (t *watch) releasing(h *hold) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	h.released = true
	t.past[h.past].to = t.world.now()
	t.holds = slices.DeleteFunc(t.holds, func(o *hold) bool { return o == h })
	t.moved(setOf(h.locks...))
	if slot := h.lease.Slot(); slot != h.slot {
		t.world.violateLocked(reentrancy, "%s had slot %d, and has %d", h.owner, h.slot, slot)
	}
	t.world.trace(fmt.Sprintf("%v: %s releases %s", h.proc, h.owner, h.lease.Name()))
}

// waiterOf returns the waiter of a hold that was handed over; nil for other holds. It stays queued where
// nothing was handed over, since that may follow: see leaveQueue in package core.
func (t *watch) waiterOf(h *hold) *activity {
	if !isHeir(h.owner) {
		return nil
	}
	return t.waiters[h.owner[:strings.IndexByte(h.owner, '/')]]
}

// over handles the end of a hold: it was unlocked, or its process was killed.
func (t *watch) over(h *hold, killed bool) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	if a := t.owners[h.owner]; a != nil {
		a.inUse, a.dead, a.last = false, killed, time.Now()
	}
	if w := t.waiterOf(h); w != nil {
		w.inUse, w.last = false, time.Now()
	}
	for _, name := range h.locks {
		t.handoff(name)
	}
}

// store is the resource of a lock. It refuses a write with a token lower than one it has accepted.
type store struct {
	token uint64
	order int // the latest grant with an accepted write
}

// write is a write by a holder, who may have been paused since it looked at its lease.
func (w *world) write(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range h.names {
		s := w.store[name]
		if s == nil {
			s = &store{}
			w.store[name] = s
		}
		if h.reads[name] {
			w.read(h, name, s)
			continue
		}
		taken := h.lease.Token() >= s.token
		w.trace(fmt.Sprintf("%v: %s writes to %s with token %d: %v", h.proc, h.owner, name, h.lease.Token(), taken))
		if w.plan.Class != beyond {
			if taken && h.order[name] < s.order {
				w.violateLocked(noOldWrite, "that of %s, the grant number %d of %s, after one of %d", h.owner, h.order[name], name, s.order)
			}
			if !taken && h.live() {
				w.violateLocked(holderWrite, "it refused that of %s to %s with token %d after %d", h.owner, name, h.lease.Token(), s.token)
			}
		}
		if taken {
			s.token, s.order = h.lease.Token(), max(s.order, h.order[name])
		}
	}
}
