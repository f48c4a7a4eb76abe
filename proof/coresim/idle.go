package coresim

import (
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/proof/fleet"
)

// Idle is a time without calls after the schedule, and then one call. The nodes' token counters end
// meanwhile, or some of them do.
type Idle struct {
	For     time.Duration
	Process int
	Names   int           // as in a Step
	Down    []int         `shrink:"drop"` // nodes that are down during the call
	Node    int           // the clock of this one is set back before the call
	Back    time.Duration `shrink:"0"`
}

// idles adds idle times to some plans, in which the clocks of processes and nodes are wrong by
// hours. A node whose clock is set back by up to a minute does not forget. The clocks of nodes that
// may forget are set back by hours. A generator of its own keeps the other seeds unchanged.
func (p *Plan) idles() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x1d1e))}
	if p.Class != bounded || p.Guard || !g.chance(0.2) {
		return
	}
	wrong := func(c []fleet.Computer, by time.Duration) {
		for i := range c {
			c[i].Wall = c[i].Wall.Add(g.between(-by, by))
		}
	}
	wrong(p.Processes, pick(g, 0, time.Minute, time.Minute, 2*time.Minute, 5*time.Hour))
	wrong(p.Clocks, pick(g, 0, 0, time.Minute, 12*time.Hour))
	for range 3 + g.IntN(6) {
		long := pick(g, 0, time.Minute, 90*time.Second, 2*time.Minute, 3*time.Minute, 4*time.Minute, 6*time.Minute, 6*time.Minute, 10*time.Minute, 30*time.Hour)
		x := Idle{For: g.between(long*3/4, long+time.Second), Process: g.IntN(len(p.Processes)), Down: g.Perm(p.Nodes)[:g.IntN(p.Nodes-p.Quorum+1)]}
		if p.Permits > 0 {
			x.Names = pick(g, 0, 3)
		}
		if x.Node = g.IntN(p.Nodes); g.chance(0.5) {
			x.Back = g.between(0, time.Minute-time.Second)
		}
		if n := p.forgetful(); n > 0 && g.chance(0.5) {
			x.Node, x.Back = g.IntN(n), g.between(0, 10*time.Hour)
		}
		p.Idles = append(p.Idles, x)
	}
}

// rest lets the idle times pass. After a minute the caller gets the lock, unless a node with an older
// hold may have been set back by hours.
func (t *tier) rest() {
	t.rests = true
	far := false
	for i := range t.plan.Idles {
		x := &t.plan.Idles[i]
		p := t.procs[x.Process]
		if len(t.violations) > 0 || p.dead || p.closed {
			continue
		}
		t.world.Run(t.world.Now() + x.For)
		for n := range t.plan.Nodes {
			node, now := t.world.Node(n)
			node.Keys(now) // removes those that are over
		}
		far = far || x.Back > time.Minute
		t.world.Suffer(&fleet.Fault{Kind: fleet.Step, Node: x.Node, By: -x.Back})
		for _, n := range x.Down {
			t.world.Suffer(&fleet.Fault{Kind: fleet.Crash, Node: n, For: 10 * time.Second})
		}
		t.advance(time.Second)
		const limit = 5 * time.Second
		k := &worker{process: p, number: len(t.plan.Workers) + 1 + i, steps: []Step{{Names: x.Names, Limit: limit}}}
		t.probe = k
		t.outside(p, k.next)
		t.advance(10 * time.Second) // until all nodes are well
		if k.got == 0 && len(t.violations) == 0 && !t.keptLate && !far && x.For > time.Minute {
			t.violate(acquires, "after the idle time %d, p%d got no lock within %v", i+1, p.number+1, limit)
		}
	}
}
