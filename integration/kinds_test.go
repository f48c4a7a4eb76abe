package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/multilock"
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

	// check checks the promises when all have stopped. It deletes from servers what the nodes keep.
	check(servers []*server)
}

// crew is the workers of users.
type crew struct {
	users
	stop func() // returns when every worker has stopped
}

// employ lets a worker at each client take turns, with pauses of up to pause between them.
func employ(t *testing.T, u users, clients []*redlock.Client, pause time.Duration) crew {
	over, running := make(chan struct{}), sync.WaitGroup{}
	for worker, c := range clients {
		running.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(rand.N(pause + 1)):
					u.turn(worker, c)
				}
			}
		})
	}
	stop := once(func() {
		close(over)
		running.Wait()
	})
	t.Cleanup(stop)
	return crew{u, stop}
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
			clients := make([]*redlock.Client, workers)
			for i := range clients {
				c, err := redlock.New(f.nodes(t), append(opts, quorumlock.WithQuorum(quorum), quorumlock.WithNodeTimeout(workTimeout))...)
				must(t, err)
				t.Cleanup(func() { must(t, c.Close()) })
				clients[i] = c
			}
			u := employ(t, begin(t), clients, 0)
			u.served(times)
			heal := fault.befall(t, f[i%fleetSize])
			u.served(times)
			heal()
			u.served(times / 2)
			u.stop()
			for _, c := range clients {
				must(t, c.Close())
			}
			u.check(f.servers())
			noLocks(t, f.servers(), patience)
			t.Log(u.users)
		})
	}
}

// Readers and writers on real servers that fail: a writer is alone, and tokens prove the order.
func TestReadersShareAndWritersAreAloneUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, readers, 20, func(t *testing.T) users { return ledger(t, "ledger", 1) }, quorumlock.WithTTL(workTTL))
}

// A semaphore on real servers that fail: each slot has one holder, and its tokens rise.
func TestSlotsHaveOneHolderUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, slots, 20, func(t *testing.T) users { return printers(t, "printers", permits) }, quorumlock.WithTTL(workTTL))
}

// ledger is users of a read-write lock.
func ledger(t *testing.T, name string, slots int) *holders {
	return newHolders(t, slots, func(h *holders, c *redlock.Client, worker int) {
		m, g := c.RWMutex(name, briefly), &grant{worker: worker, how: "RWMutex, writer"}
		if rand.N(10) < 7 {
			g.reads, g.how = true, "RWMutex, reader"
			h.hold(use{call: m.RLock}, g)
			return
		}
		h.hold(use{call: m.Lock, meanwhile: func(lease *quorumlock.Lease) {
			if rand.N(3) == 0 {
				g.downgraded = time.Now()
				// It is a reader's then, whether or not the nodes have confirmed it.
				_ = m.Downgrade(context.Background(), lease)
			}
		}}, g)
	})
}

// printers is users of a semaphore. Some take two slots, unless all slots must be used.
func printers(t *testing.T, name string, slots int) *holders {
	return newHolders(t, slots, func(h *holders, c *redlock.Client, worker int) {
		s, gs := c.Semaphore(name, permits, briefly), []*grant{{worker: worker, how: "Semaphore"}}
		call := s.LockN
		if rand.N(5) == 0 {
			call = s.TryLockN
		}
		if slots == 0 && rand.N(4) == 0 {
			gs[0].how = "LockN, by slot"
			gs = append(gs, &grant{worker: worker, how: gs[0].how})
		}
		h.hold(use{call: func(ctx context.Context) (*quorumlock.Lease, error) { return call(ctx, len(gs)) }}, gs...)
	})
}

