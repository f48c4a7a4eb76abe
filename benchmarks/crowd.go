package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// crowdNodes is how many Redis servers a lock has in the parts crowd and stall.
const crowdNodes = 3

// crowd is a number of callers at once, and what they want.
type crowd struct {
	want    want
	callers int
}

type want string

const (
	ownLocks  want = ""        // each a lock of its own
	tryLocks  want = "try"     // the same, with TryLock
	shares    want = "readers" // all of them a share of one name
	oneLock   want = "one"     // all of them one lock
	ofClients want = "clients" // each a lock of its own, with a client of its own, in several processes
	steadily  want = "steady"  // each a lock of its own, again and again
)

// crowdProcesses is the number of processes of ofClients.
const crowdProcesses = 8

// crowdNamed reads an item of -crowd.
func crowdNamed(s string) (crowd, error) {
	switch w := want(s); w {
	case ofClients:
		return crowd{w, 2000}, nil
	case tryLocks, shares, oneLock, steadily:
		return crowd{w, 20_000}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 100_000 {
		return crowd{}, fmt.Errorf("%q is neither from 1 to 100000 nor one of %s, %s, %s, %s, %s", s, tryLocks, shares, oneLock, ofClients, steadily)
	}
	return crowd{ownLocks, n}, nil
}

var crowdColumns = []metric{granted, failed, seconds, pairs, p50, p99, clientCPU, serverCPU}

func crowds(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	if f.store != inMemory {
		return nil, nil
	}
	var all []*contest
	for _, one := range p.crowds {
		all = append(all, one.contest(ctx, p, f))
	}
	return all, nil
}

func (w crowd) contest(ctx context.Context, p plan, f *fleet) *contest {
	n := w.callers
	c := &contest{columns: crowdColumns}
	add := func(j job, names ...string) {
		for _, name := range names {
			c.entries = append(c.entries, f.entryOf(ctx, crowdNodes, name, j))
		}
	}
	j := job{Kind: crowdJob, Callers: n, Time: p.patience}
	mine := ours
	// The others may fail in a crowd. Where redsync does, SETNX is the measure.
	soon := atMost(0.7, ours, everyone).times(redsyncName).orTimes(1.5, setnxName)
	switch w.want {
	case ownLocks:
		c.scene = label(n, "caller", "callers")
		add(j, ours, redsyncName, rueidisName, setnxName, setnxDelName)
		if n == 5000 || n == 20_000 {
			c.promises = append(c.promises, soon)
		}
	case tryLocks:
		c.scene = label(n, "TryLock", "TryLocks")
		j.Try = true
		add(j, ours, redsyncName, rueidisName, setnxName)
	case shares:
		c.scene = label(n, "reader of one name", "readers of one name")
		one := j
		one.Names = 1
		add(one, readersName)
		add(j, setnxName) // of names of their own
		mine = readersName
	case oneLock:
		c.scene = label(n, "caller of one lock", "callers of one lock")
		j.Names = 1
		add(j, ours, redsyncName, rueidisName)
	case ofClients:
		c.scene = fmt.Sprintf("%d clients in %d processes", n, crowdProcesses)
		j.Processes = crowdProcesses
		add(j, ours, redsyncName, rueidisName, setnxName)
		c.promises = append(c.promises, soon)
	case steadily:
		return steady(ctx, n, p, f)
	}
	c.promises = append(c.promises, atMost(0, mine, failed)) // so all were granted
	return c
}

// steady compares a crowd whose callers come again and again with as many callers as bring the
// highest rate.
func steady(ctx context.Context, n int, p plan, f *fleet) *contest {
	c := &contest{scene: "each caller again and again", columns: []metric{pairs, p50, p99, clientCPU, serverCPU, failed}}
	few := label(min(256, n), "caller", "callers")
	many := label(n, "caller", "callers")
	for name, callers := range map[string]int{few: min(256, n), many: n} {
		for _, design := range []string{ours, redsyncName} {
			e := f.entryOf(ctx, crowdNodes, design, p.load(callers))
			e.job.Warm, e.job.Time = p.time, 3*p.time // each of the crowd has a turn or two
			if e.name = name; design != ours {
				e.name = design + ", " + name
			}
			c.entries = append(c.entries, e)
		}
	}
	slices.SortFunc(c.entries, byName)
	c.promises = []promise{atLeast(0.8, many, pairs).times(few), atMost(0, many, failed)}
	return c
}

// entryOf is an entry on the first of the Redis servers.
func (f *fleet) entryOf(ctx context.Context, nodes int, name string, j job) entry {
	e := f.entry(ctx, name, j)
	n := min(nodes, len(e.job.Addrs))
	e.job.Addrs, e.job.Servers, e.job.Redis = e.job.Addrs[:n], e.job.Servers[:n], e.job.Redis[:n]
	return e
}

// crowded is what the callers of a crowd met.
type crowded struct {
	Waits   sample        // until the grant, from the start of all; of those with a grant
	Locks   failures      // of callers without a grant
	Unlocks failures      // of callers with one
	Took    time.Duration // until the last caller was done
	Client  time.Duration // of the processors
}

// failures are counted; the text is that of the first.
type failures struct {
	Count int
	First string
}

func (f *failures) add(n int, text string) {
	if n > 0 && f.Count == 0 {
		f.First = text
	}
	f.Count += n
}

// told is for people: what failed, how often, and why.
func told(locks, unlocks failures) string {
	var s string
	for _, f := range []struct {
		call string
		failures
	}{{"Lock", locks}, {"Unlock", unlocks}} {
		if f.Count > 0 {
			s += fmt.Sprintf("; %d of %s: %.300s", f.Count, f.call, strings.ReplaceAll(f.First, "\n", ": "))
		}
	}
	return s[min(2, len(s)):]
}

func (c *crowded) merge(other crowded) {
	c.Waits = append(c.Waits, other.Waits...)
	c.Locks.add(other.Locks.Count, other.Locks.First)
	c.Unlocks.add(other.Unlocks.Count, other.Unlocks.First)
	c.Took = max(c.Took, other.Took)
	c.Client += other.Client
}

// answer has the figures of a crowd, and of the time of the servers.
func (c *crowded) answer(server time.Duration) answer {
	n := float64(len(c.Waits) + c.Locks.Count)
	bad := c.Locks.Count + c.Unlocks.Count
	f := figures{granted: float64(len(c.Waits)), failed: float64(bad), seconds: c.Took.Seconds(),
		pairs: (n - float64(bad)) / c.Took.Seconds()}
	f[clientCPU], f[serverCPU] = c.Client.Seconds()*1e6/n, server.Seconds()*1e6/n
	if bad == 0 {
		f[everyone] = c.Took.Seconds()
	}
	if len(c.Waits) > 0 {
		f[p50], f[p99] = millis(c.Waits.quantile(0.5)), millis(c.Waits.quantile(0.99))
	}
	return answer{Figures: f, Failure: told(c.Locks, c.Unlocks)}
}

// crowd lets all callers take and release a lock once, at the same time. A client whose calls fail
// may not close in time, so crowd closes none: the process ends.
func (j job) crowd(ctx context.Context, d design) (answer, error) {
	if j.Processes > 0 {
		return j.crowdOfClients(ctx)
	}
	clients, err := d.openAll(j.Addrs, max(j.Clients, 1))
	if err != nil {
		return answer{}, err
	}
	if err := connect(ctx, clients); err != nil {
		return answer{}, err
	}
	if err := j.atTheStart(ctx); err != nil {
		return answer{}, err
	}
	before := usageNow(j.Servers)
	c := j.together(ctx, clients)
	spent := usageNow(j.Servers).since(before)
	c.Client = spent.client
	a := c.answer(spent.server)
	a.Crowded = &c
	return a, ctx.Err()
}

// together has each caller take and release a lock. Who waits for longer than j.Time gives up. Who
// does not return either is counted as failed.
func (j job) together(ctx context.Context, clients []client) crowded {
	ctx, cancel := context.WithTimeout(ctx, j.Time)
	defer cancel()
	var mu sync.Mutex
	var c crowded
	name := "crowd:" + rand.Text()[:8] // what an earlier crowd left in the servers' buffers is of other names
	start := make(chan struct{})
	var began time.Time
	var running sync.WaitGroup
	for i := range j.Callers {
		own := name
		if j.Names != 1 {
			own = fmt.Sprintf("%s:%d", name, i)
		}
		take := j.taking(clients[i%len(clients)])
		running.Go(func() {
			<-start
			unlock, err := take(ctx, own)
			waited := time.Since(began)
			if err == nil {
				// A release is not the crowd's to give up.
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unwinding/2)
				err = unlock(ctx)
				cancel()
				mu.Lock()
				defer mu.Unlock()
				c.Waits = append(c.Waits, waited)
				if err != nil {
					c.Unlocks.add(1, err.Error())
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			c.Locks.add(1, err.Error())
		})
	}
	began = time.Now()
	close(start)
	returned := within(j.Time+unwinding, running.Wait)
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	c.Took = took
	if !returned {
		c.Locks.add(j.Callers-len(c.Waits)-c.Locks.Count, "it did not return")
	}
	return c
}

// within reports whether f returns in time. If not, f goes on.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// taking is how a caller takes a lock in a single call, as a user would.
func (j job) taking(c client) func(context.Context, string) (func(context.Context) error, error) {
	if t, ok := c.(interface {
		try(context.Context, string) (func(context.Context) error, error)
	}); ok && j.Try {
		return t.try
	}
	if o, ok := c.(interface {
		once(context.Context, string) (func(context.Context) error, error)
	}); ok {
		return o.once
	}
	return c.lock
}

// crowdOfClients spreads the callers over processes, in which each has a client of its own.
func (j job) crowdOfClients(ctx context.Context) (answer, error) {
	program, err := os.Executable()
	if err != nil {
		return answer{}, err
	}
	gate, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(ctx, func() { _ = gate.Close() })
	share := j
	share.Processes, share.Servers, share.Start = 0, nil, gate.Addr().String()
	share.Callers = j.Callers / j.Processes
	share.Clients = share.Callers
	answers := make([]answer, j.Processes)
	var running sync.WaitGroup
	for i := range answers {
		running.Go(func() {
			var err error
			if answers[i], err = work(ctx, program, share); err != nil {
				cancel(err) // the others need not wait
			}
		})
	}
	var ready []net.Conn
	for range j.Processes {
		if conn, err := gate.Accept(); err == nil {
			ready = append(ready, conn)
		}
	}
	before := usageNow(j.Servers)
	for _, conn := range ready {
		_ = conn.Close() // the start
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return answer{}, err
	}
	var c crowded
	for _, a := range answers {
		c.merge(*a.Crowded)
	}
	return c.answer(usageNow(j.Servers).since(before).server), nil
}

// atTheStart returns when all processes of a crowd are ready.
func (j job) atTheStart(ctx context.Context) error {
	if j.Start == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", j.Start)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("the other processes were not ready: %w", err)
	}
	return nil
}
