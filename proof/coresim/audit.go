package coresim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const refresh = 600 * time.Millisecond // of wait.go

func isPause(f *fleet.Fault) bool {
	return f.Kind == fleet.Pause || f.Kind == fleet.Sleep || f.Kind == fleet.StepWall && !isHarmless(f) || f.Kind == closes
}

// isHarmless reports whether a fault steps a wall clock that its process does not use to measure
// time.
func isHarmless(f *fleet.Fault) bool { return f.Kind == fleet.StepWall && hasBootClock(f.Client) }

// slack is the longest time from the last event of a call until its traces at the nodes are gone.
func (t *tier) slack() time.Duration { return 3*t.plan.NodeTimeout + 20*t.plan.Latency }

// audit looks for leftovers, for holders that believe too long, and for waiters of a free lock.
func (t *tier) audit() {
	w := &t.watch
	t.progress()
	for n := range t.plan.Nodes {
		for name := range t.plan.names() {
			if w.names[name].count == 0 && len(t.calls) == 0 {
				continue
			}
			ms := w.is.read(w, n, name)
			if len(w.is.holders) > 0 {
				w.taken[n][name] = t.world.Now()
			}
			for i := range w.is.holders {
				who := w.is.holders[i].Name
				after := t.slack()
				if strings.Contains(who, "/") {
					after += refresh // until its waiter looks, if it is not called
				}
				if heir := strings.Contains(who, "/"); heir && t.plan.Class == beyond {
					// Any node's clock may be that slow, and only its waiter releases a handoff.
					continue
				}
				if t.idle(t.callOf(who), n, after) {
					t.violate(nothingLeft, "n%d has %s for %s", n+1, names[name], who)
				}
			}
			for _, m := range w.is.queue {
				if w.is.deadline(m.Name) > ms && t.idle(t.callOf(m.Name), n, refresh+t.slack()) {
					t.violate(nothingLeft, "n%d has %s in the queue of %s", n+1, m.Name, names[name])
				}
			}
		}
	}
	for _, h := range w.holds {
		p := h.call.process
		if p.dead || p.closed || t.world.Paused(p.number) {
			continue
		}
		t.restores(h)
		if m := h.call.machine; m.Phase() == core.Holding && m.Remaining(t.now(p.number)) < 0 && t.now(p.number).Mono > m.Until()+time.Microsecond {
			t.violate(lossTold, "%s was not told that its lease is over", h.call.caller.Waiter)
		}
	}
}

// restores checks that a renewed hold has its key at every node that has been well for long enough.
func (t *tier) restores(h *hold) {
	c, p, now := h.call, h.call.process, t.world.Now()
	long := t.plan.TTL + 2*t.slack() // two renewals
	if !c.machineRenews() || c.machine.Phase() != core.Holding || now-h.at < long || t.wasPaused(p.number) || t.plan.Guard || t.plan.Class == beyond || t.plan.Twins {
		return
	}
	for cell := range c.lock.Cells() {
		n := t.nodeOf(cell)
		if tr := &t.troubles[p.number*t.plan.Nodes+n]; tr.now > 0 || tr.last+long > now {
			continue
		}
		if name := c.lock.nameNumber(cell); now-t.watch.taken[n][name] > long {
			t.violate(restored, "n%d does not have the key of %s for %s", n+1, names[name], c.caller.Waiter)
		}
	}
}

// idle reports whether nothing is to be expected of a call, which could have cleared up.
func (t *tier) idle(c *call, n int, after time.Duration) bool {
	if c == nil || !c.finished || c.process.dead || c.process.closed || c.late&(1<<n) != 0 || t.world.Paused(c.process.number) {
		return false
	}
	p := c.process
	if kept := c.kept - offset; kept > 0 && t.keeps(c, p, kept) {
		return false
	}
	last, now := c.last, t.world.Now()
	for a := range t.plan.Nodes {
		if t.server(a) != n {
			continue
		}
		tr := &t.troubles[p.number*t.plan.Nodes+a]
		if tr.now > 0 {
			return false
		}
		if tr.last >= c.first && c.kept > 0 {
			// A failed Keep leaves the key until its TTL: rather too long than too short.
			return false
		}
		if tr.last >= c.first && t.occupied() && t.outlasts(n) {
			// A non-lock key has refused the release for good: the entry ends with its TTL.
			return false
		}
		if tr.last >= c.first { // it repeats its pending releases
			last = max(last, tr.last)
			after = max(after, t.slack()+refresh+time.Duration(float64(engine.RetryTimeout+engine.MaxRetry+engine.ConfirmAfter)*1.3))
		}
	}
	return now-last > after
}

