package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// part is one of the things that are measured, with every store.
type part struct {
	name     string
	contests func(context.Context, plan, *fleet) ([]*contest, error)
	title    string
}

// plan is the size of the measurements.
type plan struct {
	callers, contenders []int
	time                time.Duration // of one turn of a load
	leases              int
	leaseTime           time.Duration // of a turn beside leases: longer than a renewal interval
	crowds              []crowd
	patience            time.Duration // of a caller in a crowd
	stalls              []time.Duration
	stalled             int           // callers in a stall
	second              time.Duration // the time of one rate in a stall
	used                int           // names, before nobody calls
	idle                time.Duration // how long nobody calls then
}

var allParts = []part{
	{"throughput", throughput, "Lock and unlock, each caller with a name of its own"},
	{"contention", contention, "Contention: all want one lock, each with a client of its own, and hold it for 1 ms"},
	{"degraded", degraded, "Lock and unlock while nodes are frozen or 100 ms away"},
	{"names", sharedNames, "64 clients, each time one of 1,000 names"},
	{"fresh", freshNames, "Lock and unlock, each time a name that was never used before"},
	{"idle", idleNames, "What names leave at the nodes: each is locked and unlocked once, and then nobody calls"},
	{"distance", distances, "One caller and nodes that are far away"},
	{"open", openLoad, "Lock and unlock at random times, and many callers, with nodes that are far away"},
	{"leases", leasesBeside, "One caller beside leases that its client renews"},
	{"readers", readers, "Readers of one name"},
	{"mixed", mixed, "Java (Redisson) and Go, which want one lock, each with a client of its own"},
	{"scale", scaled, "What each of n costs, as n doubles"},
	{"crowd", crowds, "Callers at once: each takes and releases a lock once, on three nodes"},
	{"stall", stalls, "All of three nodes stand still, and go on"},
	{"tests", unitTests, "The unit tests of the library"},
}

// warmUp is how long a load runs before it is measured.
func (p plan) warmUp() time.Duration { return min(max(p.time/3, 50*time.Millisecond), time.Second) }

func (p plan) load(callers int) job {
	return job{Kind: loadJob, Callers: callers, Warm: p.warmUp(), Time: p.time}
}

var loadColumns = []metric{pairs, p50, p99, allocs, kilobytes, clientCPU, serverCPU, reads, writes, failed}

func throughput(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, n := range p.callers {
		c := &contest{scene: label(n, "caller", "callers"), columns: loadColumns}
		for _, d := range designs {
			if d.name == pgName && f.store == durable {
				continue // it writes nothing: the figures in memory are all there are
			}
			c.entries = append(c.entries, f.entry(ctx, d.name, p.load(n)))
		}
		c.promises = throughputPromises(f.store, n)
		all = append(all, c)
	}
	return all, nil
}

func throughputPromises(s store, callers int) []promise {
	rate := func(least float64, other string) promise { return atLeast(least, ours, pairs).times(other) }
	noLater := atMost(1, ours, p99).times(redsyncName)
	if s == durable {
		switch callers {
		case 1:
			return []promise{rate(1.7, etcdName), noLater}
		case 16:
			return []promise{rate(3, etcdName), noLater}
		case 256:
			return []promise{rate(2.8, etcdName), rate(3.8, redsyncName), noLater}
		}
		return nil
	}
	switch callers {
	case 1:
		return []promise{rate(1.2, redsyncName), noLater, atMost(70, ours, allocs)}
	case 16:
		return []promise{rate(2.8, redsyncName), noLater, atMost(45, ours, allocs)}
	case 256:
		return []promise{rate(4, redsyncName), rate(1.2, rueidisName), noLater, atMost(40, ours, allocs),
			atMost(0.5, ours, reads), atMost(0.5, ours, writes)}
	}
	return nil
}