// accounts is users of two read-write locks, alone or both at once. Some extend what they have.
func accounts(t *testing.T, name string) *holders {
	return newHolders(t, 0, func(h *holders, c *redlock.Client, worker int) {
		gs := []*grant{{worker: worker, lock: name + " a"}, {worker: worker, lock: name + " b"}}
		rand.Shuffle(len(gs), func(i, j int) { gs[i], gs[j] = gs[j], gs[i] })
		gs[0].reads = rand.N(4) == 0
		u := use{}
		if rand.N(2) == 0 {
			gs[0].how, gs[1].how = "MultiLock, by member", "MultiLock, by member"
			var members []quorumlock.Locker
			for _, g := range gs {
				m := c.RWMutex(g.lock)
				if g.reads {
					members = append(members, m.RLocker())
				} else {
					members = append(members, m)
				}
			}
			both, err := multilock.New(members, briefly)
			if err != nil {
				t.Error(err)
				return
			}
			u.call = both.Lock
		} else {
			gs = gs[:1]
			gs[0].reads, gs[0].how = false, "Mutex, ExtendTo"
			u.call, u.meanwhile = c.Mutex(gs[0].lock, briefly).Lock, func(lease *quorumlock.Lease) { extendTo(t, lease, 2*workTTL) }
		}
		h.hold(u, gs...)
	})
}

// extendTo extends a lease, which then lasts for as long, or says why not.
func extendTo(t *testing.T, lease *quorumlock.Lease, ttl time.Duration) {
	least := time.Now().Add(quorumlock.DefaultDrift().Validity(ttl, 0))
	err := lease.ExtendTo(context.Background(), ttl)
	switch until := lease.ValidUntil(); {
	case err == nil && until.Before(least) && lease.Context().Err() == nil:
		t.Errorf("%v after ExtendTo(%v): it ends %v too early", lease, ttl, least.Sub(until))
	case err != nil && !errors.Is(err, quorumlock.ErrLost) && !errors.Is(err, quorumlock.ErrNoQuorum):
		t.Errorf("ExtendTo: %v, want nil, ErrLost or a *QuorumError", err)
	}
}

// candidates is users of an election.
func candidates(t *testing.T, name string) *holders {
	return newHolders(t, 0, func(h *holders, c *redlock.Client, worker int) {
		e := election.New(c.Mutex(name, briefly), "new")
		var term *election.Term
		h.hold(use{
			call: func(ctx context.Context) (lease *quorumlock.Lease, err error) {
				if term, err = e.Campaign(ctx); err == nil {
					lease, _ = quorumlock.LeaseOf(term.Context())
				}
				return lease, err
			},
			meanwhile: func(*quorumlock.Lease) {
				if term.Proclaim(context.Background(), "proclaimed") != nil {
					return // too few nodes, or it is lost
				}
				l, err := e.Leader(context.Background())
				if sure := err == nil && l.Sure; sure && term.Err() == nil && (l.Token != term.Token() || l.Value != "proclaimed") {
					t.Errorf("%v leads, and all are sure of %v", term, l)
				}
			},
			leave: func(ctx context.Context) error { return term.Resign(ctx) },
		}, &grant{worker: worker, lock: name, how: "Election"})
	})
}

// jobs is users of Once, with a period that is not longer than their TTL. A run that has returned no
// error has the lock until nine tenths of the period have passed.
func jobs(t *testing.T, name string) *holders {
	every := workTTL / 2
	return newHolders(t, 0, func(h *holders, c *redlock.Client, worker int) {
		g := &grant{worker: worker, lock: name, how: "Once", called: time.Now()}
		ran, err := quorumlock.Once(context.Background(), c.Mutex(name), every, func(ctx context.Context) error {
			lease, _ := quorumlock.LeaseOf(ctx)
			g.granted, g.token = time.Now(), lease.Token()
			select {
			case <-ctx.Done():
				g.told = time.Now()
			case <-time.After(rand.N(20 * time.Millisecond)):
			}
			g.until, g.leaving = lease.ValidUntil(), time.Now()
			return nil
		})
		g.left, g.err = time.Now(), err
		if !ran {
			h.refused(err)
			time.Sleep(rand.N(every / 4))
			return
		}
		kept := g.called.Add(quorumlock.DefaultDrift().Validity(every/10*9, 0))
		if err == nil && kept.After(g.left) { // TryLock may have waited for room at the nodes
			g.until, g.leaving, g.left = kept, kept, kept
		}
		h.history.granted(g)
	})
}

// briefly bounds the wait of holders.
var briefly = quorumlock.WithWait(2 * time.Second)

