package integration

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

const latchIDs = 6

// ids is the model of a latch: a set of ids in one place.
var ids = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		set, in := state.(uint64), input.(latchInput)
		if in.does == adds {
			return true, set | 1<<in.n
		}
		return min(bits.OnesCount64(set), latchIDs) == in.n, set // a Wait has seen them all
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%b", state) },
}

const (
	adds   = "add"
	counts = "count"
)

type latchInput struct {
	does string
	n    int // the id, or how many a Count or a Wait has seen
}

// latchHistory has the workers' calls on one latch.
type latchHistory struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

// Latches on real servers that fail: an id counts once, and an open latch stays open for all.
func TestLatchesAreLinearizableUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, latchKind, 4, func(t *testing.T) users { return &latches{t: t, name: "import", began: time.Now()} })
}

// latches has the workers' calls on one latch after the other.
type latches struct {
	t      *testing.T
	name   string
	opts   []quorumlock.Option
	began  time.Time
	calls  int // counted by check
	all    [1 << 12]latchHistory
	opened atomic.Int64 // how many latches are open; the next one is in use
}

func (l *latches) turn(worker int, c *redlock.Client) {
	n := l.opened.Load()
	if useLatch(l.t, c.Latch(l.latch(n), latchIDs, l.opts...), worker, l.began, &l.all[n]) {
		l.opened.CompareAndSwap(n, n+1)
	}
}

func (l *latches) served(n int) {
	l.t.Helper()
	before := l.opened.Load()
	eventually(l.t, patience, "latches open", func() bool { return l.opened.Load() >= before+int64(n) })
}

func (l *latches) check(servers []*server) {
	l.t.Helper()
	var keys []string
	for n := range l.opened.Load() + 1 {
		keys = append(keys, l.latch(n), wire.LatchKey(l.latch(n)))
		l.calls += len(l.all[n].ops)
		if err := linearizable(pictures(), fmt.Sprint(l.t.Name(), " ", n), ids, l.all[n].ops); err != nil {
			l.t.Errorf("latch %d: %v", n, err)
		}
	}
	for _, s := range servers {
		must(l.t, s.admin.Del(patiently(l.t), keys...).Err())
	}
}

func (l *latches) String() string {
	return fmt.Sprintf("%d latches, %d calls", l.opened.Load(), l.calls)
}

func (l *latches) latch(n int64) string { return fmt.Sprint(l.name, ":", n) }

// useLatch makes one call, and reports whether the latch is open. A Done that failed may add its id
// at any later time; other failed calls do not count.
func useLatch(t *testing.T, l *redlock.Latch, worker int, began time.Time, h *latchHistory) (open bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*workTimeout)
	defer cancel()
	op := porcupine.Operation{ClientId: worker, Call: time.Since(began).Nanoseconds()}
	var err error
	switch p := rand.N(10); {
	case p < 4:
		id := rand.N(latchIDs)
		op.Input, err = latchInput{adds, id}, l.Done(ctx, fmt.Sprint("shard-", id))
	case p < 5:
		op.Input, err = latchInput{counts, latchIDs}, l.Wait(ctx)
		open = err == nil
	default:
		var n int
		n, err = l.Count(ctx)
		op.Input, open = latchInput{counts, n}, err == nil && n == latchIDs
	}
	op.Return = time.Since(began).Nanoseconds()
	few := new(quorumlock.QuorumError)
	switch {
	case err == nil:
	case !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &few):
		t.Errorf("%+v: %v, want context.DeadlineExceeded or a QuorumError", op.Input, err)
		return false
	case op.Input.(latchInput).does == adds:
		op.Return = never
	default:
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return open
}

// A checker that cannot fail proves nothing.
func TestCheckerOfLatchesRefusesBrokenHistories(t *testing.T) {
	op := func(does string, n int, call, back int64) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: latchInput{does, n}, Call: call, Return: back}
	}
	for _, tt := range []struct {
		name string
		ops  []porcupine.Operation
		good bool
	}{
		{"an id counts once", []porcupine.Operation{op(adds, 1, 0, 1), op(adds, 1, 2, 3), op(counts, 1, 4, 5)}, true},
		{"what failed may count later", []porcupine.Operation{op(adds, 1, 0, never), op(counts, 0, 1, 2), op(counts, 1, 3, 4)}, true},
		{"an id counts twice", []porcupine.Operation{op(adds, 1, 0, 1), op(adds, 1, 2, 3), op(counts, 2, 4, 5)}, false},
		{"an id is lost", []porcupine.Operation{op(adds, 1, 0, 1), op(counts, 0, 2, 3)}, false},
		{"what was seen is forgotten", []porcupine.Operation{op(adds, 1, 0, never), op(counts, 1, 1, 2), op(counts, 0, 3, 4)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := linearizable(t.TempDir(), t.Name(), ids, tt.ops); (err == nil) != tt.good {
				t.Errorf("%v, want good %v", err, tt.good)
			}
		})
	}
}
