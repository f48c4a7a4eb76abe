package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

var (
	soakFor    = flag.Duration("soak", 5*time.Second, "how long TestSoak mixes faults at random")
	soakSeed   = flag.Uint64("soak-seed", 1, "the seed of TestSoak's faults; 0: a random one")
	soakRest   = flag.Duration("soak-rest", 0, "how long TestSoak rests after each round")
	soakTTL    = flag.Duration("soak-ttl", workTTL, "the TTL of TestSoak's locks: longer for a machine that is busy")
	soakReport = flag.String("soak-report", "", "the file for the report of TestSoak; each round overwrites it")
)

const (
	round     = 20 * time.Second // how long a workload works: histories are checked when it has ended
	crowdSize = 2000
	crowdTurn = 4                // each so many rounds, a crowd comes
	leap      = 5 * time.Minute  // of clocks: for as much longer, nodes keep counters
	forgotten = 12 * time.Minute // after its last use, a name has left nothing, in spite of leaps
	failures  = 3                // of rounds, which end the soak
)

// The faults of one seed are the same every time, their effects are not: the servers are real.
func TestSoak(t *testing.T) {
	needServers(t)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	if *soakRest < 0 {
		t.Fatalf("-soak-rest %v: use 0 or more, such as 20s", *soakRest)
	}
	if *soakTTL < 100*time.Millisecond || *soakTTL > 5*time.Second {
		t.Fatalf("-soak-ttl %v: use 100ms to 5s", *soakTTL)
	}
	ttl, timeout, patient := workTTL, workTimeout, patience
	t.Cleanup(func() { workTTL, workTimeout, patience = ttl, timeout, patient })
	if *soakFor > forgotten { // something else may keep the machine busy for a while
		patience *= 3
	}
	workTTL, workTimeout = *soakTTL, min(*soakTTL/3, 600*time.Millisecond) // with a longer one, nothing is handed over
	t.Logf("-soak %v -soak-seed %d", *soakFor, seed)
	s := &soak{
		rng: rand.New(rand.NewPCG(seed, 0)), fleet: startFleet(t, fleetSize-1), group: startGroup(t),
		faults: make(map[string]int), tokens: make(map[string]uint64), counts: make(map[string]count),
		seed: seed, began: time.Now(),
	}
	for _, m := range s.fleet {
		m.leap = leap
	}
	servers := append(s.fleet.servers(), s.group.data[:]...)
	countersApart(t, servers[:fleetSize])
	t.Cleanup(machine.watch(servers, func(i int) bool { return s.struck[min(i, fleetSize-1)].Load() }, workTimeout/2))
	s.report(t, "under way")
	end := time.Now().Add(*soakFor)
	for s.rounds == 0 || time.Now().Before(end) && s.failed < failures {
		s.rounds++
		if !t.Run(fmt.Sprint(s.rounds), func(t *testing.T) { s.round(t, end) }) {
			s.failed++
		}
		time.Sleep(min(*soakRest, max(time.Until(end), 0)))
		s.samples = append(s.samples, s.sample(t))
		s.report(t, "under way")
	}
	t.Logf("%d rounds, %d scripts: %v", s.rounds, s.fleet.scripts(), s.sum)
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		t.Logf("%4d × %s", s.faults[name], name)
	}
	if s.sum.grants == 0 || s.rounds > 2 && s.handed.Load() == 0 {
		t.Errorf("%d grants, %d locks handed over, want some", s.sum.grants, s.handed.Load())
	}
	if busy, all := machine.since(s.began), time.Since(s.began); *soakFor > forgotten && busy > all/2 { // the library may be what keeps it busy
		t.Errorf("for %v of %v, the machine was too busy to judge how soon something happens", busy, all)
	}
	for _, g := range growths(s.samples) {
		if g.judged && g.last > g.most {
			t.Errorf("%s: %.0f in the last quarter, want at most %.0f", g.what, g.last, g.most)
		}
	}
	if *soakFor > forgotten {
		s.forgotten(t)
	}
	verdict := "no promise was broken"
	if t.Failed() {
		verdict = "FAILED, see the log"
	}
	s.report(t, verdict)
}

