package simulation

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/proof/shrink"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its trace")
	seeds   = flag.Int("seeds", defaultSeeds, "how many seeds to run")
	shrunk  = flag.Bool("shrink", true, "show the smallest form of a seed that fails")
	from    = flag.Int("from", 0, "the first of them")
)

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{}) // go-redis logs every failed dial
	// All memory of a seed becomes garbage at its end: rare and large collections are the cheapest.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(512 << 20)
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// All promises hold under hostile schedules.
func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		p := newPlan(uint64(*oneSeed))
		out := play(t, p)
		fmt.Print(p, out.Trace)
		for _, v := range out.Violations {
			t.Error(v)
		}
		return
	}
	var (
		next    atomic.Int64
		failed  atomic.Bool // one is enough to look at
		grants  atomic.Int64
		ran     atomic.Int64
		bundles atomic.Int64
	)
	next.Store(int64(*from))
	end := int64(*from + *seeds)
	start := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				for !failed.Load() {
					seed := next.Add(1) - 1
					if seed >= end {
						return
					}
					p := newPlan(uint64(seed))
					out := play(t, p)
					grants.Add(int64(out.Grants))
					ran.Add(int64(out.Scripts))
					bundles.Add(int64(out.Bundles))
					if len(out.Violations) > 0 && !failed.Swap(true) {
						report(t, p, out)
					}
				}
			})
		}
	})
	n, took := *seeds, time.Since(start)
	t.Logf("%d seeds in %v, %.0f a second; %.1f grants, %.0f scripts and %.2f bundles a seed", n, took.Round(time.Millisecond), float64(n)/took.Seconds(),
		float64(grants.Load())/float64(n), float64(ran.Load())/float64(n), float64(bundles.Load())/float64(n))
}

// In the first seeds, processes of both versions have the same locks.
func TestProcessesOfBothVersionsShareLocks(t *testing.T) {
	for seed := range uint64(100) {
		p := newPlan(seed)
		versions := map[bool]bool{}
		for _, w := range p.Workers {
			versions[p.Processes[w.Process].Before] = true
		}
		if len(versions) == 2 {
			if out := play(t, p); out.Grants == 0 || len(out.Violations) > 0 {
				t.Errorf("seed %d: %d grants, %v", seed, out.Grants, out.Violations)
			}
			return
		}
	}
	t.Error("no plan has workers of both versions")
}

// report shows why a seed fails, in the smallest form that is easily found.
func report(t *testing.T, p *Plan, out Outcome) {
	v := out.Violations[0]
	t.Errorf("seed %d: %v", p.Seed, v)
	if !*shrunk {
		return
	}
	last := out
	small := shrink.Plan(p, func(p *Plan) bool {
		out := play(t, p)
		fails := slices.ContainsFunc(out.Violations, func(w Violation) bool { return w.Invariant == v.Invariant })
		if fails {
			last = out
		}
		return fails
	})
	t.Logf("what is left of it:\n%v%s", small, last.Trace)
	t.Logf("go test ./proof/simulation -run TestSeeds -seed %d", p.Seed)
}

// One seed is one schedule, in any order of the goroutines. A process with a go-redis that does not
// end a call at its deadline comes to the deadlines of all nodes at one instant, in no order. Plans
// with such a process are left out.
func TestSameSeedHasTheSameTrace(t *testing.T) {
	parted := 0
	for seed := range uint64(defaultSeeds / 50) {
		p := newPlan(seed)
		if slices.ContainsFunc(p.Processes, func(pp ProcessPlan) bool { return !pp.Prompt }) {
			continue
		}
		a := play(t, p)
		b, traces := a, map[uint64]bool{}
		// A busy machine interrupts goroutines at will: the schedule is one that recurs.
		for again := 0; again < 12 && !traces[b.Hash]; again++ {
			traces[b.Hash] = true
			b = play(t, newPlan(seed))
		}
		if !traces[b.Hash] {
			// An attempt's wait for silent nodes depends on the round trips so far. Round trips
			// that end at one instant are seen in no order.
			t.Logf("seed %d has %d traces; two of them part with\n%s", seed, len(traces), parting(a.Trace, b.Trace))
			parted++
		}
		if a.Grants == 0 && len(a.Trace) == 0 {
			t.Errorf("seed %d has no trace", seed)
		}
	}
	if parted > max(2, defaultSeeds/50/10) {
		t.Errorf("%d of %d seeds have no trace that comes again", parted, defaultSeeds/50)
	}
}

func parting(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return strings.Join(x[max(i-3, 0):i+1], "\n") + "\nand\n" + y[i]
		}
	}
	return "the end of one"
}

// play runs a plan in a bubble of its own.
func play(t *testing.T, p *Plan) (out Outcome) {
	// A goroutine that waits for a mutex stops the time of a bubble for ever.
	hung := time.AfterFunc(time.Minute, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("seed %d hangs", p.Seed))
	})
	defer hung.Stop()
	defer func() {
		if r := recover(); r != nil {
			text := fmt.Sprint(r)
			if !strings.Contains(text, "deadlock") {
				panic(fmt.Sprintf("seed %d: %s", p.Seed, text))
			}
			out.Violations = append(out.Violations, Violation{Invariant: noGoroutineLeft, Text: text})
		}
	}()
	synctest.Test(t, func(*testing.T) { out = run(p) })
	return out
}
