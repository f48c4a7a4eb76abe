package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

const (
	majority  = 3 // of five: no node may forget
	tolerant  = 4 // of five: two nodes may forget
	fleetSize = 5
)

func TestPromisesHoldUnderFaults(t *testing.T) {
	needServers(t)
	f := startFleet(t, fleetSize)
	for i, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			if fault.users {
				needUsers(t)
			}
			quorum, victims := majority, f[i%fleetSize:][:1]
			if fault.forgets {
				quorum = tolerant
			}
			if fault.everywhere {
				victims = f
			}
			countersApart(t, f.servers())
			w := begin(t, quorum, f.nodes, f.servers())
			w.served(1)
			steady := w.steady(steadyTTL)
			var heals []func()
			for _, m := range victims {
				heals = append(heals, fault.befall(t, m))
			}
			w.served(2)
			w.kept(steady)
			for _, heal := range heals {
				heal()
			}
			w.served(1)
			must(t, steady.Unlock(t.Context()))
			w.end()
		})
	}

	t.Run("three of five gone", func(t *testing.T) { threeOfFiveGone(t, f) })
	t.Run("more nodes forget than may", func(t *testing.T) { moreForgetThanMay(t, f) })
	t.Run("failover of a sentinel group", func(t *testing.T) { failover(t, f[:fleetSize-1]) })
}

// Without a majority no call acquires, and holders learn it by their deadline. Then all goes on.
func threeOfFiveGone(t *testing.T, f fleet) {
	w := begin(t, majority, f.nodes, f.servers())
	w.served(1)
	steady := w.steady(3 * time.Second)
	for _, m := range f[:3] {
		m.pause(t)
	}
	from := time.Now()
	told(t, steady)
	if late := time.Since(steady.ValidUntil()); late > margin {
		t.Errorf("told %v after the deadline", late)
	}
	eventually(t, patience, "calls find no quorum", func() bool {
		_, outages := w.history.since(from)
		return outages >= workers
	})
	if grants, _ := w.history.since(from); len(grants) > 0 {
		t.Errorf("granted by two nodes of five: %v", grants)
	}
	for _, m := range f[:3] {
		m.resume(t)
	}
	w.served(3)
	if err := steady.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
		t.Errorf("Unlock of the lease that was lost: %v, want ErrLost", err)
	}
	w.end()
}

// With a plain majority no node may forget. If all do, again and again, two holders may overlap. A
// resource that checks the tokens is safe even then, as long as the nodes' clocks are right. Every
// other promise is kept.
func moreForgetThanMay(t *testing.T, f fleet) {
	for _, m := range f { // the faults before may have left a clock an hour ahead
		m.step(t, -m.ahead)
	}
	// With the counters: tokens then come from the clock, and still rise.
	flush(t, f)
	w := begin(t, majority, f.nodes, f.servers())
	w.beyond = true
	w.served(1)
	for range 8 {
		flush(t, f)
		w.served(1)
	}
	w.end()
}

func flush(t *testing.T, f fleet) {
	t.Helper()
	for _, m := range f {
		must(t, m.admin.FlushAll(patiently(t)).Err())
	}
}