type soak struct {
	rng    *rand.Rand
	fleet  fleet             // the nodes, but for the last,
	group  *group            // which is one
	faults map[string]int    // how often each has struck
	tokens map[string]uint64 // the highest of each lock, over all rounds
	sum    tally

	seed           uint64
	began          time.Time
	rounds, failed int
	strikes        int
	struck         [fleetSize]atomic.Bool // the nodes of the present strike, the group last
	counts         map[string]count       // by kind
	handed         atomic.Int64           // locks that were handed over to the next waiter
	samples        [][]float64            // one for each round
}

// Begin and Observe make a soak an Observer, which counts handoffs.
func (s *soak) Begin(ctx context.Context, _ string) context.Context { return ctx }

func (s *soak) Observe(_ context.Context, e quorumlock.Event) {
	if e.Handed {
		s.handed.Add(1)
	}
}

// round runs a workload under faults until the end of the round or of the soak.
//
// The quorum is four of five: up to two nodes may forget within one hold, and at most two are
// struck before all workers have finished a turn. One may be down all the time.
func (s *soak) round(t *testing.T, end time.Time) {
	if e := time.Now().Add(round); e.Before(end) {
		end = e
	}
	nodes := func(t *testing.T) []*node.Node { return append(s.fleet.nodes(t), s.group.node(t)) }
	w := begin(t, tolerant, nodes, append(s.fleet.servers(), s.group.data[:]...), quorumlock.WithObserver(s))
	w.served(1)
	for first := true; first || time.Now().Before(end) && !t.Failed(); first = false {
		s.strike(t, w, first && s.rounds%crowdTurn == 0)
	}
	w.end()
	for lock, grants := range w.history.byLock() {
		if low := grants[0]; low.token <= s.tokens[lock] {
			t.Errorf("%q: granted to %v, after token %d in the round before", lock, low, s.tokens[lock])
		}
		s.tokens[lock] = grants[len(grants)-1].token
	}
	s.sum.add(w.history.tally())
	s.count(w.history.grants)
}

// strike strikes one or two nodes, and sometimes gives the others faults that cost a retry.
// Meanwhile, workers use locks of other kinds. The names are used in one strike only: more than two
// nodes may forget in several.
func (s *soak) strike(t *testing.T, w *workload, crowded bool) {
	s.strikes++
	crews := s.employ(t, w.clients)
	victims := s.rng.Perm(fleetSize)[:1+s.rng.IntN(4)/3]
	var heals []func()
	for _, v := range victims {
		s.struck[v].Store(true)
		defer s.struck[v].Store(false)
		if v == len(s.fleet) {
			t.Log("the group: failover")
			s.faults["failover"]++
			s.group.change(t)
			continue
		}
		f := s.pick(func(f fault) bool { return !f.everywhere })
		t.Logf("node %d: %s", v, f.name)
		heals = append(heals, f.befall(t, s.fleet[v]))
	}
	if s.rng.IntN(3) == 0 {
		f := s.pick(func(f fault) bool { return f.everywhere })
		t.Logf("the others: %s", f.name)
		for i, m := range s.fleet {
			if !slices.Contains(victims, i) {
				heals = append(heals, f.befall(t, m))
			}
		}
	}
	var crowd errgroup.Group
	if crowded {
		t.Logf("a crowd of %d", crowdSize)
		s.crowd(&crowd, w.clients)
	}
	span := time.Duration(s.rng.Int64N(int64(2 * workTTL)))
	if len(victims) == 1 {
		w.served(1) // all the same
	}
	time.Sleep(span)
	for _, heal := range heals {
		heal()
	}
	for _, m := range s.fleet {
		if m.ahead != 0 { // it may forget, and would keep its keys for minutes
			m.step(t, -m.ahead)
			must(t, m.admin.FlushAll(patiently(t)).Err())
		}
	}
	if err := crowd.Wait(); err != nil {
		t.Errorf("one of a crowd: %v", err)
	}
	w.turned()
	w.served(1)
	for _, c := range crews {
		c.served(1)
		c.stop()
		c.check(nil)
		switch u := c.users.(type) {
		case *holders:
			s.count(u.history.grants)
		case *latches:
			s.counts["Latch, calls"] = s.counts["Latch, calls"].plus(u.calls, 0)
		}
	}
}