func contention(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, n := range p.contenders {
		names := []string{ours, redsyncName, etcdName}
		if f.store == inMemory {
			names = append(names, pgName)
		}
		if n <= 64 { // with more, these two take seconds from one turn of a contender to the next
			names = append(names, rueidisName, zkName)
		}
		// The more contenders, the longer until each has had its turn, also before the measurement.
		crowd := time.Duration(max(1, n/64))
		j := job{Kind: contentionJob, Callers: n, Hold: time.Millisecond, Warm: p.time * crowd, Time: 3 * p.time * max(1, crowd/2)}
		c := &contest{scene: label(n, "contender", "contenders"),
			columns: []metric{held, grants, handoffs, scriptsAHandoff, p50, p99, fairness}}
		for _, name := range names {
			c.entries = append(c.entries, f.entry(ctx, name, j))
		}
		switch {
		case f.store == durable && n == 64:
			c.promises = []promise{atLeast(3, ours, grants).times(etcdName), atMost(1.0/3, ours, p99).times(etcdName)}
		case f.store == inMemory && (n == 64 || n == 256):
			c.promises = []promise{atLeast(75, ours, held), atMost(0.1, ours, p99).times(redsyncName),
				// 10 scripts, and 2 % for failures.
				atMost(10.2, ours, scriptsAHandoff), atLeast(0.99, ours, fairness)}
		}
		all = append(all, c)
	}
	return all, nil
}

// degraded compares the load with healthy nodes to the same with bad ones. Nodes freeze while the
// callers are at work, and the moment of the freeze is measured too. Far nodes are behind proxies,
// and so are the nodes that they are compared with.
func degraded(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	last := f.redis.pids()
	proxied := make([][]string, 3)
	for bad := range proxied {
		delays := make([]time.Duration, 2) // only the last two are ever far
		for i := range bad {
			delays[i] = 100 * time.Millisecond
		}
		far, err := f.far(delays)
		if err != nil {
			return nil, err
		}
		proxied[bad] = append(slices.Clone(f.redis.addrs[:nodes-2]), far...)
	}
	for _, n := range p.callers {
		c := &contest{scene: label(n, "caller", "callers"), columns: []metric{pairs, p50, p99, allocs, clientCPU, failed}}
		add := func(name string, change func(*job)) {
			e := f.entry(ctx, ours, p.load(n))
			e.name = name
			change(&e.job)
			c.entries = append(c.entries, e)
		}
		for bad := range 3 {
			frozen, far := fmt.Sprintf("%d frozen", bad), fmt.Sprintf("%d 100 ms away", bad)
			add(frozen, func(j *job) { j.Freeze = last[nodes-bad:] })
			add(far, func(j *job) { j.Addrs = proxied[bad] })
			if bad > 0 {
				for name, healthy := range map[string]string{frozen: "0 frozen", far: "0 100 ms away"} {
					c.promises = append(c.promises, atLeast(0.8, name, pairs).times(healthy), atMost(2, name, p99).times(healthy))
				}
			}
		}
		slices.SortFunc(c.entries, byName)
		slices.SortFunc(c.promises, byEntry)
		all = append(all, c)
	}
	return all, nil
}

func sharedNames(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	const clients, names = 64, 1000
	least := map[store]float64{inMemory: 1.2, durable: 1}[f.store]
	c := &contest{scene: "64 clients", columns: []metric{pairs, p50, p99, allocs, clientCPU, serverCPU, failed},
		promises: []promise{atLeast(least, ours, pairs).times(redsyncName)}}
	for _, name := range []string{ours, redsyncName, rueidisName, etcdName} {
		j := p.load(clients)
		j.Clients, j.Names = clients, names
		c.entries = append(c.entries, f.entry(ctx, name, j))
	}
	return []*contest{c}, nil
}

// freshNames is a service that locks invoices, orders or messages by their ids.
func freshNames(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, n := range p.callers {
		c := &contest{scene: label(n, "caller", "callers"), columns: loadColumns}
		for _, name := range []string{ours, redsyncName} {
			j := p.load(n)
			j.Fresh = true
			c.entries = append(c.entries, f.entry(ctx, name, j))
		}
		all = append(all, c)
	}
	return all, nil
}

