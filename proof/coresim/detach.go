package coresim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Taker is a caller that tries to attach a detached hold.
type Taker struct {
	Process int
	After   time.Duration // the Detach, or its outcome
	Cancel  time.Duration `shrink:"0"` // when the Attach is cancelled; 0: it is not
	Use     time.Duration // how long it holds the lock
	// If set, it detaches the hold for its successors in the list, instead of an Unlock.
	Detach time.Duration `shrink:"0"`
}

// text is the result of a Detach.
type text struct {
	owner  quorumlock.Owner
	source core.Source
	lock   *lock
	step   *Step // the step with its takers
	next   int   // the first of them that may attach
	kept   int   // the span of the detached hold, in watch.kept; -1 if there is none
	taken  bool
	tries  int
}

// detaches makes some holds of some seeds go on in other processes. Its own generator keeps the
// other seeds unchanged.
func (p *Plan) detaches() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xde7))}
	if p.Detaches = g.chance(0.12); !p.Detaches {
		return
	}
	limit := 2 * p.TTL
	if p.Guard {
		limit = p.TTL
	}
	time := func() time.Duration { return g.between(p.TTL/4, limit) }
	for _, w := range p.Workers {
		for i := range w.Steps {
			s := &w.Steps[i]
			if s.Names >= 2 || s.Read != 0 || s.Keep > 0 || !g.chance(0.5) {
				continue
			}
			for j := range s.Hold {
				s.Hold[j].Downgrade = false
			}
			s.Detach = time()
			together := g.between(0, s.Detach*5/4)
			for range 1 + g.IntN(4) {
				k := Taker{Process: g.IntN(len(p.Processes)), After: together, Use: g.between(0, p.TTL/2)}
				if g.chance(0.4) {
					k.After = g.between(0, s.Detach*5/4)
				} else {
					k.After += g.between(0, 2*p.Latency)
				}
				if g.chance(0.15) {
					k.Cancel = g.between(0, 4*p.Latency)
				}
				if g.chance(0.25) {
					k.Detach = time()
				}
				s.Takers = append(s.Takers, k)
			}
		}
	}
}

// detach ends the hold, as in package client. worker.freed follows.
func (c *call) detach(d time.Duration) {
	t := c.process.tier
	t.texts++
	// Not the number of a call.
	c.caller.Parked = quorumlock.Owner(fmt.Sprintf("%s:%010d.1", c.process.id, t.texts))
	c.over = true
	c.keeps(d)
	c.process.forget(c)
	c.step(core.Event{Kind: core.Detach, Keep: d})
}

// detached handles a decided Detach. If a quorum has confirmed it, the takers come.
func (k *worker) detached() {
	t, c := k.process.tier, k.call
	source, ok := c.machine.Parked()
	if !ok {
		return
	}
	x := &text{owner: c.caller.Parked, source: source, lock: c.lock, step: k.step, kept: -1}
	if k.text != nil {
		x.step, x.next = k.text.step, k.taker+1
	}
	if n := len(t.watch.kept) - 1; n >= 0 && t.watch.kept[n].hold == k.hold {
		x.kept = n
	}
	for i := x.next; i < len(x.step.Takers); i++ {
		t.world.At(t.world.Now()+x.step.Takers[i].After, func() { t.startTaker(x, i) })
	}
}

// startTaker makes a taker try.
func (t *tier) startTaker(x *text, i int) {
	s := &x.step.Takers[i]
	p := t.procs[s.Process]
	if p.dead || p.closed || t.world.Paused(p.number) {
		return
	}
	step := Step{Names: x.step.Names, Try: true, NoRenew: x.step.NoRenew, Cancel: s.Cancel, Hold: []Use{{After: s.Use}}, Detach: s.Detach}
	k := t.work(len(t.plan.Workers)+t.takers, s.Process, []Step{step})
	k.text, k.taker = x, i
	t.takers++
	t.outside(p, k.next)
}

// attach makes one call of Attach.
func (t *tier) attach(k *worker) {
	config := k.lock.lock
	config.Source = &k.text.source
	c := &call{process: k.process, worker: k, lock: k.lock, tries: true, number: len(t.calls)}
	c.caller = wire.Caller{Waiter: quorumlock.Owner(k.process.id + ":" + itoa(c.number)), Ticket: k.ticket, Former: k.text.owner}
	c.machine = core.New(&config, c.trip, uint64(k.process.to.Random(1<<40)))
	c.activity.begin(t, c)
	t.calls = append(t.calls, c)
	k.call = c
	k.text.tries++
	c.start()
}

// attached checks an Attach that has a quorum.
func (t *tier) attached(k *worker) {
	x, c := k.text, k.call
	if x.taken && t.plan.Class != beyond {
		t.violate(attachedOnce, "%s takes over a hold that was taken over before", c.caller.Waiter)
	}
	x.taken = true
	t.attachedHolds++
	if x.kept >= 0 {
		t.watch.kept[x.kept].to = min(t.watch.kept[x.kept].to, t.world.Now())
	}
	for _, name := range c.lock.names {
		for _, other := range t.watch.names[name].tokens {
			if other.token > x.source.Token && t.plan.Class != beyond {
				t.violate(tokensRise, "%s takes over a hold of %s with token %d after token %d", c.caller.Waiter, names[name], x.source.Token, other.token)
			}
		}
	}
	if c.machine.Token() != x.source.Token {
		t.violate(attachedOnce, "%s has token %d after %d", c.caller.Waiter, c.machine.Token(), x.source.Token)
	}
}

// notAttached checks an Attach that has failed, and returns whether it is tried again.
func (t *tier) notAttached(k *worker, c *call) (again bool) {
	const maxSplits = 8
	x := k.text
	if t.traces {
		t.note("p%d: %s does not attach: %d", k.process.number+1, c.caller.Waiter, c.reason)
	}
	if again = c.reason == core.Held && !k.gone && x.tries < maxSplits*len(x.step.Takers); again {
		return true
	}
	alive := x.kept >= 0 && t.world.Now() < t.watch.kept[x.kept].to
	// An Attach takes two round trips; its first renewal may take four times that.
	last := alive && t.watch.kept[x.kept].to-t.world.Now() < 20*t.plan.Network.MaxDelay
	if t.plan.Class == calm && x.tries == 1 && !k.gone && alive && !(last && c.reason == core.TooLate) {
		t.violate(nothingFails, "%s does not attach: %d", c.caller.Waiter, c.reason)
	}
	// A quorum can never be attached: the rest is freed.
	if x.kept >= 0 && c.reason == core.Gone {
		t.watch.kept[x.kept].to = min(t.watch.kept[x.kept].to, t.world.Now())
	}
	return false
}