// outlasts reports whether a node may keep a key for longer than its TTL and the drift: its clock
// is set back, or runs slower than the drift allows for.
func (t *tier) outlasts(node int) bool {
	if t.plan.Clocks[node].Rate < 1-t.plan.Drift.Rate {
		return true
	}
	for i := range t.plan.Faults {
		if f := &t.plan.Faults[i]; f.Kind == fleet.Step && f.Node == node && f.By < 0 {
			return true
		}
	}
	return false
}

// keeps reports whether the nodes may still have a lock that Unlock has left there.
func (t *tier) keeps(c *call, p *process, kept time.Duration) bool {
	for i := range t.plan.Faults {
		if t.plan.Faults[i].Kind == fleet.Step {
			return true // the node may keep it for longer
		}
	}
	rate := 1.3
	if t.plan.Class == beyond {
		rate = 4 // the clock of a node may be as slow
	}
	return t.now(p.number).Mono-offset < kept+time.Duration((rate-1)*float64(c.lock.terms.TTL))+t.plan.NodeTimeout
}

// handoff is called when a lock may have become free, or shareable. If nothing fails, a waiter has
// it soon: long before its next refresh. All waiters that can share the lock with its holders have
// it soon, too, unless a waiter for exclusive use is ahead or has just left. In that case, handoff
// is called again later. released tells that a release of ours made it free.
func (t *tier) handoff(name int, released bool) {
	if len(t.peers) > 0 {
		t.noticed(name, !released)
		return
	}
	if t.plan.Class != calm || t.isMulti() || !t.free(name, true) {
		return
	}
	soon := 20*time.Millisecond + 40*t.plan.Latency
	before, now, nobody := t.watch.names[name], t.world.Now(), t.free(name, false)
	// A better ticket may still be on its way.
	later := slices.DeleteFunc(t.waiting(name), func(c *call) bool { return !t.behind(c, name) })
	t.world.At(now+soon, func() {
		is := &t.watch.names[name]
		if is.alone > before.alone || !t.free(name, true) || t.isMulti() {
			return
		}
		left := slices.ContainsFunc(slices.Concat(t.watch.waits, t.watch.refused), func(s span) bool { return s.to > now && s.lock.has(name) && !s.lock.shares(name) })
		free := nobody && is.count == before.count && t.free(name, false)
		for _, c := range t.waiting(name) {
			waits := !c.tries && now-c.first > 10*t.plan.Latency && c.process.now.Mono > 0 && !c.worker.gone
			if waits && (free || c.lock.shares(name) && !left && !t.behind(c, name) && !slices.Contains(later, c)) {
				t.violate(promptly, "%s was free for %v, while %s waits since %v, to share it %v", names[name], soon, c.caller.Waiter, c.first, c.lock.shares(name))
				return
			}
		}
	})
}

// waiting are the calls that wait for a lock.
func (t *tier) waiting(name int) (all []*call) {
	for _, p := range t.procs {
		for _, c := range p.live {
			if !c.holds && c.lock.has(name) && c.machine.Phase() != core.Over {
				all = append(all, c)
			}
		}
	}
	return all
}

func (t *tier) isMulti() bool {
	return slices.ContainsFunc(t.locks[:], func(l *lock) bool { return l != nil && len(l.names) > 1 })
}

// free reports whether nobody has the lock or, for shares, whether nobody has it alone. A semaphore
// is free while it has a free slot.
func (t *tier) free(name int, shares bool) bool {
	if name == semaphore {
		return t.takenSlots() < t.plan.Permits
	}
	for _, h := range t.watch.holds {
		if h.call.lock.has(name) && !(shares && h.shares(name)) {
			return false
		}
	}
	for _, c := range t.calls {
		if c.lock.has(name) && c.kept > 0 && t.now(c.process.number).Mono < c.kept+t.plan.TTL {
			return false
		}
	}
	return true
}

// probes lets a last caller lock every name, when all is well again. It gets them as soon as the
// leftovers of others have expired.
func (t *tier) probes() {
	if len(t.violations) > 0 {
		return
	}
	p := t.procs[len(t.procs)-1]
	const soon = 2 * time.Second
	limit := soon
	for n := range t.plan.Nodes {
		for name := range t.plan.names() {
			t.watch.is.read(&t.watch, n, name)
			s := &t.watch.is
			last := int64(0)
			for i := range s.holders {
				if who := s.holders[i].Name; !t.clears(t.callOf(who), n) {
					last = max(last, s.ms+s.left(who).Milliseconds()+1)
				}
			}
			for _, m := range s.queue {
				if !t.clears(t.callOf(m.Name), n) {
					last = max(last, s.deadline(m.Name))
				}
			}
			limit = max(limit, soon+t.world.NodeWhen(n, scriptmodel.Time(last*1000))-t.world.Now())
		}
	}
	limit += 2 * t.plan.quarantine()
	steps := []Step{{Names: 0, Limit: limit}, {Names: 1, Limit: limit}}
	if t.plan.Permits > 0 {
		steps = append(steps, Step{Names: 3, Limit: limit})
	}
	k := &worker{process: p, number: len(t.plan.Workers), steps: steps}
	t.probe = k
	t.outside(p, k.next)
	for last := t.world.Now() + time.Duration(len(steps))*limit + 2*t.plan.TTL + time.Second; !k.ended && len(t.violations) == 0 && t.world.Now() < last; {
		t.advance(100 * time.Millisecond)
	}
	if k.got < len(steps) && !t.keptLate && len(t.violations) == 0 {
		t.violate(acquires, "when all nodes were well, nobody did within %v", limit)
	}
	t.tried()
}