// distances has nodes that are all as far away as each other, and nodes in three places.
func distances(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	ms := func(each ...time.Duration) []time.Duration {
		for i := range each {
			each[i] *= time.Millisecond
		}
		return each
	}
	var all []*contest
	for _, place := range []struct {
		name   string
		delays []time.Duration
		bound  float64
	}{
		{"all at 1 ms", ms(1, 1, 1, 1, 1), 0},
		{"all at 10 ms", ms(10, 10, 10, 10, 10), 1.02},
		{"all at 50 ms", ms(50, 50, 50, 50, 50), 1.02},
		{"at 1, 1, 10, 50, 50 ms", ms(1, 1, 10, 50, 50), 0},
	} {
		addrs, err := f.far(place.delays)
		if err != nil {
			return nil, err
		}
		c := &contest{scene: place.name, columns: []metric{p50, p99, roundTrip, roundTripsALock}}
		for _, name := range []string{ours, redsyncName} {
			e := f.entry(ctx, name, job{Kind: distanceJob, Warm: p.warmUp(), Time: p.time})
			e.job.Addrs = addrs
			c.entries = append(c.entries, e)
		}
		if place.bound > 0 {
			c.promises = []promise{atMost(place.bound, ours, roundTripsALock)}
		}
		all = append(all, c)
	}
	return all, nil
}

// openLoad has pairs that begin at random times, and callers in a closed loop, with nodes that are
// all at the same distance.
func openLoad(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		addrs, err := f.far(slices.Repeat([]time.Duration{delay}, nodes))
		if err != nil {
			return nil, err
		}
		add := func(scene string, j job, promises ...promise) {
			c := &contest{scene: fmt.Sprintf("all at %v, %s", delay, scene), columns: []metric{pairs, p50, p99, clientCPU, reads, writes, failed}, promises: promises}
			for _, name := range []string{ours, redsyncName} {
				e := f.entry(ctx, name, j)
				e.job.Addrs = addrs
				c.entries = append(c.entries, e)
			}
			all = append(all, c)
		}
		for _, rate := range []float64{20, 100, 300} {
			j := p.load(64)
			j.Rate = rate
			add(fmt.Sprintf("%v pairs a second", rate), j, atMost(1.05, ours, p50).times(redsyncName), atMost(1, ours, p99).times(redsyncName))
		}
		for _, n := range p.callers {
			var promises []promise
			if least := map[int]float64{16: 1, 256: 2}[n]; least > 0 && delay >= 10*time.Millisecond {
				promises = append(promises, atLeast(least, ours, pairs).times(redsyncName))
			}
			add(label(n, "caller", "callers"), p.load(n), promises...)
		}
	}
	return all, nil
}

func leasesBeside(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	c := &contest{scene: "1 caller", columns: []metric{pairs, p50, p99, goroutines, lost, failed}}
	beside := fmt.Sprintf("beside %d leases", p.leases)
	for name, leases := range map[string]int{"alone": 0, beside: p.leases} {
		j := p.load(1)
		j.Time, j.Leases = p.leaseTime, leases
		e := f.entry(ctx, ours, j)
		e.name = name
		c.entries = append(c.entries, e)
	}
	slices.SortFunc(c.entries, byName)
	c.promises = []promise{atMost(1.5, beside, p99).times("alone"), atMost(0, beside, lost)}
	return []*contest{c}, nil
}

// unitTests depend on no store.
func unitTests(_ context.Context, _ plan, f *fleet) ([]*contest, error) {
	if f.store != inMemory {
		return nil, nil
	}
	const name = "go test ./..."
	// Each turn takes a minute.
	return []*contest{{scene: "all packages", columns: []metric{seconds}, turns: 3,
		entries: []entry{{name: name, job: job{Kind: testsJob}}}, promises: []promise{atMost(60, name, seconds)}}}, nil
}
