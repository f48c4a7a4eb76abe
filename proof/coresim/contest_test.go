package coresim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// The tests of this file count what contention costs, without faults but silent and slow nodes.

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// contest lets crowds take their locks of five nodes again and again. Each message takes between
// near and far; each holder keeps its lock for hold.
type contest struct {
	permits         int
	near, far, hold time.Duration
	script          time.Duration // how long a script keeps its node busy
	fewNodes
}

// fewNodes are the nodes that are silent, or to which a message takes lag longer.
type fewNodes struct {
	silent, slow int
	lag          time.Duration
}

// crowd is a number of callers of one kind.
type crowd struct {
	callers     int
	names, read int
	perProcess  int           // callers of a process; 0 for one
	apart       time.Duration // between the first calls of two of them
	locks       int           // so many locks, in turn; 0: the lock of the names
	rounds      int           // how many times each takes its lock; 0: 20,000 times in all
	gives       time.Duration // the longest wait before they give up; 0: no limit
	tries       bool          // they call TryLock
}

// begin returns a tier that is ready to play a contest.
func (c *contest) begin(seed uint64, crowds ...crowd) *tier {
	return newTier(c.plan(seed, crowds...), false)
}

func (c *contest) plan(seed uint64, crowds ...crowd) *Plan {
	p := &Plan{Seed: seed, Class: bounded, Nodes: 5, Quorum: 3, Permits: c.permits, TTL: 10 * time.Second, NodeTimeout: 500 * ms, Drift: quorumlock.DefaultDrift()}
	p.Network, p.Latency, p.Length = fleet.Network{MinDelay: c.near, MaxDelay: c.far}, c.far+c.lag, 1<<60
	g := generator{rand.New(rand.NewPCG(seed, 0xc047))}
	for n := range p.Nodes {
		on := fleet.Computer{Wall: epoch, Each: c.script}
		if n >= p.Nodes-c.slow {
			on.Lag = c.lag
		}
		p.Clocks = append(p.Clocks, on)
		if n >= p.Nodes-c.silent {
			p.Faults = append(p.Faults, fleet.Fault{Kind: fleet.Cut, For: 1 << 60, Node: n, Client: -1})
		}
	}
	for _, all := range crowds {
		for i := range all.callers {
			rounds := all.rounds
			if rounds == 0 {
				rounds = 1 + 20_000/all.callers
			}
			steps := make([]Step, rounds)
			for j := range steps {
				steps[j] = Step{Names: all.names, Read: all.read, Try: all.tries, Hold: []Use{{After: c.hold}}}
				if all.locks > 0 {
					steps[j].Other = 1 + i%all.locks
				}
				if all.gives > 0 {
					steps[j].Limit = g.between(0, all.gives)
				}
			}
			steps[0].After = time.Duration(i) * all.apart
			if i%max(all.perProcess, 1) == 0 {
				p.Processes = append(p.Processes, fleet.Computer{Wall: epoch})
			}
			p.Workers = append(p.Workers, WorkerPlan{Process: len(p.Processes) - 1, Steps: steps})
		}
	}
	return p
}

// tally is what a contest has come to so far.
type tally struct{ grants, handed, scripts int }

// playTo plays a contest up to a time.
func (t *tier) playTo(tb testing.TB, until time.Duration) tally {
	tb.Helper()
	t.fired = 0
	t.world.Run(until)
	if len(t.violations) > 0 {
		tb.Fatal(t.violations[0])
	}
	return tally{t.watch.grants, t.watch.successors, t.watch.scripts}
}

// rate is what callers of a semaphore get after a warm-up, in the time of so many holds.
func (c *contest) rate(tb testing.TB, seed uint64, callers, holds int) (n tally, while time.Duration) {
	t := c.begin(seed, crowd{callers: callers, names: 3, apart: c.far})
	warm := time.Duration(callers) * (c.hold + 4*c.far)
	while = time.Duration(holds) * c.hold
	before := t.playTo(tb, warm)
	n = t.playTo(tb, warm+while)
	return tally{n.grants - before.grants, n.handed - before.handed, n.scripts - before.scripts}, while
}

