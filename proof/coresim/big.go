package coresim

import (
	"math"
	"math/rand/v2"

	"github.com/quorumlock/quorumlock/proof/fleet"
)

// big makes one seed of 500 big: with many slots, many callers of MultiLocks, or many ids of a
// latch. Its own generator keeps the other seeds unchanged. Plans with mutexes alone stay small,
// because firstCost is the cost of the first of them.
func (p *Plan) big() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xb16))}
	if p.isPlain() || p.Guard || p.Twins || len(p.Peers) > 0 || !g.chance(1./220) {
		return
	}
	p.Big, p.Readers, p.Crowd, p.Detaches = true, false, false, false
	p.Permits, p.Latch, p.Workers = 0, LatchPlan{}, nil
	pick(g, p.manySlots, p.manyMultiLocks, p.manyIDs, p.manyIDs)(g)
}

// few returns a random number from least to most. Small numbers are more frequent.
func (g generator) few(least, most int) int {
	x := math.Pow(g.Float64(), 5)
	return least + int(x*float64(most-least+1))
}

// manySlots plans about as many callers as the semaphore has slots.
func (p *Plan) manySlots(g generator) {
	p.Permits = g.few(20, 100)
	p.callers(g, max(2, p.Permits-3+g.IntN(7)), Step{Names: 3})
}

// manyMultiLocks plans many callers of a MultiLock with a reader, and a few of one of its members.
// The callers are in many processes. Some of them give up soon.
func (p *Plan) manyMultiLocks(g generator) {
	for range 3 + g.IntN(8) {
		p.Processes = append(p.Processes, g.process(p))
	}
	p.Readers = true
	s := Step{Names: pick(g, 2, 2, 4, 5), Read: 1}
	if s.Names > 3 {
		p.Permits = pick(g, 1, 2, 3)
	}
	p.callers(g, g.few(20, 60), s)
	first := len(p.Workers)
	p.callers(g, g.IntN(4), Step{Names: 0})
	for i := range first {
		if s := &p.Workers[i].Steps[0]; g.chance(0.3) {
			s.Limit = g.between(1, 100*p.Latency)
		}
	}
}

// callers adds n callers that come at about the same time, and hold the lock for a moment.
func (p *Plan) callers(g generator, n int, of Step) {
	all, hold := g.between(p.Latency, 20*p.Latency), g.between(1, 4*p.Latency)
	for range n {
		s := of
		s.After, s.Hold = g.between(0, all), []Use{{After: g.between(0, hold)}}
		if p.Class != calm {
			s.Limit = g.between(p.TTL, 6*p.TTL)
		}
		p.Workers = append(p.Workers, WorkerPlan{Process: g.IntN(len(p.Processes)), Steps: []Step{s}})
	}
}

// manyIDs plans a latch to which many ids are added at about the same time.
func (p *Plan) manyIDs(g generator) {
	l := &p.Latch
	l.N = g.few(50, 300)
	l.IDs = l.N + g.IntN(3)
	at, within := g.between(0, p.Length/2), g.between(1, 20*p.Latency)
	for _, id := range g.Perm(l.IDs) {
		l.Calls = append(l.Calls, LatchCall{Process: g.IntN(len(p.Processes)), At: at + g.between(0, within), What: adds, ID: id, Limit: g.between(0, 2*p.TTL)})
	}
	for range 4 + g.IntN(6) {
		l.Calls = append(l.Calls, LatchCall{Process: g.IntN(len(p.Processes)), At: at + g.between(0, 2*within), What: pick(g, waits, counts, counts), Limit: g.between(0, 2*p.TTL), Fresh: g.chance(0.3)})
	}
	if p.Class != calm && g.chance(0.6) {
		g.views(p)
	}
	for at := g.between(0, p.Length); p.Class == beyond && at < p.Length; at += g.between(0, p.Length) {
		p.Faults = append(p.Faults, fleet.Fault{Kind: fleet.Forget, At: at, Node: g.IntN(p.Nodes)})
	}
}
