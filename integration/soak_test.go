package integration

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/node"
)

var (
	soakFor  = flag.Duration("soak", 5*time.Second, "how long TestSoak mixes faults at random")
	soakSeed = flag.Uint64("soak-seed", 1, "the seed of TestSoak's faults; 0: a random one")
)

// round is how long one workload of the soak works: histories are checked when it has ended.
const round = 20 * time.Second

// The faults of one seed are the same every time, their effects are not: the servers are real.
func TestSoak(t *testing.T) {
	needServers(t)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-soak %v -soak-seed %d", *soakFor, seed)
	s := &soak{rng: rand.New(rand.NewPCG(seed, 0)), fleet: startFleet(t, fleetSize-1), group: startGroup(t), faults: make(map[string]int), tokens: make(map[string]uint64)}
	countersApart(t, append(s.fleet.servers(), s.group.data[0]))
	end := time.Now().Add(*soakFor)
	rounds := 0
	for rounds == 0 || time.Now().Before(end) && !t.Failed() {
		rounds++
		t.Run(fmt.Sprint(rounds), func(t *testing.T) { s.round(t, end) })
	}
	t.Logf("%d rounds, %d scripts: %v", rounds, s.fleet.scripts(), s.sum)
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		t.Logf("%4d × %s", s.faults[name], name)
	}
	if s.sum.grants == 0 {
		t.Error("nothing was granted")
	}
}

type soak struct {
	rng    *rand.Rand
	fleet  fleet             // the nodes, but for the last,
	group  *group            // which is one
	faults map[string]int    // how often each has struck
	tokens map[string]uint64 // the highest of each lock, over all rounds
	sum    tally
}

// round runs a workload under faults until the end of the round or of the soak.
//
// The quorum is four of five: up to two nodes may forget within one hold, and at most two are
// struck before all workers have finished a turn. One may be down all the time.
func (s *soak) round(t *testing.T, end time.Time) {
	if e := time.Now().Add(round); e.Before(end) {
		end = e
	}
	nodes := func(t *testing.T) []*node.Node { return append(s.fleet.nodes(t), s.group.node(t)) }
	w := begin(t, tolerant, nodes, append(s.fleet.servers(), s.group.data[:]...))
	w.served(1)
	for first := true; first || time.Now().Before(end) && !t.Failed(); first = false {
		s.strike(t, w)
	}
	w.end()
	for lock, grants := range w.history.byLock() {
		if low := grants[0]; low.token <= s.tokens[lock] {
			t.Errorf("%q: granted to %v, after token %d in the round before", lock, low, s.tokens[lock])
		}
		s.tokens[lock] = grants[len(grants)-1].token
	}
	s.sum.add(w.history.tally())
}

// strike strikes one or two nodes, and sometimes gives the others faults that cost a retry.
func (s *soak) strike(t *testing.T, w *workload) {
	victims := s.rng.Perm(fleetSize)[:1+s.rng.IntN(4)/3]
	var heals []func()
	for _, v := range victims {
		if v == len(s.fleet) {
			t.Log("the group: failover")
			s.faults["failover"]++
			s.group.change(t)
			continue
		}
		f := s.pick(func(f fault) bool { return !f.everywhere })
		t.Logf("node %d: %s", v, f.name)
		heals = append(heals, f.befall(t, s.fleet[v]))
	}
	if s.rng.IntN(3) == 0 {
		f := s.pick(func(f fault) bool { return f.everywhere })
		t.Logf("the others: %s", f.name)
		for i, m := range s.fleet {
			if !slices.Contains(victims, i) {
				heals = append(heals, f.befall(t, m))
			}
		}
	}
	span := time.Duration(s.rng.Int64N(int64(2 * workTTL)))
	if len(victims) == 1 {
		w.served(1) // all the same
	}
	time.Sleep(span)
	for _, heal := range heals {
		heal()
	}
	w.turned()
	w.served(1)
}

func (s *soak) pick(fit func(fault) bool) fault {
	for {
		if f := faults[s.rng.IntN(len(faults))]; fit(f) && (!f.users || since(6, 0)) {
			s.faults[f.name]++
			return f
		}
	}
}
