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
	locks  *redlock.Client
	other  *redlock.Client
	spent  usage // on the n things
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
			m := &grown{job: j, n: j.Leases, round: round}
			err := m.run(ctx, g, urls)
			if err != nil {
				return answer{}, err
			}
			total = total.plus(m.spent)
		}
		return answer{Figures: total.each(float64(j.Leases * j.Callers))}, nil
	}
	return answer{}, fmt.Errorf("there is no growth %q", j.By)
}

func (m *grown) run(ctx context.Context, g growth, urls []string) (err error) {
	for _, c := range []**redlock.Client{&m.locks, &m.other} {
		if *c, err = redlock.Dial(urls); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*c).Close()) }()
		lease, err := (*c).Mutex("connect").Lock(ctx)
		if err != nil {
			return err
		}
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	return g.do(m, ctx)
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

// all is a MultiLock of n mutexes of a client.
func (m *grown) all(c *redlock.Client, opts ...quorumlock.Option) (*multilock.Mutex, error) {
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
	all, err := m.all(m.locks, patient...)
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
	all, err := m.all(m.locks, patient...)
	if err != nil {
		return err
	}
	theirs, err := m.all(m.other, patient...)
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
	all, err := m.all(m.locks)
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

// inspected inspects a name that has n readers.
func (m *grown) inspected(ctx context.Context) error {
	name := m.name(0)
	leases := make([]*quorumlock.Lease, m.n)
	err := m.together(func(i int) (err error) {
		leases[i], err = m.locks.RWMutex(name, patient...).RLock(ctx)
		return err
	})
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