// clears reports whether a call removes its key and entry from a node once the node answers.
func (t *tier) clears(c *call, n int) bool {
	switch {
	case c == nil, c.process.dead, c.process.closed, c.kept > 0:
		return false
	case t.occupied(): // a non-lock key has refused the release for good
		return false
	// A slow call may run after the last confirmation.
	case t.plan.Network.Slow > 0 && c.late&(1<<n) != 0:
		return false
	}
	return true
}

// tried checks each refused TryLock: another caller had the lock, or got it soon after. While
// nothing fails, one of the contenders wins. Callers that share the lock refuse another one only
// for a waiter that wants it alone.
func (t *tier) tried() {
	// A MultiLock that waits for one lock is the first in the queue of the other.
	// A peer that waits for a node has others: a refusal need not mean that somebody has the lock.
	if t.plan.Class != calm || t.isMulti() || len(t.peers) > 0 {
		return
	}
	for _, w := range t.plan.Workers {
		for i := range w.Steps {
			if s := &w.Steps[i]; s.Cancel > 0 || s.Told > 0 || s.Limit > 0 || s.Keep > 0 || s.Detach > 0 {
				return // the holder at the nodes may abandon it
			}
		}
	}
	soon := 20*time.Millisecond + 40*t.plan.Latency
	for _, r := range t.watch.refused {
		count, others := 0, slices.Concat(t.watch.spans, t.watch.waits)
		// A caller that tries to have it alone also waits, for a moment.
		if r.lock.read != 0 {
			others = append(others, t.watch.refused...)
		}
		for _, h := range others {
			if h.lock.read != 0 && r.lock.read != 0 {
				continue
			}
			for _, name := range r.lock.names {
				if h.lock.has(name) && h.from < r.to+soon && h.to > r.from-soon {
					count++
				}
			}
		}
		if count < max(1, r.lock.permits(0)) {
			t.violate(oneWins, "somebody tried from %v to %v and was refused, and nobody had it", r.from, r.to)
		}
	}
}

// quiet is how long it takes until all is expired.
func (t *tier) quiet() time.Duration {
	longest := time.Duration(0)
	for n := range t.plan.Nodes {
		node, now := t.world.Node(n)
		for _, k := range node.Keys(now) {
			if v, _ := node.Peek(now, k); v.Expires > 0 && isShort(k) {
				longest = max(longest, t.world.NodeWhen(n, scriptmodel.Time(v.Expires*1000+1000))-t.world.Now())
			}
		}
	}
	return longest + time.Millisecond
}

func isShort(key string) bool {
	return key != "quorumlock_age" && !strings.HasPrefix(key, "redisson_lock_token:")
}

// counterLife is how long a counter is kept after the time of its token, or after its last use, in
// ms: up to five minutes, and as far as a clock was set back.
const counterLife = 330_000

// lastCounted returns the time in ms of the latest token of a counter, or the present time.
func lastCounted(v *scriptmodel.Value, now scriptmodel.Time) int64 {
	last := int64(now / 1000)
	for _, f := range append(v.Fields, scriptmodel.Field{Value: v.Text}) {
		token, _ := strconv.ParseInt(f.Value, 10, 64)
		last = max(last, token/1000)
	}
	return last
}

// empty checks that nothing is left but token counters, which end soon.
func (t *tier) empty() {
	for n := range t.plan.Nodes {
		node, now := t.world.Node(n)
		for _, k := range node.Keys(now) {
			v, _ := node.Peek(now, k)
			if isShort(k) || k != "quorumlock_age" && v.Expires == 0 {
				t.violate(nothingStays, "n%d has %s", n+1, k)
			} else if k != "quorumlock_promoted" && len(t.peers)+len(t.plan.Idles) == 0 && v.Expires > lastCounted(&v, now)+counterLife {
				t.violate(nothingStays, "n%d keeps %s for too long: %+v, and it is %v", n+1, k, v, now)
			}
		}
	}
}
