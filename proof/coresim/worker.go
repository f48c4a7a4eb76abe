package coresim

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
)

// worker is one caller of a process: it takes the steps of a plan, one after another.
type worker struct {
	process  *process
	number   int
	steps    []Step
	at       int // the next step
	use      int // the next use of the hold
	step     *Step
	call     *call // that waits or holds
	lock     *lock
	ticket   int64
	place    *engine.Place[*worker]          // in the local queue
	unsent   *engine.Applicant[int, *worker] // while its attempt waits for a place
	unsentAt time.Duration                   // since then
	waited   time.Duration                   // of the call: for places
	began    time.Duration                   // the call, by the monotonic clock
	asleep   time.Duration                   // time in suspends before the call
	limit    time.Duration                   // of the call; 0 if there is none
	id       int                             // changes with each action, to void its timers
	waits    bool                            // the call has not been decided
	gone     bool                            // the caller has cancelled
	unlocks  time.Duration                   // when Unlock began, by the monotonic clock
	unlocked time.Duration                   // the same in true time
	hold     *hold
	ended    bool
	got      int   // holds
	text     *text // of an Attach; nil for other calls
	taker    int   // which of its takers this is
	polls    polls
}

// after runs do after d, unless the worker does something else by then.
func (k *worker) after(d time.Duration, do func()) {
	id := k.id
	k.process.after(d, func() {
		if k.id == id && !k.process.closed {
			do()
		}
	})
}

// next begins the next step.
func (k *worker) next() {
	k.call, k.hold, k.waits = nil, nil, false
	k.id++
	t := k.process.tier
	if k.at == len(k.steps) || t.world.Now() > t.plan.Length && k != t.probe {
		k.ended = true
		return
	}
	k.step = &k.steps[k.at]
	k.at++
	k.after(k.step.After, k.begin)
}

// begin makes the call of a step.
func (k *worker) begin() {
	s, p := k.step, k.process
	k.id++
	k.lock, k.ticket = p.tier.lockOf(s), p.newTicket()
	k.began, k.asleep, k.waits, k.gone, k.waited = p.now.Mono, p.now.Boot-p.now.Mono, true, false, 0
	k.limit = s.Limit
	if s.Cancel > 0 && (k.limit == 0 || s.Cancel < k.limit) {
		k.limit = s.Cancel
	}
	if k.limit > 0 {
		k.after(k.limit, k.cancel)
	}
	p.tier.watch.calls = append(p.tier.watch.calls, k)
	p.tier.watch.changes++
	k.enqueue()
}

// try makes one call. A hold that was lost before it was returned is followed by another.
func (k *worker) try() {
	if k.text != nil {
		k.process.tier.attach(k)
		return
	}
	k.takePlace()
}

// ask makes a call whose first attempt has its place.
func (k *worker) ask() {
	k.call = k.process.tier.newCall(k, k.lock, k.step.Try, k.ticket)
	k.call.start()
}

func (k *worker) cancel() {
	if !k.waits {
		return
	}
	k.gone = true
	// It waits in the local queue, for a place, or to attach again.
	if k.call == nil || k.call.outcome == core.Failed {
		k.returns()
		k.next()
		return
	}
	k.call.step(core.Event{Kind: core.Cancel})
}

// returns ends the call of the worker.
func (k *worker) returns() {
	k.waits = false
	k.process.tier.watch.returned(k)
	k.leavePlace()
	k.dequeue()
}

// called handles a message that it may be the worker's turn.
func (k *worker) called() {
	if k.waits && k.step.Told > 0 {
		k.after(k.step.Told, k.cancel)
	}
}

// decided handles a call that has the lock, or has failed.
func (k *worker) decided(c *call) {
	p, t := k.process, k.process.tier
	if c.outcome == core.Acquired {
		k.acquired(c)
		return
	}
	p.forget(c)
	c.finish(t)
	if k.gone && !k.step.Try {
		p.paces[k.step.kind()] = core.LostAt(p.now.Mono)
	}
	took := p.now.Mono - k.began
	switch {
	case k.text == nil:
		t.failed(k, c.reason, took)
	case t.notAttached(k, c) && !p.closed:
		k.after(time.Duration(1+p.to.Random(40))*time.Millisecond, k.try)
		return
	}
	k.returns()
	if p.closed {
		k.ended = true
		return
	}
	k.next()
}

func (k *worker) acquired(c *call) {
	p, t := k.process, k.process.tier
	if !p.lives(c) || !c.alive() || p.closed { // the caller never gets it
		c.release(0)
		return
	}
	if k.text != nil {
		t.attached(k)
		c.apply(core.Event{Kind: core.Extend})
		c.flush()
	}
	t.inTime(k, "Lock", p.now.Mono-k.began)
	k.id++
	c.holds = true
	if !p.compares {
		p.compares, p.seenAt = true, p.now
		p.compare()
	}
	p.paces[k.step.kind()] = core.Pace{}
	k.got++
	k.hold = t.granted(c)
	k.returns()
	k.use = 0
	k.goOn()
}

// goOn does the next thing that the holder does.
func (k *worker) goOn() {
	if k.use == len(k.step.Hold) {
		k.unlock()
		return
	}
	u := &k.step.Hold[k.use]
	k.use++
	k.after(u.After, func() {
		switch {
		case k.hold.lost:
			k.unlock()
		case u.Downgrade:
			k.downgrade()
		case u.Extend:
			began, c := k.process.now.Mono, k.call
			c.extend(func(r core.Round) { k.extended(c, began, r) })
		default:
			k.goOn()
		}
	})
}

func (k *worker) extended(c *call, began time.Duration, r core.Round) {
	if k.call != c || k.hold == nil || c.over {
		return
	}
	t := k.process.tier
	t.extended(k, k.process.now.Mono-began, r)
	k.id++
	k.after(0, k.goOn)
}

// lost records that the hold is lost.
func (k *worker) lost() {
	if k.hold != nil {
		k.hold.lost = true
	}
}

// unlock ends the hold.
func (k *worker) unlock() {
	k.id++
	c, p := k.call, k.process
	k.unlocks, k.unlocked = p.now.Mono, p.tier.world.Now()
	c.apply(core.Event{Kind: core.Tick}) // the deadline may have passed
	p.tier.releasing(k.hold)
	c.flush()
	if k.step.Detach > 0 {
		c.detach(k.step.Detach)
		return
	}
	c.release(k.step.Keep)
}

// freed handles a decided release.
func (k *worker) freed() {
	p, c := k.process, k.call
	c.finish(p.tier)
	if k.hold == nil { // the caller never had the hold
		switch {
		case p.closed:
			k.ended = true
		case k.step.Try || k.gone || k.limit > 0 && p.now.Mono-k.began >= k.limit:
			k.returns()
			k.next()
		default:
			k.try()
		}
		return
	}
	p.tier.inTime(k, "Unlock", p.now.Mono-k.unlocks)
	p.tier.released(k)
	if k.step.Detach > 0 {
		k.detached()
	}
	k.next()
}
