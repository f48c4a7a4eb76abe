package coresim

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// hold is a lease that was granted.
type hold struct {
	call       *call
	attempt    int32
	heir       bool
	token      uint64
	slot       int  // of a semaphore
	released   bool // its Unlock has begun
	lost       bool
	downgraded bool
	span       int
	at         time.Duration
	until      time.Duration // seen last
}

// span is a hold, or a TryLock, from its beginning to its end.
type span struct {
	lock     *lock
	hold     *hold // nil for a call
	from, to time.Duration
}

const forever = time.Duration(1 << 62)

// granted checks a new lease.
func (t *tier) granted(c *call) *hold {
	w, m := &t.watch, c.machine
	h := &hold{call: c, token: m.Token(), slot: m.Slot(), at: t.world.Now(), until: m.Until()}
	h.attempt, h.heir = m.Attempt()
	w.grants++
	if h.heir {
		w.successors++
	}
	w.attempts += int(h.attempt)
	w.waited += t.world.Now() - c.first
	if t.traces {
		t.note("p%d: w%d is granted %v: %s attempt %d, successor %v, token %d, for %v", c.process.number+1, c.worker.number+1, c.lock.names, c.caller.Waiter, h.attempt, h.heir, h.token, m.Remaining(c.process.now))
	}
	if m.Remaining(c.process.now) <= 0 {
		t.violate(notOver, "%s was granted a lease that was over %v ago", c.caller.Waiter, -m.Remaining(c.process.now))
	}
	bound := t.plan.Class != beyond
	if permits := c.lock.permits(c.lock.Cells() - 1); permits > 0 && (h.slot < 0 || h.slot >= permits) {
		t.violate(mutualExclusion, "%s was granted slot %d of %d", c.caller.Waiter, h.slot, permits)
	}
	for _, other := range w.holds {
		if bound && w.live(other) && h.excludes(other) {
			t.violate(mutualExclusion, "%s was granted the lock while %s holds it for %v yet", c.caller.Waiter, other.call.caller.Waiter, other.call.machine.Remaining(t.now(other.call.process.number)))
		}
	}
	for _, s := range w.kept {
		if bound && t.world.Now() < s.to && h.excludes(s.hold) {
			t.violate(keptOn, "%s was granted the lock, which is kept from %v to %v", c.caller.Waiter, s.from, s.to)
		}
	}
	t.besidePeers(h)
	w.moved(c.lock.all())
	w.changes++
	for _, name := range c.lock.names {
		if c.worker.text == nil && c.lock.other == "" {
			t.ordered(h, name, bound)
		}
	}
	if c.worker.text == nil {
		w.inCallOrder(c.worker)
	}
	w.holds = append(w.holds, h)
	if c.lock.read == 0 {
		w.waits = append(w.waits, span{c.lock, nil, c.first, t.world.Now()})
	}
	h.span = len(w.spans)
	w.spans = append(w.spans, span{c.lock, h, t.world.Now(), forever})
	t.backed(h)
	return h
}

// m0 returns the time at which the call began.
func m0(c *call) time.Duration { return c.first }

// backed checks that a lease lasts no longer than promised by a quorum: Q nodes have granted or
// renewed it since the start of its validity.
func (t *tier) backed(h *hold) {
	if t.watch.unchecked {
		return
	}
	c, p := h.call, t.plan
	until := c.machine.Until()
	i := 0
	if h.heir {
		i = 1
	}
	for member := range c.lock.names {
		n := 0
		for node := range p.Nodes {
			if t.promises(c, member*p.Nodes+node, i, h.attempt, until) && (t.server(node) == node || !t.promises(c, member*p.Nodes+node-1, i, h.attempt, until)) {
				n++
			}
		}
		if n < p.Quorum {
			t.violate(backed, "%s has the lock until %v, which %d nodes have promised", c.caller.Waiter, until-offset, n)
		}
	}
}

// promises reports whether a cell has promised an owner the lock until then.
func (t *tier) promises(c *call, cell, heir int, attempt int32, until time.Duration) bool {
	d, pr := &t.plan.Drift, &c.promises[cell][heir]
	drift := time.Duration(d.Rate*float64(pr.ttl)) + d.Floor
	return pr.attempt == attempt && (c.lock.permits(cell) == 0 || pr.slot == c.machine.Slot()) && pr.at+pr.ttl >= until+drift-time.Microsecond
}

