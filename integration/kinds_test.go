package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

// The kinds of locks to test under faults, besides the mutex; kinds is their number.
const (
	readers = iota
	slots
	latchKind
	kinds
)

// users are the workers' uses of the locks of one kind, with their history.
type users interface {
	turn(worker int, c *redlock.Client) // one use
	served(n int)                       // waits for n more uses
	// Checks the promises, and that nothing is left, when all have stopped.
	check(servers []*server)
}

// underFaults runs workers, each with a client of its own, before, during and after each fault of a
// single node. Unless QUORUMLOCK_THOROUGH is 1, only one kind of lock is tested under each fault.
// The workers must be served so many times before and during the fault, and half as many times
// after it.
func underFaults(t *testing.T, kind, times int, begin func(t *testing.T) users, opts ...quorumlock.Option) {
	f := startFleet(t, fleetSize)
	for i, fault := range faults {
		if fault.everywhere || testkit.Thorough(kind, i%kinds) != kind {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			if fault.users {
				needUsers(t)
			}
			quorum := majority
			if fault.forgets {
				quorum = tolerant
			}
			u := begin(t)
			stop, running := make(chan struct{}), sync.WaitGroup{}
			for worker := range workers {
				c, err := redlock.New(f.nodes(t), append(opts, quorumlock.WithQuorum(quorum), quorumlock.WithNodeTimeout(workTimeout))...)
				must(t, err)
				running.Go(func() {
					for {
						select {
						case <-stop:
							must(t, c.Close())
							return
						default:
							u.turn(worker, c)
						}
					}
				})
			}
			u.served(times)
			heal := fault.befall(t, f[i%fleetSize])
			u.served(times)
			heal()
			u.served(times / 2)
			close(stop)
			running.Wait()
			u.check(f.servers())
		})
	}
}

// Readers and writers on real servers that fail: a writer is alone, and tokens prove the order.
func TestReadersShareAndWritersAreAloneUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, readers, 20, func(t *testing.T) users {
		return &holders{t: t, history: history{began: time.Now()}, slots: 1, turnOf: func(h *holders, c *redlock.Client, g *grant) {
			m := c.RWMutex("ledger", quorumlock.WithWait(2*time.Second))
			call := m.Lock
			if g.reads = rand.N(10) < 7; g.reads {
				call = m.RLock
			}
			h.hold(call, g, func(lease *quorumlock.Lease) {
				if !g.reads && rand.N(3) == 0 {
					g.downgraded = time.Now()
					// It is a reader's then, whether or not the nodes have confirmed it.
					_ = m.Downgrade(context.Background(), lease)
				}
			})
		}}
	}, quorumlock.WithTTL(workTTL))
}

// A semaphore on real servers that fail: each slot has one holder, and its tokens rise.
func TestSlotsHaveOneHolderUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, slots, 20, func(t *testing.T) users {
		return &holders{t: t, history: history{began: time.Now()}, slots: permits, turnOf: func(h *holders, c *redlock.Client, g *grant) {
			s := c.Semaphore("printers", permits, quorumlock.WithWait(2*time.Second))
			call := s.Lock
			if rand.N(5) == 0 {
				call = s.TryLock
			}
			h.hold(call, g, func(lease *quorumlock.Lease) {
				if now := lease.Slot(); now != g.slot {
					t.Errorf("%v had slot %d, and has %d", g, g.slot, now)
				}
			})
		}}
	}, quorumlock.WithTTL(workTTL))
}

// holders are users of one lock of a kind that may have several holders.
type holders struct {
	t       *testing.T
	history history
	slots   int // must be used
	turnOf  func(h *holders, c *redlock.Client, g *grant)

	mu  sync.Mutex
	all []*grant
}

func (h *holders) turn(worker int, c *redlock.Client) {
	h.turnOf(h, c, &grant{worker: worker, called: time.Now()})
}

// hold is one critical section. meanwhile is called in its middle, unless the lease is lost by
// then.
func (h *holders) hold(call func(context.Context) (*quorumlock.Lease, error), g *grant, meanwhile func(*quorumlock.Lease)) {
	lease, err := call(context.Background())
	if err != nil {
		few := new(quorumlock.QuorumError)
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorumlock.ErrHeld) && !errors.As(err, &few) {
			h.t.Errorf("%v, want a lease, context.DeadlineExceeded or a refusal", err)
		}
		return
	}
	g.granted, g.lock, g.token, g.slot = time.Now(), lease.Name(), lease.Token(), lease.Slot()
	for half := range 2 {
		select {
		case <-lease.Context().Done():
			g.told = time.Now()
		case <-time.After(rand.N(20 * time.Millisecond)):
		}
		if half == 0 && g.told.IsZero() {
			meanwhile(lease)
		}
	}
	g.until, g.leaving = lease.ValidUntil(), time.Now()
	g.err = lease.Unlock(context.Background())
	g.left = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, g)
}

// served waits for so many more leases, and for some that are not shared.
func (h *holders) served(n int) {
	h.t.Helper()
	count := func() (all, alone int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, g := range h.all {
			if !g.reads {
				alone++
			}
		}
		return len(h.all), alone
	}
	all, alone := count()
	eventually(h.t, patience, "callers are served", func() bool {
		a, b := count()
		return a >= all+n && b >= alone+n/4
	})
}

func (h *holders) check(servers []*server) {
	h.t.Helper()
	noLocks(h.t, servers, patience)
	slices.SortFunc(h.all, func(a, b *grant) int { return a.granted.Compare(b.granted) })
	together, used := 0, map[int]int{}
	for i, g := range h.all {
		if err := g.kept(); err != nil {
			h.t.Error(err)
		}
		if i > 0 && g.granted.Before(h.all[i-1].end()) {
			together++
		}
		used[g.slot]++
	}
	if together == 0 || len(used) < h.slots {
		h.t.Errorf("%d of %d slots were used, and %d leases had another one beside them", len(used), h.slots, together)
	}
	if err := linearizable(pictures(), h.t.Name(), leases, h.history.operations(h.all)); err != nil {
		h.t.Error(err)
	}
	h.t.Logf("%d leases, %d of them beside another", len(h.all), together)
}