// Many callers may ask at once for free slots, and a minority of nodes may be silent. Yet a slot
// takes at most five scripts a node more than for a caller alone, which needs one.
func TestFreeSlotsNeedNoContest(t *testing.T) {
	for _, tt := range []struct{ permits, callers, seeds int }{
		{2, 2, 20}, {8, 8, 20}, {64, 32, 5}, {32, 32, 5}, {256, 256, 1}, {1000, 1000, 1},
	} {
		for silent := range 3 {
			t.Run(fmt.Sprintf("%d callers, %d slots, %d silent nodes", tt.callers, tt.permits, silent), func(t *testing.T) {
				scripts, longest := 0, time.Duration(0)
				for seed := range tt.seeds {
					c := contest{permits: tt.permits, near: 50 * us, far: 350 * us, hold: time.Hour, fewNodes: fewNodes{silent: silent}}
					all := c.begin(uint64(seed), crowd{callers: tt.callers, names: 3})
					all.watch.unchecked = tt.callers > 64 // the checks cost the square
					now := time.Duration(0)
					for all.watch.grants < tt.callers && now < 10*time.Second {
						now += ms
						all.playTo(t, now)
					}
					scripts, longest = scripts+all.watch.scripts, max(longest, now)
				}
				each := float64(scripts) / float64(tt.seeds*tt.callers*(5-silent))
				t.Logf("%.2f scripts a slot and node; the last had its slot after %v at most", each, longest)
				if each > 6 {
					t.Errorf("%.2f scripts a slot and node, want 6 at most", each)
				}
				if longest > 2*time.Second {
					t.Errorf("the last had its slot after %v", longest)
				}
			})
		}
	}
}

// Callers with different slots at different nodes give way to each other. They do not wait for
// silent or slow nodes.
func TestSilentAndSlowNodesCostASemaphoreNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		contest
		callers int
	}{
		"eight slots, nine callers":      {contest{permits: 8, near: 50 * us, far: 350 * us, hold: 100 * ms}, 9},
		"eight slots, 16 callers":        {contest{permits: 8, near: 50 * us, far: 350 * us, hold: 50 * ms}, 16},
		"eight slots, 64 callers":        {contest{permits: 8, near: 50 * us, far: 350 * us, hold: 20 * ms}, 64},
		"two slots, three callers":       {contest{permits: 2, near: 50 * us, far: 350 * us, hold: 20 * ms}, 3},
		"one slot, three callers":        {contest{permits: 1, near: 50 * us, far: 350 * us, hold: 20 * ms}, 3},
		"two slots, three callers, far":  {contest{permits: 2, near: 5 * ms, far: 6 * ms, hold: 100 * ms}, 3},
		"eight slots, nine callers, far": {contest{permits: 8, near: 5 * ms, far: 6 * ms, hold: 200 * ms}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			healthy := 0
			for _, tt.fewNodes = range []fewNodes{{}, {silent: 1}, {silent: 2}, {slow: 1, lag: 100 * ms}, {slow: 2, lag: 100 * ms}} {
				grants := 0
				for seed := range uint64(3) { // one schedule alone may have a tenth more or less
					got, _ := tt.rate(t, seed, tt.callers, 100)
					grants += got.grants
				}
				if tt.fewNodes == (fewNodes{}) {
					healthy = grants
				}
				t.Logf("%+v: %d of %d grants", tt.fewNodes, grants, healthy)
				if grants < healthy*9/10 {
					t.Errorf("%+v: %d grants, want at least 90 %% of the %d with all nodes", tt.fewNodes, grants, healthy)
				}
			}
		})
	}
}

// multiLocks are kinds of MultiLocks, each with one of its mutexes. The first has only mutexes.
var multiLocks = []struct{ names, read, members, mutex int }{{2, 0, 2, 1}, {2, 1, 2, 1}, {4, 0, 2, 0}, {5, 1, 3, 1}}

// compete lets crowds take their locks for a while. It returns the grants of each crowd, and the
// number of scripts.
func (c contest) compete(t *testing.T, while time.Duration, crowds ...crowd) (grants []int, scripts int) {
	c.permits, c.near, c.far, c.hold = 2, 50*us, 350*us, ms
	all := c.begin(1, crowds...)
	n := all.playTo(t, while)
	var workers []*worker
	for _, p := range all.procs {
		workers = append(workers, p.workers...)
	}
	for _, some := range crowds {
		got := 0
		for _, k := range workers[:some.callers] {
			got += k.got
		}
		grants, workers = append(grants, got), workers[some.callers:]
	}
	return grants, n.scripts
}