// holders are users of locks of a kind that may have several holders.
type holders struct {
	t        *testing.T
	history  history
	slots    int // that must be used, and used at one time; 0: any number
	together int // leases that had another one beside them
	turnOf   func(h *holders, c *redlock.Client, worker int)
}

func newHolders(t *testing.T, slots int, turnOf func(*holders, *redlock.Client, int)) *holders {
	return &holders{t: t, history: history{began: time.Now()}, slots: slots, turnOf: turnOf}
}

func (h *holders) turn(worker int, c *redlock.Client) { h.turnOf(h, c, worker) }

// use is how a lock is used.
type use struct {
	call      func(context.Context) (*quorumlock.Lease, error)
	meanwhile func(*quorumlock.Lease)     // in the middle, unless the lease is lost by then; may be nil
	leave     func(context.Context) error // nil: Unlock
}

// hold is one critical section. It completes the grants: one for each slot or each member.
func (h *holders) hold(u use, gs ...*grant) {
	called := time.Now()
	lease, err := u.call(context.Background())
	if err != nil {
		h.refused(err)
		return
	}
	granted, told, had := time.Now(), time.Time{}, lease.Slots()
	for half := range 2 {
		select {
		case <-lease.Context().Done():
			told = time.Now()
		case <-time.After(rand.N(20 * time.Millisecond)):
		}
		if half == 0 && told.IsZero() && u.meanwhile != nil {
			u.meanwhile(lease)
		}
	}
	if now := lease.Slot(); now != had[0].Number {
		h.t.Errorf("%v had slot %d, and has %d", lease, had[0].Number, now)
	}
	until, leaving, leave := lease.ValidUntil(), time.Now(), lease.Unlock
	if u.leave != nil {
		leave = u.leave
	}
	err = leave(context.Background())
	left := time.Now()
	for i, g := range gs {
		s := had[min(i, len(had)-1)]
		g.slot, g.token = s.Number, s.Token
		if g.lock == "" {
			g.lock = lease.Name()
		}
		g.called, g.granted, g.told, g.until, g.leaving, g.left, g.err = called, granted, told, until, leaving, left, err
		h.history.granted(g)
	}
}

// refused checks the error of a call that got no lease, if there is one.
func (h *holders) refused(err error) {
	for _, fair := range []error{nil, context.DeadlineExceeded, quorumlock.ErrHeld, quorumlock.ErrNoQuorum, quorumlock.ErrTooLate, quorumlock.ErrUnsent} {
		if errors.Is(err, fair) {
			return
		}
	}
	h.t.Errorf("%v, want a lease, context.DeadlineExceeded or a refusal", err)
}

// served waits for so many more leases, and for some that are not shared.
func (h *holders) served(n int) {
	h.t.Helper()
	count := func() (all, alone int) {
		h.history.mu.Lock()
		defer h.history.mu.Unlock()
		for _, g := range h.history.grants {
			if !g.reads {
				alone++
			}
		}
		return len(h.history.grants), alone
	}
	all, alone := count()
	eventually(h.t, patience, "callers are served", func() bool {
		a, b := count()
		return a >= all+n && b >= alone+n/4
	})
}

func (h *holders) check([]*server) {
	h.t.Helper()
	used := map[int]int{}
	for lock, grants := range h.history.byLock() {
		for i, g := range grants {
			if err := g.kept(); err != nil {
				h.t.Error(err)
			}
			if i > 0 && g.granted.Before(grants[i-1].end()) {
				h.together++
			}
			used[g.slot]++
		}
		if err := linearizable(pictures(), h.t.Name()+" "+lock, leases, h.history.operations(grants)); err != nil {
			h.t.Errorf("%q: %v", lock, err)
		}
	}
	if h.slots > 0 && (h.together == 0 || len(used) < h.slots) {
		h.t.Errorf("%d of %d slots were used, and %d leases had another one beside them", len(used), h.slots, h.together)
	}
}

// .ci/servers adds the leases up.
func (h *holders) String() string {
	return fmt.Sprintf("%d leases, %d of them beside another", len(h.history.grants), h.together)
}
