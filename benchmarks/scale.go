package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// growth is a kind of thing that a user may have many of. With twice as many, each costs at most
// 1.2 times as much.
type growth struct {
	name    string
	largest int // number of them, at full size
	// The smaller numbers are measured several times, so that the total is the same.
	repeats bool
	do      func(g *grown, ctx context.Context) error
}

var growths = []growth{
	{"members", 1000, true, (*grown).members},
	{"held members", 1000, true, (*grown).heldMembers},
	{"tried members", 1000, true, (*grown).triedMembers},
	{"callers", 4000, true, (*grown).callers},
	{"waiters", 2000, true, (*grown).waiters},
	{"inspected", 2000, true, (*grown).inspected},
	{"leases", 80_000, false, (*grown).leases},
	{"renewals", 20_000, false, (*grown).renewals},
	{"pending", 8000, false, (*grown).pending},
	{"owned leases", 8000, true, (*grown).ownedLeases},
	{"refused writers", 2000, true, (*grown).refusedWriters},
	{"free slots", settings.MaxPermits, true, (*grown).freeSlots},
	{"latch ids", 4000, true, (*grown).latchIDs},
	{"hot members", 2000, true, (*grown).hotMembers},
	{"clients", 200, true, (*grown).clients},
}

// fullLeases is plan.leases for growths of their full size.
const fullLeases = 10_000

// scaled doubles each number of things three times, and compares the cost of each thing for the
// client and the servers.
func scaled(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	if f.store != inMemory {
		return nil, nil
	}
	var all []*contest
	for _, g := range growths {
		c := &contest{scene: g.name, columns: []metric{clientCPU, serverCPU, allocs}}
		for part := 8; part >= 1; part /= 2 {
			largest := max(g.largest*p.leases/fullLeases, 8)
			e := f.entry(ctx, ours, job{Kind: scaleJob, By: g.name, Leases: largest / part, Callers: 1})
			if g.repeats {
				e.job.Callers = part
			}
			e.name = strconv.Itoa(e.job.Leases)
			if n := len(c.entries); n > 0 {
				last := c.entries[n-1].name
				c.promises = append(c.promises, atMost(1.2, e.name, clientCPU).times(last), atMost(1.2, e.name, serverCPU).times(last))
			}
			c.entries = append(c.entries, e)
		}
		all = append(all, c)
	}
	return all, nil
}

// grown is a growth of one size, and who measures it.
type grown struct {
	job
	n      int
	round  int
	urls   []string
	locks  *redlock.Client
	other  *redlock.Client
	all    []*redlock.Client // locks, other, and the clients that a growth has dialed
	spent  usage             // on the n things
	before usage
}

// scale measures one growth of one size.
func (j job) scale(ctx context.Context) (answer, error) {
	for _, g := range growths {
		if g.name != j.By {
			continue
		}
		urls := make([]string, len(j.Addrs))
		for i, addr := range j.Addrs {
			urls[i] = "redis://" + addr
		}
		var total usage
		for round := range j.Callers {
			m := &grown{job: j, n: j.Leases, round: round, urls: urls}
			err := m.run(ctx, g)
			if err != nil {
				return answer{}, err
			}
			total = total.plus(m.spent)
		}
		return answer{Figures: total.each(float64(j.Leases * j.Callers))}, nil
	}
	return answer{}, fmt.Errorf("there is no growth %q", j.By)
}

func (m *grown) run(ctx context.Context, g growth) (err error) {
	defer func() {
		for _, c := range m.all {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := m.dial(ctx, 2); err != nil {
		return err
	}
	m.locks, m.other = m.all[0], m.all[1]
	return g.do(m, ctx)
}

// dial connects the given number of further clients.
func (m *grown) dial(ctx context.Context, clients int) error {
	for range clients {
		c, err := redlock.Dial(m.urls)
		if err != nil {
			return err
		}
		m.all = append(m.all, c)
		if err := lockOnce(ctx, c.Mutex("connect")); err != nil {
			return err
		}
	}
	return nil
}

// begin and end enclose the measured part.
func (m *grown) begin() { m.before = m.usage() }
func (m *grown) end()   { m.spent = m.usage().since(m.before) }

// usage has the time of the servers' threads, which the kernel counts in ns and not in ticks.
func (m *grown) usage() usage {
	u := usageNow(nil)
	for _, pid := range m.Servers {
		// The pattern is valid.
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
				ns, _ := strconv.ParseInt(fields[0], 10, 64) // the kernel's
				u.server += time.Duration(ns)
			}
		}
	}
	return u
}

// patient is for callers that all come at once: the measure is their cost, not their speed.
var patient = []quorumlock.Option{quorumlock.WithTTL(time.Minute), quorumlock.WithNodeTimeout(20 * time.Second)}