// employ lets workers use locks of all kinds, and returns when all are served. In a short soak, only
// two kinds take part at a time.
func (s *soak) employ(t *testing.T, clients []*redlock.Client) (crews []crew) {
	t.Helper()
	name := func(kind string) string { return fmt.Sprintf("%s of %d", kind, s.strikes) }
	kinds := []struct {
		users   users
		workers int
	}{
		{ledger(t, name("ledger"), 0), 4},
		{printers(t, name("printers"), 0), 5},
		{accounts(t, name("accounts")), 4},
		{candidates(t, name("leader")), 3},
		{jobs(t, name("report")), 2},
		{&latches{t: t, name: name("import"), began: time.Now(), opts: []quorumlock.Option{quorumlock.WithRetention(time.Minute)}}, 3},
	}
	if *soakFor < round {
		kinds = kinds[s.strikes%3*2:][:2]
	}
	for _, kind := range kinds {
		crews = append(crews, employ(t, kind.users, clients[:kind.workers], workTTL/20))
	}
	for _, c := range crews {
		c.served(1)
	}
	return crews
}

// crowd lets callers, each with a lock of its own, come all at once. Each must be served, late or
// not.
func (s *soak) crowd(all *errgroup.Group, clients []*redlock.Client) {
	name := fmt.Sprintf("caller of %d: ", s.strikes)
	ctx, cancel := context.WithCancelCause(context.Background())
	var served atomic.Int64
	go func() {
		for began := time.Now(); served.Load() < crowdSize && time.Since(began)-machine.since(began) < patience; {
			time.Sleep(look)
		}
		cancel(fmt.Errorf("%d of %d served within %v", served.Load(), crowdSize, patience))
	}()
	for i := range crowdSize {
		c := clients[i%workers]
		all.Go(func() error {
			defer served.Add(1)
			lease, err := c.Mutex(fmt.Sprint(name, i)).Lock(ctx)
			if err != nil {
				return errors.Join(context.Cause(ctx), err)
			}
			err = lease.Unlock(ctx)
			if errors.Is(err, quorumlock.ErrLost) || errors.Is(err, quorumlock.ErrNoQuorum) {
				return nil // a node is struck
			}
			return err
		})
	}
	s.counts["Mutex, of a crowd"] = s.counts["Mutex, of a crowd"].plus(crowdSize, 0)
}

// forgotten waits until no name has left anything at the nodes, but for the counters that began an
// hour ahead of the clocks.
func (s *soak) forgotten(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), forgotten+patience)
	defer cancel()
	servers, left := append(s.fleet.servers(), s.group.data[:]...), []string(nil)
	for end := time.Now().Add(forgotten); ; time.Sleep(time.Second) {
		left = nil
		for _, s := range servers {
			all, err := s.admin.Keys(ctx, "*").Result()
			must(t, err)
			left = append(left, slices.DeleteFunc(all, func(key string) bool {
				return slices.ContainsFunc(workLocks, func(name string) bool { return key == wire.TokenKey(name) })
			})...)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Errorf("%d keys are left %v after the last call, such as %q", len(left), forgotten, left[0])
}

func (s *soak) pick(fit func(fault) bool) fault {
	for {
		if f := faults[s.rng.IntN(len(faults))]; fit(f) && (!f.users || since(6, 0)) {
			s.faults[f.name]++
			return f
		}
	}
}
