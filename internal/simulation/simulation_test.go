package simulation

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and print its trace")
	seeds   = flag.Int("seeds", 2000, "how many seeds to run")
)

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{})
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(512 << 20)
	os.Exit(m.Run())
}

func outcome(t *testing.T, p *Plan) (out Outcome) {
	synctest.Test(t, func(t *testing.T) { out = run(p) })
	return out
}

func TestSimulation(t *testing.T) {
	if *oneSeed >= 0 {
		p := newPlan(uint64(*oneSeed))
		out := outcome(t, p)
		fmt.Print(p, out.Trace)
		for _, v := range out.Violations {
			t.Error(v)
		}
		return
	}
	grants, scripts := 0, 0
	for s := range *seeds {
		p := newPlan(uint64(s))
		out := outcome(t, p)
		grants += out.Grants
		scripts += out.Scripts
		if len(out.Violations) > 0 {
			t.Errorf("seed %d: %v", s, out.Violations[0])
		}
	}
	t.Log(grants, scripts)
}