func (m *grown) name(i int) string { return fmt.Sprintf("%d:%d", m.round, i) }

// whole is a MultiLock of n mutexes of a client.
func (m *grown) whole(c *redlock.Client, opts ...quorumlock.Option) (*multilock.Mutex, error) {
	locks := make([]quorumlock.Locker, m.n)
	for i := range locks {
		locks[i] = c.Mutex(m.name(i))
	}
	return multilock.New(locks, opts...)
}

func lockOnce(ctx context.Context, l quorumlock.Locker) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// members locks and unlocks a MultiLock of n.
func (m *grown) members(ctx context.Context) error {
	all, err := m.whole(m.locks, patient...)
	if err != nil {
		return err
	}
	if err := lockOnce(ctx, all); err != nil { // the nodes know the scripts
		return err
	}
	m.begin()
	defer m.end()
	return lockOnce(ctx, all)
}

// heldMembers locks a MultiLock of n while another client holds it and then releases it.
func (m *grown) heldMembers(ctx context.Context) error {
	all, err := m.whole(m.locks, patient...)
	if err != nil {
		return err
	}
	theirs, err := m.whole(m.other, patient...)
	if err != nil {
		return err
	}
	held, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	m.begin()
	defer m.end()
	done := make(chan error, 1)
	go func() { done <- lockOnce(ctx, all) }()
	if err := pause(ctx, 200*time.Millisecond); err != nil {
		return err
	}
	return errors.Join(held.Unlock(ctx), <-done)
}

// triedMembers tries to lock a MultiLock of n while another client holds one member.
func (m *grown) triedMembers(ctx context.Context) error {
	all, err := m.whole(m.locks)
	if err != nil {
		return err
	}
	held, err := m.other.Mutex(m.name(m.n / 2)).Lock(ctx)
	if err != nil {
		return err
	}
	m.begin()
	_, err = all.TryLock(ctx)
	m.end()
	if err == nil {
		return errors.New("a lock that is held was acquired")
	}
	return held.Unlock(ctx)
}

// callers has n callers of one client lock one name, all at once.
func (m *grown) callers(ctx context.Context) error {
	m.begin()
	defer m.end()
	return m.together(func(int) error { return lockOnce(ctx, m.locks.Mutex(m.name(0))) })
}