// A MultiLock takes a share, or a slot, at its turn at all its members. So a grant costs little
// more than with a mutex in its place, for any number of callers.
func TestAShareOrASlotOfAMultiLockIsTakenInItsTurn(t *testing.T) {
	for _, m := range []fewNodes{{}, {silent: 1}, {silent: 2}} {
		for _, callers := range []int{4, 40} {
			mutexes := 0.
			for i, kind := range multiLocks {
				grants, scripts := contest{fewNodes: m}.compete(t, time.Second/2, crowd{callers: callers, names: kind.names, read: kind.read, apart: us})
				got := float64(scripts) / float64(max(grants[0], 1)*kind.members*(5-m.silent))
				if i == 0 {
					mutexes = got
				}
				t.Logf("%d callers of %v, %+v: %.2f scripts a grant and cell, %.2f with mutexes", callers, kind, m, got, mutexes)
				if got > 2.5*mutexes {
					t.Errorf("%d callers of %v, %+v: %.2f scripts a grant and cell, %.2f with mutexes", callers, kind, m, got, mutexes)
				}
			}
		}
	}
}

// Callers that give up cost the others little: at least half of the grants remain, also of callers
// that wait for one of the members alone. With shares and slots they cost the nodes little more
// than with mutexes. The same holds for scripts so slow that the calls of all that give up would
// keep the nodes busy all the time.
func TestCallersWhoGiveUpCostTheOthersLittle(t *testing.T) {
	for _, script := range []time.Duration{0, 200 * us, 400 * us} {
		mutexes := 0.
		for i, kind := range multiLocks {
			c := contest{script: script}
			of := func(gives time.Duration) crowd {
				return crowd{callers: 24, names: kind.names, read: kind.read, perProcess: 6, apart: 40 * us, gives: gives}
			}
			beside := crowd{callers: 4, names: kind.mutex, apart: 250 * us}
			alone, _ := c.compete(t, time.Second, of(0))
			churnAlone, _ := c.compete(t, time.Second, of(50*ms))
			patient, _ := c.compete(t, time.Second, beside, of(0))
			churn, scripts := c.compete(t, time.Second, beside, of(50*ms))
			t.Logf("scripts of %v, %v: grants %v, without giving up %v; with others beside %v, without giving up %v; %d scripts",
				script, kind, churnAlone, alone, churn, patient, scripts)
			if churnAlone[0] < alone[0]/2 || churn[0] < patient[0]/2 || churn[0]+churn[1] < (patient[0]+patient[1])/2 {
				t.Errorf("scripts of %v, %v: %v and %v grants, %v and %v if nobody gives up", script, kind, churnAlone, churn, alone, patient)
			}
			costs := float64(scripts) / float64((churn[0]+churn[1])*kind.members)
			if i == 0 {
				mutexes = costs
			}
			if costs > 2.5*mutexes {
				t.Errorf("scripts of %v, %v: %.1f scripts a grant and member, %.1f with mutexes", script, kind, costs, mutexes)
			}
		}
	}
}

// BenchmarkContest measures the use of the slots without the cost of processors. Its time for an
// operation means nothing.
func BenchmarkContest(b *testing.B) {
	for _, permits := range []int{1, 8} {
		for _, c := range []contest{
			{near: 50 * us, far: 50 * us, hold: ms}, {near: 50 * us, far: 150 * us, hold: ms}, {near: 50 * us, far: 350 * us, hold: ms}, {near: 50 * us, far: ms, hold: ms},
			{near: 50 * us, far: 350 * us, hold: ms, fewNodes: fewNodes{silent: 1}}, {near: 50 * us, far: 350 * us, hold: ms, fewNodes: fewNodes{silent: 2}},
			{near: 50 * us, far: 350 * us, hold: ms, fewNodes: fewNodes{slow: 1, lag: 50 * ms}}, {near: 50 * us, far: 350 * us, hold: ms, fewNodes: fewNodes{slow: 2, lag: 50 * ms}},
			{near: 50 * us, far: 350 * us, hold: 20 * ms}, {near: 5 * ms, far: 6 * ms, hold: 20 * ms},
		} {
			c.permits = permits
			b.Run(fmt.Sprintf("slots %d, messages %v to %v, hold %v, silent %d, slow %d", permits, c.near, c.far, c.hold, c.silent, c.slow), func(b *testing.B) {
				var all tally
				var while time.Duration
				for i := range b.N {
					n, w := c.rate(b, uint64(i), 64, 500)
					all.grants, all.handed, all.scripts, while = all.grants+n.grants, all.handed+n.handed, all.scripts+n.scripts, while+w
				}
				b.ReportMetric(float64(all.grants)/while.Seconds(), "grants/s")
				b.ReportMetric(100*float64(all.grants)*c.hold.Seconds()/while.Seconds()/float64(permits), "%held")
				b.ReportMetric(float64(all.scripts)/float64(all.grants), "scripts/grant")
				b.ReportMetric(100*float64(all.handed)/float64(all.grants), "%handed")
			})
		}
	}
}
