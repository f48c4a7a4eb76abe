package coresim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/proof/shrink"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its trace")
	seeds   = flag.Int("seeds", testkit.Thorough(5000, 1500), "how many seeds to run")
	shrunk  = flag.Bool("shrink", true, "show the smallest form of a seed that fails")
	from    = flag.Int("from", 0, "the first of them")
	all     = flag.Bool("all", false, "go on after a seed that fails, and count what fails")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Everything that a schedule leaves is garbage, so rare and large collections are the cheapest.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(512 << 20)
	os.Exit(m.Run())
}

// Everything that is promised, under hostile schedules.
func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		p := newPlan(uint64(*oneSeed))
		out := run(p, true)
		fmt.Print(newPlan(uint64(*oneSeed)), out.Trace)
		for _, v := range out.Violations {
			t.Error(v)
		}
		return
	}
	var next, grants, ran, recalls, attached, theirs, bad atomic.Int64
	var mu sync.Mutex
	var first [len(firstCost)]cost
	next.Store(int64(*from))
	end := int64(*from + *seeds)
	start := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				for *all || bad.Load() == 0 {
					seed := next.Add(1) - 1
					if seed >= end {
						return
					}
					p := newPlan(uint64(seed))
					out := play(p)
					if seed < firstSeeds && p.isPlain() {
						mu.Lock()
						first[p.Class].add(&out)
						mu.Unlock()
					}
					grants.Add(int64(out.Grants))
					ran.Add(int64(out.Scripts))
					recalls.Add(int64(out.Recalls))
					attached.Add(int64(out.Attached))
					theirs.Add(int64(out.Theirs))
					if len(out.Violations) == 0 {
						continue
					}
					if n := bad.Add(1); n == 1 && !*all {
						report(t, uint64(seed), out)
					} else if *all {
						t.Errorf("seed %d: %v", seed, out.Violations[0])
					}
				}
			})
		}
	})
	if *from == 0 && *seeds >= firstSeeds && bad.Load() == 0 {
		costsNoMore(t, &first)
	}
	if *seeds >= 1000 && bad.Load() == 0 && recalls.Load() == 0 {
		t.Error("no attempt was recalled")
	}
	if *seeds >= 1000 && bad.Load() == 0 && attached.Load() == 0 {
		t.Error("no detached hold went on")
	}
	if *seeds >= 1000 && bad.Load() == 0 && theirs.Load() == 0 {
		t.Error("no Redisson client got a lock")
	}
	n, took := *seeds, time.Since(start)
	t.Logf("%d seeds in %v, %.0f a second; %.1f grants, %.0f scripts and %.2f recalls a seed; %d holds attached; %d grants to Redisson; %d failed", n, took.Round(time.Millisecond), float64(n)/took.Seconds(),
		float64(grants.Load())/float64(n), float64(ran.Load())/float64(n), float64(recalls.Load())/float64(n), attached.Load(), theirs.Load(), bad.Load())
}

func play(p *Plan) Outcome {
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("seed %d: %v\n%s", p.Seed, r, debug.Stack()))
		}
	}()
	return run(p, false)
}

// report shows why a seed fails, in the smallest form that is easily found.
func report(t *testing.T, seed uint64, out Outcome) {
	v := out.Violations[0]
	t.Errorf("seed %d: %v", seed, v)
	if !*shrunk {
		return
	}
	small := shrink.Plan(newPlan(seed), func(p *Plan) bool {
		return slices.ContainsFunc(run(p, false).Violations, func(w Violation) bool { return w.Invariant == v.Invariant })
	})
	t.Logf("what is left of it:\n%v%s", small, run(small, true).Trace)
	t.Logf("go test ./proof/coresim -run TestSeeds -seed %d", seed)
}

// One seed is one schedule.
func TestSameSeedHasTheSameTrace(t *testing.T) {
	for seed := range uint64(300) {
		a, b := run(newPlan(seed), true), run(newPlan(seed), true)
		if a.Trace != b.Trace || a.Trace == "" {
			t.Errorf("seed %d has two traces", seed)
		}
		c := run(newPlan(seed), false)
		if c.Scripts != a.Scripts || c.Grants != a.Grants {
			t.Errorf("seed %d plays another schedule when it is traced", seed)
		}
	}
}
