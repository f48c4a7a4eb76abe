package coresim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// overload is a plan in which more callers come than the nodes can serve at once. A holder unlocks
// at once.
type overload struct {
	crowd
	script time.Duration // how long a call keeps its node busy
	far    time.Duration // the longest delay of a message; 0: 350 µs
	tenth  int           // of five nodes, so many take ten times as long
	loses  int           // so many lose every second reply
	stall  stall
	former former
}

// stall is a time in which some of the nodes stand still.
type stall struct {
	nodes    int
	at, long time.Duration
}

func (o *overload) begin(seed uint64) *tier {
	c := contest{near: 50 * us, far: 350 * us, script: o.script}
	if o.far > 0 {
		c.near, c.far = o.far*5/6, o.far
	}
	p := c.plan(seed, o.crowd)
	for n := range p.Nodes {
		if n < o.tenth {
			p.Clocks[n].Each *= 10
		}
		if n < o.loses {
			p.Clocks[n].Loses = 2
		}
		if n < o.stall.nodes {
			p.Faults = append(p.Faults, fleet.Fault{Kind: fleet.Freeze, At: o.stall.at, For: o.stall.long, Node: n, Client: -1})
		}
	}
	t := newTier(p, false)
	t.former, t.watch.unchecked = o.former, true // the checks cost the square
	return t
}

// excuses reports whether fewer nodes than a quorum run anything at a time, or have since then.
func (s *stall) excuses(at time.Duration) bool {
	const back = 2 * time.Second
	return s.nodes > 2 && at >= s.at && at < s.at+s.long+back
}

const overloadStep = 50 * ms

// served plays the plan to its end, and returns the time that it took. After each step it calls
// look with the number of locks so far; a lock that is not yet released counts as half of one.
func (o *overload) served(t *tier, look func(now time.Duration, locks float64) error) (took time.Duration, err error) {
	for t.calling() {
		took += overloadStep
		t.fired = 0
		t.world.Run(took)
		switch {
		case len(t.violations) > 0:
			return took, fmt.Errorf("%v", t.violations[0])
		case took > time.Minute:
			return took, fmt.Errorf("%d locks, and %d callers wait after %v", t.watch.ends, len(t.watch.calls), took)
		}
		if err := look(took, float64(t.watch.grants+t.watch.ends)/2); err != nil {
			return took, err
		}
	}
	return took, nil
}

// calling reports whether some callers have yet to end.
func (t *tier) calling() bool {
	return slices.ContainsFunc(t.procs, func(p *process) bool {
		return slices.ContainsFunc(p.workers, func(k *worker) bool { return !k.ended })
	})
}