// together calls f with the numbers from 0 to n-1, in as many goroutines.
func (m *grown) together(f func(i int) error) error {
	errs := make([]error, m.n)
	var running sync.WaitGroup
	for i := range m.n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// waiters has n readers queued at the nodes behind a writer, who lets them go on.
func (m *grown) waiters(ctx context.Context) error {
	name := m.name(0)
	held, err := m.other.RWMutex(name, patient...).Lock(ctx)
	if err != nil {
		return err
	}
	m.begin()
	defer m.end()
	freed := make(chan error, 1)
	time.AfterFunc(time.Second, func() { freed <- held.Unlock(ctx) })
	err = m.together(func(int) error { return lockOnce(ctx, m.locks.RWMutex(name, patient...).RLocker()) })
	return errors.Join(err, <-freed)
}

// share takes n shares of a name.
func (m *grown) share(ctx context.Context, name string) ([]*quorumlock.Lease, error) {
	leases := make([]*quorumlock.Lease, m.n)
	err := m.together(func(i int) (err error) {
		leases[i], err = m.locks.RWMutex(name, patient...).RLock(ctx)
		return err
	})
	return leases, err
}

// inspected inspects a name that has n readers.
func (m *grown) inspected(ctx context.Context) error {
	name := m.name(0)
	leases, err := m.share(ctx, name)
	if err != nil {
		return err
	}
	m.begin()
	for range 20 { // one is too short to measure
		if _, err := m.other.Inspect(ctx, name); err != nil {
			return err
		}
	}
	m.end()
	return m.together(func(i int) error { return leases[i].Unlock(ctx) })
}

// leases takes n leases of one client and gives them back.
func (m *grown) leases(ctx context.Context) error {
	m.begin()
	defer m.end()
	leases, err := m.take(ctx, quorumlock.WithTTL(time.Hour), quorumlock.WithoutRenewal())
	return errors.Join(err, m.some(func(i int) error { return leases[i].Unlock(ctx) }))
}

// renewals keeps n leases of one client for as long as each takes to be renewed.
func (m *grown) renewals(ctx context.Context) error {
	const ttl = 30 * time.Second
	leases, err := m.take(ctx, quorumlock.WithTTL(ttl))
	if err != nil {
		return err
	}
	m.begin()
	err = pause(ctx, ttl/3)
	m.end()
	if n := lostOf(leases); n > 0 {
		return fmt.Errorf("%d leases were lost", n)
	}
	return errors.Join(err, m.some(func(i int) error { return leases[i].Unlock(ctx) }))
}

// take takes n leases of one client.
func (m *grown) take(ctx context.Context, opts ...quorumlock.Option) ([]*quorumlock.Lease, error) {
	leases := make([]*quorumlock.Lease, m.n)
	err := m.some(func(i int) (err error) {
		leases[i], err = m.locks.Mutex(m.name(i), opts...).Lock(ctx)
		return err
	})
	return leases, err
}

// some calls f with the numbers from 0 to n-1, a few at a time, until it fails.
func (m *grown) some(f func(i int) error) error {
	const together = 16
	errs := make([]error, together)
	var running sync.WaitGroup
	for first := range together {
		running.Go(func() {
			for i := first; i < m.n && errs[first] == nil; i += together {
				errs[first] = f(i)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// pending releases n leases while a node is frozen, thaws it, and waits for its confirmations.
func (m *grown) pending(ctx context.Context) error {
	leases, err := m.take(ctx)
	if err != nil {
		return err
	}
	m.Freeze = m.Servers[len(m.Servers)-1:]
	thawAgain, err := m.freeze()
	m.begin()
	defer m.end()
	err = errors.Join(err, m.some(func(i int) error { return leases[i].Unlock(ctx) }), thawAgain())
	ctx, cancel := context.WithTimeout(ctx, unwinding)
	defer cancel()
	return errors.Join(err, m.locks.Shutdown(ctx))
}

// ownedLeases takes n leases of one owner and releases them.
func (m *grown) ownedLeases(ctx context.Context) error {
	m.begin()
	defer m.end()
	leases, err := m.take(ctx, quorumlock.WithOwner(quorumlock.NewOwner()), quorumlock.WithTTL(time.Hour), quorumlock.WithoutRenewal())
	return errors.Join(err, m.some(func(i int) error { return leases[i].Unlock(ctx) }))
}

// refusedWriters has a writer try n times to lock a name that n readers share. So the cost of each
// of the n is the cost of one attempt beside n shares.
func (m *grown) refusedWriters(ctx context.Context) error {
	name := m.name(0)
	leases, err := m.share(ctx, name)
	if err != nil {
		return err
	}
	writer := m.other.RWMutex(name)
	m.begin()
	for range m.n {
		if _, err := writer.TryLock(ctx); !errors.Is(err, quorumlock.ErrHeld) {
			return fmt.Errorf("a writer beside readers has %w", err)
		}
	}
	m.end()
	return m.together(func(i int) error { return leases[i].Unlock(ctx) })
}

// freeSlots has n callers of four clients take n free slots, all at once.
func (m *grown) freeSlots(ctx context.Context) error {
	if err := m.dial(ctx, 2); err != nil {
		return err
	}
	leases := make([]*quorumlock.Lease, m.n)
	m.begin()
	err := m.together(func(i int) (err error) {
		leases[i], err = m.all[i%len(m.all)].Semaphore(m.name(0), m.n, patient...).Lock(ctx)
		return err
	})
	m.end()
	if err != nil {
		return err
	}
	return m.together(func(i int) error { return leases[i].Unlock(ctx) })
}

// latchIDs adds n ids to a latch, one after another.
func (m *grown) latchIDs(ctx context.Context) error {
	latch := m.locks.Latch(m.name(0), m.n)
	m.begin()
	defer m.end()
	for i := range m.n {
		if err := latch.Done(ctx, strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return latch.Wait(ctx)
}

// hotMembers queues n MultiLocks at the nodes, behind the holder of a mutex. Each MultiLock has
// this mutex and a mutex of its own.
func (m *grown) hotMembers(ctx context.Context) error {
	held, err := m.other.Mutex("hot", patient...).Lock(ctx)
	if err != nil {
		return err
	}
	m.begin()
	defer m.end()
	freed := make(chan error, 1)
	time.AfterFunc(time.Second, func() { freed <- held.Unlock(ctx) })
	err = m.together(func(i int) error {
		both, err := multilock.New([]quorumlock.Locker{m.locks.Mutex("hot"), m.locks.Mutex(m.name(i))}, patient...)
		if err != nil {
			return err
		}
		return lockOnce(ctx, both)
	})
	return errors.Join(err, <-freed)
}

// clients has n clients lock a MultiLock of a reader and a mutex, all at once.
func (m *grown) clients(ctx context.Context) error {
	if err := m.dial(ctx, m.n-len(m.all)); err != nil {
		return err
	}
	m.begin()
	defer m.end()
	return m.together(func(i int) error {
		c := m.all[i]
		both, err := multilock.New([]quorumlock.Locker{c.RWMutex(m.name(0)).RLocker(), c.Mutex(m.name(1))}, patient...)
		if err != nil {
			return err
		}
		return lockOnce(ctx, both)
	})
}
