package slotsim

import (
	"flag"
	"fmt"
	"testing"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its trace")
	seeds   = flag.Int("seeds", 600, "how many seeds to run")
	from    = flag.Int("from", 0, "the first of them")
	_       = flag.Bool("shrink", false, "for package mutation; it has no effect")
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
