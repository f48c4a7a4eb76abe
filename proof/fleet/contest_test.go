package fleet

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const (
	epoch   scriptmodel.Time = 1_790_000_000_123_457
	ttl                      = 2 * time.Second
	timeout                  = 100 * time.Millisecond // of an attempt
)

// contender locks and unlocks: as simple a client as can be, which tries again until it has had the lock a few times.
type contender struct {
	name    string
	need    int
	todo    int
	ledger  *ledger
	attempt int
	began   time.Duration
	until   time.Duration // of what it is doing
	state   int
	granted int
	silent  []bool // nodes that have not answered the attempt
}

const (
	idle = iota
	acquiring
	holding
)

// ledger is who holds the lock, and what went wrong.
type ledger struct {
	holder string
	grants int
	broken string
}

func (c *contender) Step(now Clock, e Event, to *Effects) {
	switch {
	case e.Kind == Replied && c.state == acquiring && e.Call == c.attempt:
		c.silent[e.Node] = false
		if a, err := e.Reply.Acquired(); err == nil && a.Granted {
			c.granted++
		}
		if c.granted == c.need && now.Mono < c.began+ttl*98/100 {
			c.hold(now, to)
		}
	case e.Kind == Started:
		c.rest(now, to)
	case e.Kind != Woke || now.Mono < c.until:
	case c.state == idle && c.todo > 0:
		c.try(now, to)
	case c.state == acquiring:
		c.giveBack(to)
		c.rest(now, to)
	case c.state == holding:
		if c.ledger.holder == c.name {
			c.ledger.holder = ""
		}
		c.giveBack(to)
		c.rest(now, to)
	}
}

func (c *contender) rest(now Clock, to *Effects) {
	c.state, c.until = idle, now.Mono+time.Duration(to.Random(int64(time.Second)))
	to.Wake(c.until)
}

func (c *contender) owner() quorumlock.Owner {
	return quorumlock.Owner(fmt.Sprintf("%s:%d", c.name, c.attempt))
}

func (c *contender) try(now Clock, to *Effects) {
	c.attempt++
	c.state, c.began, c.until, c.granted = acquiring, now.Mono, now.Mono+timeout, 0
	for i := range c.silent {
		c.silent[i] = true
		to.Send(i, 0, c.attempt, new(wire.Acquire("x", c.owner(), ttl, 1, uint64(now.Wall))))
	}
	to.Wake(c.until)
}

func (c *contender) hold(now Clock, to *Effects) {
	if c.ledger.holder != "" {
		c.ledger.broken = c.ledger.holder + " and " + c.name
	}
	c.ledger.holder = c.name
	c.ledger.grants++
	c.todo--
	c.state, c.until = holding, min(c.began+ttl*98/100, now.Mono+time.Duration(to.Random(int64(ttl))))
	to.Wake(c.until)
}

func (c *contender) giveBack(to *Effects) {
	for i, silent := range c.silent {
		if silent {
			to.Reconnect(i, 0)
		}
		to.Send(i, 0, -1, new(wire.Release("x", c.owner(), 1)))
	}
}

// contest is a world of three contenders and five nodes on a bad network.
func contest(seed uint64, need int) (*World, *ledger) {
	random := rand.New(rand.NewPCG(seed, 1))
	c := Config{Seed: seed, Network: Network{MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, Slow: 0.02, MaxSlow: 3 * time.Second, Lose: 0.01, LoseReply: 0.01}}
	for range 5 {
		c.Nodes = append(c.Nodes, Computer{Wall: epoch + scriptmodel.Time(random.Int64N(1e6)), Rate: 1 + random.Float64()/200})
	}
	l := new(ledger)
	var clients []Client
	for i := range 3 {
		c.Clients = append(c.Clients, Computer{Wall: epoch, Rate: 1 - random.Float64()/200})
		clients = append(clients, &contender{name: fmt.Sprint("c", i), need: need, todo: 2, ledger: l, silent: make([]bool, 5)})
	}
	for range 5 {
		kind := pick(random, Crash, Freeze, Cut, CutThere, CutBack, Stall, StepWall)
		c.Faults = append(c.Faults, Fault{Kind: kind, At: time.Duration(random.Int64N(int64(5 * time.Second))), For: time.Duration(random.Int64N(int64(2 * time.Second))),
			Node: random.IntN(5), Client: random.IntN(3), By: time.Hour})
	}
	return New(c, clients), l
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func TestAMajorityExcludesAndLessDoesNot(t *testing.T) {
	grants, broken := 0, 0
	for seed := range uint64(500) {
		w, l := contest(seed, 3)
		w.Run(time.Minute)
		if l.broken != "" {
			t.Fatalf("seed %d: %s hold at once", seed, l.broken)
		}
		grants += l.grants
		w, l = contest(seed, 2)
		if w.Run(time.Minute); l.broken != "" {
			broken++
		}
	}
	if grants < 500*6*9/10 || broken < 100 {
		t.Errorf("%d grants by a majority, and %d schedules in which less than one excluded nobody", grants, broken)
	}
}

func TestOneSeedMakesOneSchedule(t *testing.T) {
	trace := func(seed uint64) uint64 {
		h := fnv.New64()
		w, _ := contest(seed, 3)
		w.Ran = func(client, node, _ int, c *wire.Call, reply wire.Reply) {
			fmt.Fprintln(h, w.Now(), client, node, c.Args(), reply.Boxed())
		}
		w.Run(time.Minute)
		return h.Sum64()
	}
	for seed := range uint64(50) {
		if first, second := trace(seed), trace(seed); first != second {
			t.Fatalf("seed %d has two schedules", seed)
		}
	}
	if trace(1) == trace(2) {
		t.Error("two seeds have the same schedule")
	}
}

// On all cores, as a simulation would run.
func BenchmarkSchedule(b *testing.B) {
	var seeds, ran atomic.Uint64
	b.RunParallel(func(b *testing.PB) {
		for b.Next() {
			w, _ := contest(seeds.Add(1), 3)
			n := uint64(0)
			w.Ran = func(int, int, int, *wire.Call, wire.Reply) { n++ }
			w.Run(time.Minute)
			ran.Add(n)
		}
	})
	b.ReportMetric(float64(ran.Load())/float64(b.N), "scripts/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "schedules/s")
}
