package latchsim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/internal/embedded"
)

// plan is what happens in one schedule.
type plan struct {
	seed      uint64
	nodes     int
	quorum    int
	forgetful int // how many nodes, the first ones, may forget
	n         int // how many ids open the latch
	ids       int // how many there are
	processes int
	calls     int // of each worker
	calm      bool
	waiters   bool // a Wait of each process waits until the end, and writes back meanwhile what it sees
	faults    []fault
}

// length is how long the workers work, and the faults last.
const length = 20 * time.Second

// fault is something that is wrong for a while. If it is about a path, it is about that of one process to one node.
type fault struct {
	kind     string
	at, last time.Duration
	process  int
	node     int
}

func newPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &plan{seed: seed, nodes: 3 + rng.IntN(3), n: 1 + rng.IntN(5), processes: 2 + rng.IntN(3), calls: 3 + rng.IntN(4), calm: rng.IntN(5) == 0}
	p.quorum = p.nodes/2 + 1
	if rng.IntN(2) == 0 {
		p.quorum = min(p.quorum+rng.IntN(2)+rng.IntN(2), p.nodes)
	}
	p.forgetful = 2*p.quorum - p.nodes - 1
	p.ids, p.waiters = p.n+rng.IntN(3), p.calm || rng.IntN(2) == 0
	if p.calm {
		return p
	}
	if rng.IntN(3) > 0 {
		p.views(rng)
		return p
	}
	kinds := []string{"cut", "lost", "stalled", "mute", "slow", "deaf", "replies", "replies", "crash", "dies"}
	if p.forgetful > 0 {
		kinds = append(kinds, "forgets", "forgets", "forgets", "evicted", "evicted ids")
	}
	for range rng.IntN(20) {
		f := fault{
			kind: kinds[rng.IntN(len(kinds))], at: upTo(rng, length), last: upTo(rng, length/4),
			process: rng.IntN(p.processes), node: rng.IntN(p.nodes),
		}
		if f.kind == "forgets" || f.kind == "evicted" || f.kind == "evicted ids" {
			f.node = rng.IntN(p.forgetful)
		}
		p.faults = append(p.faults, f)
	}
	return p
}

// views makes the processes see different nodes, and others every two seconds: one alone, which leaves there what nobody
// else may have; all but one; or all.
func (p *plan) views(rng *rand.Rand) {
	const slice = 2 * time.Second
	p.n, p.ids, p.calls = 1+rng.IntN(2), 3, 10
	for at := time.Duration(0); at < length; at += slice {
		for process := range p.processes {
			some := rng.IntN(p.nodes)
			view := rng.IntN(5)
			for node := range p.nodes {
				if view < 2 && node != some || view >= 2 && view < 4 && node == some {
					p.faults = append(p.faults, fault{kind: "cut", at: at, last: slice - time.Millisecond, process: process, node: node})
				}
			}
		}
		if p.forgetful > 0 && rng.IntN(2) == 0 {
			p.faults = append(p.faults, fault{kind: "forgets", at: at + upTo(rng, slice), last: upTo(rng, slice/10), node: rng.IntN(p.forgetful)})
		}
	}
}

func (p *plan) String() string {
	s := fmt.Sprintf("seed %d: %d of %d nodes, of which %d may forget; %d of %d ids; %d processes; calm %v\n",
		p.seed, p.quorum, p.nodes, p.forgetful, p.n, p.ids, p.processes, p.calm)
	for _, f := range p.faults {
		s += fmt.Sprintf("  %v: %s, process %d, node %d, for %v\n", f.at, f.kind, f.process, f.node, f.last)
	}
	return s
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// happen makes a fault happen, now, and end.
func (f fault) happen(w *world) {
	server, path, ear := w.servers[f.node], w.processes[f.process].paths[f.node], w.processes[f.process].ears[f.node]
	during := func(begin, end func()) {
		begin()
		time.Sleep(f.last)
		end()
	}
	switch f.kind {
	case "cut":
		during(func() { path.Kill(); ear.Kill() }, func() { path.Restart(true); ear.Restart(true) })
	case "lost":
		during(path.Lose, path.Resume)
	case "stalled":
		during(path.Stall, path.Resume)
	case "mute":
		during(path.Mute, path.Resume)
	case "slow":
		during(func() { path.Delay(300 * time.Millisecond) }, func() { path.Delay(w.trip(f.process, f.node)) })
	case "deaf":
		during(func() { ear.LoseMessages(true) }, func() { ear.LoseMessages(false) })
	case "replies":
		path.LoseReplies(3)
	case "crash":
		during(server.Kill, func() { server.Restart(true) })
	case "forgets":
		during(server.Kill, func() { server.Restart(false) })
	case "evicted":
		server.Redis.Del(name)
	case "evicted ids":
		server.Redis.Del(idsKey)
	case "dies":
		w.processes[f.process].die()
	}
}

// mend ends all faults, but those that never end.
func (w *world) mend() {
	for _, s := range w.servers {
		s.Restart(true)
	}
	for i, p := range w.processes {
		for j, path := range p.paths {
			mend(path)
			mend(p.ears[j])
			path.Delay(w.trip(i, j))
		}
	}
}

func mend(s *embedded.Server) {
	s.Restart(true)
	s.Resume()
	s.LoseMessages(false)
	s.LoseReplies(0)
}
