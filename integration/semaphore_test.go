package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

const permits = 3

// slots is the model of a semaphore whose leases may end by themselves: a slot has one holder at a time, each grant of a slot has a
// higher token than all before of that slot, and there are no more slots than permits.
var slots = porcupine.Model{
	Init: func() any { return slotState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(slotState), input.(slotInput)
		if in.slot < 0 || in.slot >= permits {
			return false, s
		}
		at := &s[in.slot]
		if in.does == acquires {
			ok := at.holder == 0 && in.token > at.last
			*at = leaseState{in.token, in.token}
			return ok, s
		}
		ok := at.holder == in.token
		at.holder = 0
		return ok, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

type slotState [permits]leaseState

type slotInput struct {
	does  string
	slot  int
	token uint64
}

// slotGrant is one lease of a semaphore as its holder saw it.
type slotGrant struct {
	grant
	slot int
}

// slotOperations are leases for the model slots. A lease that is lost ends at its deadline or, if its holder was told before, then;
// at that moment at the earliest.
func (h *history) slotOperations(all []*slotGrant) (ops []porcupine.Operation) {
	for _, s := range all {
		ops = append(ops, porcupine.Operation{ClientId: s.worker, Input: slotInput{acquires, s.slot, s.token}, Call: h.at(s.called), Return: h.at(s.granted)})
		back := h.at(s.left)
		if s.err != nil || s.end().Before(s.leaving) {
			back = never
		}
		ops = append(ops, porcupine.Operation{ClientId: s.worker, Input: slotInput{releases, s.slot, s.token}, Call: h.at(s.end()), Return: back})
	}
	return ops
}

// A semaphore on real servers that fail: each slot has one holder, and its tokens rise.
func TestSlotsHaveOneHolderUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, 20, func(t *testing.T) users { return &holdersOfSlots{t: t, history: history{began: time.Now()}} }, quorumlock.WithTTL(workTTL))
}

// holdersOfSlots is what they saw.
type holdersOfSlots struct {
	t       *testing.T
	history history

	mu  sync.Mutex
	all []*slotGrant
}

// turn is one critical section of a worker.
func (r *holdersOfSlots) turn(worker int, c *redlock.Client) {
	s := c.Semaphore("printers", permits, quorumlock.WithWait(2*time.Second))
	g := &slotGrant{grant: grant{worker: worker, lock: s.Name(), called: time.Now()}}
	call := s.Lock
	if rand.N(5) == 0 {
		call = s.TryLock
	}
	lease, err := call(context.Background())
	if err != nil {
		few := new(quorumlock.QuorumError)
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorumlock.ErrHeld) && !errors.As(err, &few) {
			r.t.Errorf("%v, want a lease, context.DeadlineExceeded or a refusal", err)
		}
		return
	}
	g.granted, g.token, g.slot = time.Now(), lease.Token(), lease.Slot()
	select {
	case <-lease.Context().Done():
		g.told = time.Now()
	case <-time.After(rand.N(20 * time.Millisecond)):
	}
	if now := lease.Slot(); now != g.slot {
		r.t.Errorf("%v had slot %d, and has %d", g, g.slot, now)
	}
	g.until, g.leaving = lease.ValidUntil(), time.Now()
	g.err = lease.Unlock(context.Background())
	g.left = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, g)
}

// served waits for so many more leases.
func (r *holdersOfSlots) served(n int) {
	r.t.Helper()
	count := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.all) }
	before := count()
	eventually(r.t, patience, "callers get slots", func() bool { return count() >= before+n })
}

// nothingLeft checks that nothing but token counters stays at the nodes.
func (r *holdersOfSlots) nothingLeft(servers []*server) {
	r.t.Helper()
	for _, s := range servers {
		eventually(r.t, patience, s.addr+" has the token counters alone", func() bool {
			n, err := s.admin.Exists(patiently(r.t), "printers", wire.SlotsKey("printers"), wire.QueueKey("printers"), wire.EntriesKey("printers")).Result()
			return err == nil && n == 0
		})
	}
}

func (r *holdersOfSlots) check(servers []*server) {
	r.t.Helper()
	r.nothingLeft(servers)
	slices.SortFunc(r.all, func(a, b *slotGrant) int { return a.granted.Compare(b.granted) })
	together, used := 0, map[int]int{}
	for i, g := range r.all {
		if err := g.kept(); err != nil {
			r.t.Error(err)
		}
		if i > 0 && g.granted.Before(r.all[i-1].leaving) {
			together++
		}
		used[g.slot]++
	}
	if together == 0 || len(used) < permits {
		r.t.Errorf("%d of %d slots were used, and %d times one beside another", len(used), permits, together)
	}
	if err := linearizable(pictures(), r.t.Name(), slots, r.history.slotOperations(r.all)); err != nil {
		r.t.Error(err)
	}
	r.t.Logf("%d leases, %d of them beside another", len(r.all), together)
}

// A checker that cannot fail proves nothing.
func TestCheckerOfSlotsRefusesBrokenHistories(t *testing.T) {
	type lease struct {
		slot                           int
		token                          uint64
		called, granted, leaving, left int
	}
	for _, tt := range []struct {
		name   string
		leases []lease
		good   bool
	}{
		{"every slot at one time, with tokens of their own", []lease{{0, 5, 0, 10, 50, 60}, {1, 4, 0, 20, 40, 50}, {2, 5, 0, 20, 40, 50}, {1, 6, 30, 60, 70, 80}}, true},
		{"a slot with two holders", []lease{{0, 5, 0, 10, 50, 60}, {0, 6, 0, 20, 40, 45}}, false},
		{"a slot beyond the permits", []lease{{permits, 5, 0, 10, 50, 60}}, false},
		{"a token of a slot twice", []lease{{1, 5, 0, 10, 20, 30}, {1, 5, 40, 50, 60, 70}}, false},
		{"a lower token of a slot", []lease{{1, 5, 0, 10, 20, 30}, {1, 4, 40, 50, 60, 70}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newStory()
			var all []*slotGrant
			for i, l := range tt.leases {
				g := &slotGrant{*p.held(l.token, l.called, l.granted, l.leaving, l.left), l.slot}
				g.worker = i
				all = append(all, g)
			}
			if err := linearizable(t.TempDir(), t.Name(), slots, p.h.slotOperations(all)); (err == nil) != tt.good {
				t.Errorf("%v, want good %v", err, tt.good)
			}
		})
	}
}
