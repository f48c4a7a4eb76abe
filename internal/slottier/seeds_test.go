package slottier

import (
	"flag"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its trace")
	seeds   = flag.Int("seeds", 600, "how many seeds to run")
	from    = flag.Int("from", 0, "the first of them")
	_       = flag.Bool("shrink", false, "for package sabotage; it has no effect")
)

func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		s := run(uint64(*oneSeed), true)
		fmt.Print(s.trace)
		if s.bad != "" {
			t.Error(s.bad)
		}
		return
	}
	grants, handed := 0, 0
	for seed := *from; seed < *from+*seeds; seed++ {
		s := run(uint64(seed), false)
		if s.bad != "" {
			t.Fatalf("seed %d: %s", seed, s.bad)
		}
		grants, handed = grants+s.grants, handed+s.handed
	}
	t.Logf("%d seeds, %d grants, of which %d were handed over", *seeds, grants, handed)
	if handed < grants/20 {
		t.Errorf("only %d of %d grants were handed over", handed, grants)
	}
}

var bug = sabotage.NewBug

var bugs = []sabotage.Bug{
	bug("the permits are counted at each node", "internal/core/slots.go", "cells[j].apart = ok && slot != best", "cells[j].apart = ok && slot != best && best < 0", 3000),
	bug("the slot of a handoff is not noted", "internal/core/wait.go", "c.Handed, c.handedSlot = token, slot", "c.Handed = token", 3000),
	bug("a restore takes a slot that somebody has", "internal/scriptmodel/slotscripts.go", "			if who != \"\" {\n", "			if who == \"nobody\" {\n", 20000),
	bug("a node gives a slot that somebody has", "internal/scriptmodel/slots.go", "slot := (from + i) % k; n.slots.zcount(slot, slot) == 0", "slot := (from + i) % k; n.slots.zcount(slot, slot) >= 0", 3000),
	bug("a slot's token does not rise", "internal/scriptmodel/slotscripts.go", "token = max(last+1, hint)", "token = max(last, hint)", 20000),
	bug("a handoff does not count", "internal/scriptmodel/slots.go", "slot, token+1, now, ttl)", "slot, token, now, ttl)", 20000),
	bug("a dead holder keeps its slot", "internal/scriptmodel/slots.go", "if m.Score < now {", "if m.Score < 0 {", 20000),
	bug("a slot beyond the permits", "internal/core/slots.go", "m.random() % uint64(m.cfg.Slots[i].Permits)", "m.random() % uint64(2*m.cfg.Slots[i].Permits)", 3000),
}

// Every planted bug is caught, so the simulation would notice a bug like it.
func TestPlantedBugsAreCaught(t *testing.T) {
	p := &sabotage.Planted{Package: "internal/slottier", Bugs: bugs, Soon: 3000}
	p.AreCaught(t, *seeds)
}
