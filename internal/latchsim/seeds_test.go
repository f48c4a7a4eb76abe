package latchsim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its history")
	seeds   = flag.Int("seeds", defaultSeeds, "how many seeds to run")
	from    = flag.Int("from", 0, "the first of them")
)

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{}) // go-redis logs every failed dial
	debug.SetGCPercent(-1)    // what a seed leaves is garbage as a whole: rare and large collections are the cheapest
	debug.SetMemoryLimit(256 << 20)
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// What is promised of latches, under hostile schedules.
func TestSeeds(t *testing.T) {
	if *oneSeed >= 0 {
		p := newPlan(uint64(*oneSeed))
		h := play(t, p)
		fmt.Print(p)
		for _, o := range h.operations {
			fmt.Println(o)
		}
		for _, problem := range h.problems {
			t.Error(problem)
		}
		return
	}
	var next, calls, failed atomic.Int64
	next.Store(int64(*from))
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				for failed.Load() == 0 {
					seed := next.Add(1) - 1
					if seed >= int64(*from+*seeds) {
						return
					}
					h := play(t, newPlan(uint64(seed)))
					calls.Add(int64(len(h.operations)))
					if len(h.problems) > 0 && failed.Add(1) == 1 { // one is enough to look at
						t.Errorf("seed %d: %s\ngo test ./internal/latchsim -run Seeds -seed %d -v", seed, h.problems[0], seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d calls, %.0f seeds/s", *seeds, calls.Load(), float64(*seeds)/time.Since(began).Seconds())
}

// A checker that cannot fail proves nothing.
func TestTheCheckerRefusesBrokenHistories(t *testing.T) {
	op := func(does string, id, count int, called, returned int64, err error) *operation {
		return &operation{does: does, id: id, count: count, called: called, returned: returned, err: err}
	}
	unknown := errors.New("no quorum")
	for what, tt := range map[string]struct {
		ops  []*operation
		good bool
	}{
		"one after the other":             {[]*operation{op(counts, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil), op(adds, 1, 0, 7, 8, nil), op(waits, 0, 0, 9, 10, nil)}, true},
		"an id twice counts once":         {[]*operation{op(adds, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil)}, true},
		"a failed Done counts later":      {[]*operation{op(adds, 0, 0, 1, 2, unknown), op(counts, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil)}, true},
		"an open latch counts no more":    {[]*operation{op(adds, 0, 0, 1, 2, nil), op(adds, 1, 0, 3, 4, nil), op(adds, 2, 0, 5, 6, nil), op(counts, 0, 2, 7, 8, nil)}, true},
		"an id counts twice":              {[]*operation{op(adds, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 2, 5, 6, nil)}, false},
		"an id is lost":                   {[]*operation{op(adds, 0, 0, 1, 2, nil), op(counts, 0, 0, 3, 4, nil)}, false},
		"a failed Done counts, and stops": {[]*operation{op(adds, 0, 0, 1, 2, unknown), op(counts, 0, 1, 3, 4, nil), op(counts, 0, 0, 5, 6, nil)}, false},
		"opened by nobody":                {[]*operation{op(adds, 0, 0, 1, 2, nil), op(waits, 0, 0, 3, 4, nil)}, false},
		"open, and closed again":          {[]*operation{op(adds, 0, 0, 1, 2, nil), op(adds, 1, 0, 3, 10, nil), op(waits, 0, 0, 4, 5, nil), op(counts, 0, 1, 6, 7, nil)}, false},
	} {
		if got := linearizable(2, tt.ops); got != tt.good {
			t.Errorf("%s: linearizable %v, want %v", what, got, tt.good)
		}
	}
}