// capacity returns how many locks a second the nodes can serve. A lock of one's own takes two calls
// of each node. For other locks, it is what a few callers get.
func (o *overload) capacity(t *testing.T) float64 {
	if o.locks == o.callers {
		return 1 / (2 * o.script).Seconds()
	}
	few := *o
	few.callers, few.rounds, few.stall = 4*o.locks, 20, stall{}
	few.perProcess = max(1, few.callers*o.perProcess/o.callers)
	took, err := few.served(few.begin(1), func(time.Duration, float64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return float64(few.callers*few.rounds) / took.Seconds()
}

// judge plays the plan, and returns what is wrong. In each second in which enough callers wait, and
// the nodes are well, they have four fifths of what the nodes can serve.
func (o *overload) judge(t *testing.T, seed uint64) error {
	const enough, second = 100, time.Second
	w, capacity := o.begin(seed), o.capacity(t)
	since, least, served := time.Duration(0), 1., []float64{0}
	took, err := o.served(w, func(now time.Duration, locks float64) error {
		served = append(served, locks)
		if o.stall.excuses(now) || len(w.watch.calls) < enough {
			since = now
		}
		if now-since < second {
			return nil
		}
		share := (locks - served[len(served)-1-int(second/overloadStep)]) / capacity
		if least = min(least, share); share < 0.8 {
			return fmt.Errorf("%.2f of the capacity in the second before %v, and %d callers wait", share, now, len(w.watch.calls))
		}
		return nil
	})
	if err != nil {
		return err
	}
	mayFail := o.gives > 0 || o.tries && o.stall.nodes > 2
	if n := o.callers - w.watch.grants; n > 0 != mayFail {
		return fmt.Errorf("%d of %d calls have failed", n, o.callers)
	}
	if most := time.Duration(float64(o.callers)/0.8/capacity*float64(second)) + o.stall.long + time.Second; o.apart == 0 && took > most {
		return fmt.Errorf("all have had their locks after %v, want %v", took, most)
	}
	after := 2 * time.Second
	if o.tenth > 0 { // the calls that the slow node has yet to run
		after += 2 * time.Duration(o.callers) * 10 * o.script
	}
	took = max(took, o.stall.at+o.stall.long)
	w.world.Run(took + after)
	w.placesReturn()
	for n := range w.plan.Nodes {
		node, now := w.world.Node(n)
		if all := node.Keys(now); slices.ContainsFunc(all, isShort) {
			return fmt.Errorf("n%d has keys after %v", n+1, took+after)
		}
	}
	if len(w.violations) > 0 {
		return fmt.Errorf("%v", w.violations[0])
	}
	t.Logf("%d locks in %v, %.0f a second by capacity; the least share of it was %.2f; %.1f scripts a lock", o.callers, took, capacity, least, float64(w.watch.scripts)/float64(o.callers))
	return nil
}

// burst has callers that come at once, each for a lock of its own.
func burst(callers, processes int) crowd {
	return crowd{callers: callers, perProcess: (callers + processes - 1) / processes, locks: callers, rounds: 1}
}

// Overload costs time, and no call. The rate is back two seconds after a stall.
func TestOverloadCostsTimeAlone(t *testing.T) {
	quarter := burst(3000, 4) // of what the nodes can serve
	quarter.apart = 1600 * us
	fewLocks := burst(2000, 20)
	fewLocks.locks = 10
	gives, tries := burst(5000, 4), burst(5000, 4)
	gives.gives, tries.tries = 2*time.Second, true
	for name, o := range map[string]overload{
		"10 callers":                              {crowd: burst(10, 1), script: 100 * us},
		"10,000 callers in one process":           {crowd: burst(10_000, 1), script: 100 * us},
		"5,000 callers in 8 processes":            {crowd: burst(5000, 8), script: 100 * us},
		"4,000 callers in 500 processes":          {crowd: burst(4000, 500), script: 100 * us},
		"500 processes with one caller":           {crowd: burst(500, 500), script: 400 * us},
		"slow scripts":                            {crowd: burst(5000, 1), script: 400 * us},
		"5,000 callers in 50 processes":           {crowd: burst(5000, 50), script: 200 * us},
		"10,000 callers in 50 processes":          {crowd: burst(10_000, 50), script: 100 * us},
		"2,000 processes with one caller":         {crowd: burst(2000, 2000), script: 200 * us},
		"callers who give up":                     {crowd: gives, script: 200 * us},
		"callers of TryLock":                      {crowd: tries, script: 200 * us},
		"callers of TryLock, and all nodes stall": {crowd: tries, script: 200 * us, stall: stall{5, time.Second / 2, 3 * time.Second}},
		"distant nodes":                           {crowd: burst(10_000, 1), script: 50 * us, far: 1500 * us},
		"callers for ten locks":                   {crowd: fewLocks, script: 100 * us},
		"one node is ten times slower":            {crowd: burst(2500, 4), script: 200 * us, tenth: 1},
		"one node loses every second reply":       {crowd: burst(2500, 4), script: 200 * us, loses: 1},
		"all nodes stall":                         {crowd: quarter, script: 200 * us, stall: stall{5, time.Second, 3 * time.Second}},
		"three nodes stall":                       {crowd: quarter, script: 200 * us, stall: stall{3, time.Second, 3 * time.Second}},
		"two nodes stall":                         {crowd: quarter, script: 200 * us, stall: stall{2, time.Second, 3 * time.Second}},
		"all nodes stall during a burst":          {crowd: burst(5000, 4), script: 200 * us, stall: stall{5, time.Second / 2, 3 * time.Second}},
		"two nodes stall during a burst":          {crowd: burst(5000, 4), script: 200 * us, stall: stall{2, time.Second / 2, 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(testkit.Thorough(5, 1)) {
				if err := o.judge(t, seed); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// With the rules of earlier editions, the same plans break the promise. After a stall, nobody is
// granted anything.
func TestFormerRulesCollapse(t *testing.T) {
	for name, o := range map[string]overload{
		"a limit from the queueing":         {crowd: burst(5000, 50), script: 400 * us, former: former{fromQueueing: true}},
		"no admission":                      {crowd: burst(5000, 1), script: 400 * us, former: former{unadmitted: true}},
		"no admission, and all nodes stall": {crowd: burst(5000, 4), script: 200 * us, stall: stall{5, time.Second / 2, 3 * time.Second}, former: former{unadmitted: true}},
	} {
		t.Run(name, func(t *testing.T) {
			err := o.judge(t, 1)
			if t.Log(err); err == nil {
				t.Error("it keeps the promise")
			}
		})
	}
}
