package simulation

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// big makes about one seed of 100 big: with many slots, many callers of MultiLocks, or many ids of
// a latch. Its own generator keeps the other seeds unchanged.
func (p *Plan) big() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xbe2))}
	twins := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == several })
	if p.Guard || p.Idle || twins || len(p.Java) > 0 || !g.chance(1./80) {
		return
	}
	p.Big, p.Readers = true, false
	p.Permits, p.Latch, p.IDs, p.Waiter, p.Workers = 0, 0, 0, false, nil
	kinds := []func(generator){p.manySlots, p.manyMultiLocks, p.manyIDs}
	if p.Class == beyond { // see latches
		kinds = kinds[:2]
	}
	pick(g, kinds...)(g)
}

// few returns a random number from least to most. Small numbers are more frequent.
func (g generator) few(least, most int) int {
	x := math.Pow(g.Float64(), 3)
	return least + int(x*float64(most-least+1))
}

// manySlots plans about as many callers as the semaphore has slots.
func (p *Plan) manySlots(g generator) {
	p.Permits = g.few(10, 40)
	p.callers(g, max(2, p.Permits-3+g.IntN(7)), Step{Name: semaphore})
}

// manyMultiLocks plans many callers of a MultiLock that shares x, and a few of one of its members.
// The callers are in several processes. Some of them give up soon.
func (p *Plan) manyMultiLocks(g generator) {
	for range 1 + g.IntN(4) {
		p.Processes = append(p.Processes, g.process(p))
	}
	p.Readers = true
	s := Step{Name: pick(g, "x+y", "x+y", "x+s", "x+y+s"), Read: readsX}
	if strings.HasSuffix(s.Name, semaphore) {
		p.Permits = pick(g, 1, 2, 3)
	}
	most := 40
	if p.Class != calm || strings.Count(s.Name, "+") > 1 { // more scripts would take seconds
		most = 20
	}
	p.callers(g, g.few(10, most), s)
	for i := range p.Workers {
		if s := &p.Workers[i].Steps[0]; g.chance(0.3) {
			s.Limit = g.between(1, 100*p.Latency)
		}
	}
	p.callers(g, g.IntN(4), Step{Name: "x"})
}

// callers adds n callers that come at about the same time, and hold the lock for a moment.
func (p *Plan) callers(g generator, n int, of Step) {
	all, hold := g.between(p.Latency, 20*p.Latency), g.between(1, 4*p.Latency)
	for range n {
		s := of
		s.After, s.Hold, s.Limit, s.Wait = g.between(0, all), []Use{{After: g.between(0, hold), What: write}}, time.Hour, g.chance(0.5)
		if p.Class != calm {
			s.Limit = g.between(p.TTL, 6*p.TTL)
		}
		p.Workers = append(p.Workers, WorkerPlan{Process: g.IntN(len(p.Processes)), Steps: []Step{s}})
	}
}

// manyIDs plans a latch to which many ids are added at about the same time.
func (p *Plan) manyIDs(g generator) {
	p.Latch, p.Waiter = g.few(20, 78), p.Class == calm || g.chance(0.5)
	p.IDs = p.Latch + g.IntN(3)
	at, within := g.between(0, p.Length/2), g.between(1, 20*p.Latency)
	call := func(s Step) {
		s.Name, s.Limit, s.After = latch, g.between(0, 2*p.TTL), at+s.After
		p.Workers = append(p.Workers, WorkerPlan{Process: g.IntN(len(p.Processes)), Steps: []Step{s}})
	}
	for id := range p.IDs {
		call(Step{Latch: adds, ID: id, After: g.between(0, within)})
	}
	for range 4 + g.IntN(6) {
		call(Step{Latch: pick(g, waits, counts, counts), After: g.between(0, 2*within), Fresh: g.chance(0.3)})
	}
	if p.Class != calm && g.chance(0.6) {
		g.views(p)
	}
}