// stepped checks a step of a machine.
func (t *tier) stepped(c *call, was core.Phase, e *core.Event, fx *core.Effects) {
	if t.traces {
		t.note("p%d: %s: %s", c.process.number+1, c.caller.Waiter, telling(c, was, e, fx))
	}
	if fx.Lost != core.NoReason {
		t.lostAt(c, fx.Lost)
	}
	for _, r := range fx.Rounds {
		if c.rounds[r.ID] {
			t.violate(roundsOnce, "%s got the outcome of renewal %d twice", c.caller.Waiter, r.ID)
		}
		if c.rounds == nil {
			c.rounds = make(map[int32]bool)
		}
		c.rounds[r.ID] = true
		if c.machine.Phase() != core.Holding {
			continue
		}
		if !r.Won && fx.Late == c.behind {
			t.violate(lateTold, "%s: a renewal found no quorum: told late %v", c.caller.Waiter, fx.Late)
		}
		// A renewal that wins without extending the validity changes nothing.
		if until := c.machine.Until(); !r.Won || until > c.extended {
			c.behind, c.extended = !r.Won, until
		}
	}
	if fx.Reason == core.NoQuorum || fx.Reason == core.HeldAndNoQuorum || fx.Reason == core.HeldOrNone && fx.Outcome == core.Failed {
		t.fewAnswer(c, fx.Reason)
	}
	h := c.worker.hold
	if h == nil || h.call != c || h.released || c.machine.Phase() != core.Holding {
		return
	}
	if until := c.machine.Until(); until > h.until {
		h.until = until
		t.backed(h)
	}
}

// fewAnswer checks that no quorum has been well since the call began. The tier may learn of a
// silent node's fault only later. For a TryLock, a node is not well either if it refuses for an
// ended hold of the same client, with a pending release.
func (t *tier) fewAnswer(c *call, why core.Reason) {
	// An Attach has no quorum if some nodes have been freed.
	if t.plan.Guard || t.plan.Twins || c.worker.text != nil {
		return
	}
	votes := make([]core.Vote, c.lock.Cells())
	for cell := range votes {
		votes[cell] = core.Yes
		d, tr := &c.machine.Cells[cell], &t.troubles[c.process.number*t.plan.Nodes+t.nodeOf(cell)]
		own := c.tries && d.Refusal != nil && d.Refusal.Ended
		if tr.now > 0 || tr.last >= c.first || own || why == core.HeldOrNone && d.Standing == core.Asked {
			votes[cell] = core.No
		}
	}
	if c.lock.lock.Tree.Tally(votes) == core.VoteWon {
		t.violate(minority, "%s fails for %d though a quorum is well", c.caller.Waiter, why)
	}
}

// lostAt checks that a loss is reported in time, and is one.
func (t *tier) lostAt(c *call, why core.Reason) {
	if t.traces {
		t.note("p%d: %s has lost the lock: %d", c.process.number+1, c.caller.Waiter, why)
	}
	t.watch.changes++
	h := c.worker.hold
	if h == nil || h.call != c {
		return
	}
	if late := c.process.now.Mono - c.machine.Until(); late > time.Microsecond && !t.wasPaused(c.process.number) {
		t.violate(lossTold, "%s was told %v late", c.caller.Waiter, late)
	}
	if t.plan.Class == calm && c.machineRenews() && !h.released {
		t.violate(nothingFails, "%s has lost the lock: %d", c.caller.Waiter, why)
	}
	if why == core.Gone && !h.released && !t.mayForget() {
		t.violate(nothingFails, "%s has lost the lock although no node forgets", c.caller.Waiter)
	}
}

// expires reports whether a hold may end by itself.
func (t *tier) expires() bool {
	for _, l := range t.locks {
		if l != nil && (!l.lock.Renew || l.lock.MaxHold > 0) {
			return true
		}
	}
	return false
}

// nodesKeepTime reports whether no node's clock is stepped, so that keys last as promised.
func (t *tier) nodesKeepTime() bool {
	for i := range t.plan.Faults {
		if t.plan.Faults[i].Kind == fleet.Step {
			return false
		}
	}
	return true
}

// mayForget reports whether a node may lose a key before its time.
func (t *tier) mayForget() bool {
	return t.plan.Class != calm // a key may end before a renewal is heard of
}

func (c *call) machineRenews() bool { return c.lock.lock.Renew && c.lock.lock.MaxHold == 0 }

// wasPaused reports whether a process has ever stood still, or its clock was stepped.
func (t *tier) wasPaused(process int) bool {
	for i := range t.plan.Faults {
		f := &t.plan.Faults[i]
		if isPause(f) && f.Client == process && f.At <= t.world.Now() {
			return true
		}
	}
	return false
}

// releasing records that an Unlock begins.
func (t *tier) releasing(h *hold) {
	h.released = true
	if slot := h.call.machine.Slot(); slot != h.slot {
		t.violate(mutualExclusion, "%s has slot %d, and had %d", h.call.caller.Waiter, slot, h.slot)
	}
	t.watch.spans[h.span].to = t.world.Now()
	t.watch.drop(h)
	t.watch.changes++
	// Callers that connect the names may give up before the next audit.
	t.watch.moved(t.group(h.call.lock.all()))
	if t.traces {
		t.note("p%d: %s releases", h.call.process.number+1, h.call.caller.Waiter)
	}
}

// released checks an Unlock that is decided.
func (t *tier) released(k *worker) {
	t.watch.ends++
	c, h := k.call, k.hold
	confirmed, broken := c.machine.Released()
	if t.traces {
		t.note("p%d: w%d has unlocked: confirmed %v, broken %v, lost %v", k.process.number+1, k.number+1, confirmed, broken, h.lost)
	}
	// A Detach after its lease ran out.
	late := k.step.Detach > 0 && c.machine.Remaining(k.process.now) <= 0
	if t.plan.Class == calm && !h.lost && !late && (!confirmed || broken) {
		t.violate(nothingFails, "w%d cannot unlock: confirmed %v, broken %v", k.number+1, confirmed, broken)
	}
	if confirmed && !h.lost && c.kept > 0 && t.nodesKeepTime() {
		w := &t.watch
		// The nodes count from the request, even if the process has been suspended since. By the
		// process's own clock, the end would come too late.
		end := k.unlocked + time.Duration(float64(max(k.step.Keep, k.step.Detach))*(1-t.plan.Drift.Rate)) - t.plan.Drift.Floor
		w.kept = append(w.kept, span{c.lock, h, t.world.Now(), end})
	}
	for _, name := range c.lock.names {
		if k.step.Keep == 0 && k.step.Detach == 0 {
			t.handoff(name, true)
		}
	}
}

func (t *tier) extended(k *worker, took time.Duration, r core.Round) {
	t.inTime(k, "Extend", took-k.limit)
	if took > t.plan.silence()+slackOfClocks && !t.wasPaused(k.process.number) {
		t.violate(inTime, "Extend of w%d took %v", k.number+1, took)
	}
	if r.Won && !k.hold.lost {
		t.backed(k.hold)
	}
	if !r.Won && !k.hold.lost && t.plan.Class == calm && k.call.machineRenews() {
		t.violate(nothingFails, "Extend of w%d fails", k.number+1)
	}
}

const slackOfClocks = time.Microsecond

// inTime checks that a call took no longer than it may.
func (t *tier) inTime(k *worker, call string, took time.Duration) {
	// An Attach tries again while other takers do.
	if t.wasPaused(k.process.number) || k.text != nil && call == "Lock" {
		return
	}
	most := k.limit
	switch {
	case call == "Unlock":
		most = t.plan.silence()
	case call == "Extend":
		return
	case k.step.Try && (most == 0 || most > k.inProcess()+3*t.plan.NodeTimeout):
		most = k.inProcess() + 3*t.plan.NodeTimeout
	case most == 0:
		return
	}
	if took > most+slackOfClocks {
		t.violate(inTime, "%s of w%d took %v, and may take %v", call, k.number+1, took, most)
	}
}

// failed checks why a call has failed.
func (t *tier) failed(k *worker, why core.Reason, took time.Duration) {
	if t.traces {
		t.note("p%d: w%d fails after %v: %d", k.process.number+1, k.number+1, took, why)
	}
	t.inTime(k, "Lock", took)
	held := why == core.Held || why == core.HeldAndNoQuorum || why == core.HeldOrNone
	if why == core.NoQuorum && k.step.Try && t.expires() {
		return // a hold of the same process has ended and is not unlocked
	}
	few := why == core.NoQuorum || why == core.HeldAndNoQuorum || why == core.HeldOrNone || why == core.NoToken || why == core.TooLate
	switch {
	case k.gone, k.process.closed, why == core.WrongUse && t.occupied():
	case k.step.Try && (held || few && t.plan.Class != calm):
	default:
		t.violate(ridesOut, "w%d fails for %d", k.number+1, why)
	}
	now := k.process.now
	// Without a boot clock, a step forward counts as a suspend, and a step back as nothing.
	slept := max(now.Boot-now.Mono-k.asleep, 0)
	if why == core.NoToken && (!k.step.Try || took+slept < t.plan.NodeTimeout) {
		t.violate(minority, "w%d has no token after %v, of which it was suspended for %v", k.number+1, took+slept, slept)
	}
	if t.plan.Class == calm && few {
		t.violate(nothingFails, "w%d fails for %d", k.number+1, why)
	}
	if !k.step.Try && k.lock.read == 0 {
		t.watch.waits = append(t.watch.waits, span{k.lock, nil, t.world.Now() - took, t.world.Now()})
	}
	if k.step.Try && held && !k.gone {
		t.watch.refused = append(t.watch.refused, span{k.lock, nil, t.world.Now() - took, t.world.Now()})
	}
	for _, name := range k.lock.names {
		t.handoff(name, false)
	}
}
