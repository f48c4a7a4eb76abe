package election_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

var (
	seeds = flag.Int("seeds", testkit.Thorough(12, 2), "`how many` hostile schedules to play")
	seed  = flag.Int64("seed", 0, "play the schedule of this seed alone")
)

// Under any faults of nodes and network, there is one leader at a time, values are the leader's,
// and observers end at the truth. Each seed is a schedule of half a minute.
func TestHostileSchedules(t *testing.T) {
	t.Parallel()
	from, to := int64(1), int64(*seeds)
	if *seed != 0 {
		from, to = *seed, *seed
	}
	var sum tally
	for s := from; s <= to && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHostile(t, s)
			h.play()
			sum.add(h)
			if t.Failed() {
				t.Logf("repeat it with -run Hostile -seed %d", s)
			}
		})
	}
	t.Logf("%+v", sum)
	if *seed == 0 && (sum.Terms < 5**seeds || sum.Sure < 100**seeds || sum.Lost < *seeds/4 || sum.Resigned < *seeds || sum.Told < 5**seeds) {
		t.Errorf("too little has happened to show anything: %+v", sum)
	}
}

// tally counts the events of all schedules.
type tally struct{ Terms, Lost, Resigned, Late, Sure, Unsure, Told int }

func (s *tally) add(h *hostile) {
	s.Terms += len(h.reigns)
	for _, r := range h.reigns {
		switch {
		case errors.Is(r.cause, quorumlock.ErrLost):
			s.Lost++
		case errors.Is(r.cause, election.ErrResigned):
			s.Resigned++
		}
		if r.left.Sub(r.ended) > hostileTTL {
			s.Late++
		}
	}
	s.Sure += h.sure
	s.Unsure += h.unsure
	for _, o := range h.observers {
		s.Told += len(o.all)
	}
}

const (
	hostileTTL  = 2 * time.Second
	longestHalt = 2500 * time.Millisecond
)

// reign is one run of a lead function, as known to the test.
type reign struct {
	token   uint64
	term    *election.Term
	ctx     context.Context
	began   time.Time
	ended   time.Time // of the context; zero while it lasts
	left    time.Time // when the lead function returned; zero while it runs
	cause   error
	values  []string // proclaimed, in order, the first included
	known   int      // the number of confirmed values
	careful bool     // it returns well within a TTL
}

// hostile is one schedule.
type hostile struct {
	*testing.T
	seed      int64
	dice      *rand.Rand
	servers   []*embedded.Server
	all       []*candidate
	observers []*seen

	mu           sync.Mutex
	reigns       []*reign
	sure, unsure int
}

func newHostile(t *testing.T, seed int64) *hostile {
	h := &hostile{T: t, seed: seed, dice: rand.New(rand.NewPCG(uint64(seed), 7))}
	h.servers, _ = testkit.Nodes(t, 5)
	opts := []quorumlock.Option{quorumlock.WithTTL(hostileTTL)}
	if h.forgets() {
		opts = append(opts, quorumlock.WithQuorum(4)) // two may forget
	}
	for i := range 4 {
		h.all = append(h.all, join(t, h.servers, fmt.Sprintf("candidate %d", i), opts...))
		testkit.Each(h.all[i].paths, (*embedded.Server).RefuseWhileHeld)
	}
	testkit.Each(h.servers, (*embedded.Server).RefuseWhileHeld)
	return h
}

// forgets reports whether the first two nodes lose data and have their clocks stepped.
func (h *hostile) forgets() bool { return h.seed%3 == 0 }

func (h *hostile) roll(n int) int { return h.dice.IntN(n) }

// play runs three candidates and two readers through faults, then heals all and checks the end.
func (h *hostile) play() {
	ctx, cancel := context.WithCancel(h.Context())
	var running sync.WaitGroup
	for i, c := range h.all[:3] {
		dice := rand.New(rand.NewPCG(uint64(h.seed), uint64(100+i)))
		running.Go(func() { h.runs(ctx, c, dice) })
	}
	for _, c := range h.all[2:] {
		o := &seen{}
		h.observers = append(h.observers, o)
		running.Go(func() {
			for l, err := range c.Observe(ctx) {
				h.check(l, err, time.Time{}, nil)
				o.add(l, err)
			}
		})
		running.Go(func() { h.reads(ctx, c) })
	}
	running.Go(func() { h.noise(ctx) })
	for range 40 {
		h.fault()
		time.Sleep(time.Duration(h.roll(int(800 * time.Millisecond))))
	}
	h.heal()
	time.Sleep(4 * hostileTTL)
	h.settled(ctx)
	cancel()
	running.Wait()
	time.Sleep(2 * hostileTTL)
	for i, o := range h.observers {
		for j := 1; j < len(o.tops); j++ {
			if o.tops[j] < o.tops[j-1] || o.tops[j] == o.tops[j-1] && o.versions[j] < o.versions[j-1] {
				h.Errorf("seed %d: observer %d: version %d of token %d after %d of %d: %q", h.seed, i, o.versions[j], o.tops[j], o.versions[j-1], o.tops[j-1], o.all)
			}
		}
	}
	testkit.NoLocks(h, h.servers)
}

// noise publishes messages without meaning. It makes observers look. It also keeps go-redis from
// testing the subscriptions: go-redis would hold a mutex during the test, and a bubble cannot wait
// for a mutex if the node is frozen.
func (h *hostile) noise(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		h.servers[i%5].Redis.Publish(wire.LeaderKey("job"), "noise")
		time.Sleep(300 * time.Millisecond)
	}
}

// runs is one candidate. Some of its lead functions proclaim, some are slow to return, some too
// slow, some leave.
func (h *hostile) runs(ctx context.Context, c *candidate, dice *rand.Rand) {
	first := fmt.Sprintf("candidate %d", slices.Index(h.all, c))
	for ctx.Err() == nil {
		own, cancel := context.WithCancel(ctx)
		if dice.IntN(4) == 0 {
			time.AfterFunc(time.Duration(dice.IntN(10_000))*time.Millisecond, cancel)
		}
		_ = c.Run(own, func(ctx context.Context) error { return h.lead(ctx, c, first, dice) })
		cancel()
	}
}

func (h *hostile) lead(ctx context.Context, c *candidate, first string, dice *rand.Rand) error {
	term, ok := election.TermOf(ctx)
	if !ok {
		h.Errorf("seed %d: no term", h.seed)
		return nil
	}
	winds := time.Duration(dice.IntN(300)) * time.Millisecond
	r := &reign{token: term.Token(), term: term, ctx: ctx, began: time.Now(), values: []string{first}, known: 1, careful: true}
	if dice.IntN(8) == 0 {
		winds, r.careful = hostileTTL*3/2, false
	}
	h.begins(r)
	defer h.locked(func() { r.left = time.Now() })
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.ended, r.cause = time.Now(), context.Cause(ctx)
		if late := r.ended.Sub(term.ValidUntil()); late > 0 {
			h.Errorf("seed %d: token %d: told %v after the deadline", h.seed, r.token, late)
		}
	})
	ends := time.After(time.Duration(dice.IntN(6000)) * time.Millisecond)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			time.Sleep(winds)
			return ctx.Err()
		case <-ends:
			switch dice.IntN(3) {
			case 0:
				return nil
			case 1:
				_ = c.Resign(ctx)
			default:
				go func() { _ = c.Resign(context.WithoutCancel(ctx)) }()
			}
		case <-time.After(time.Duration(dice.IntN(1500)) * time.Millisecond):
			value := fmt.Sprintf("%s, token %d, value %d", first, r.token, i)
			n := 0
			h.locked(func() { r.values, n = append(r.values, value), len(r.values)+1 })
			if term.Proclaim(ctx, value) == nil {
				h.locked(func() { r.known = n })
			}
		}
	}
}

func (h *hostile) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// begins checks the conditions for a new leader.
func (h *hostile) begins(r *reign) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.reigns {
		if o.ctx.Err() == nil {
			h.Errorf("seed %d: token %d leads while the context of token %d is not done", h.seed, r.token, o.token)
		}
		// A lease may also be lost while the work winds up.
		if o.left.IsZero() && o.careful && !errors.Is(context.Cause(o.ctx), quorumlock.ErrLost) && time.Now().Before(o.term.ValidUntil()) {
			h.Errorf("seed %d: token %d leads while token %d is at work, %v after it was told (%v)", h.seed, r.token, o.token, time.Since(o.ended), o.cause)
		}
		if o.token >= r.token {
			h.Errorf("seed %d: token %d after %d", h.seed, r.token, o.token)
		}
	}
	h.reigns = append(h.reigns, r)
}

// reads reads the leader repeatedly.
func (h *hostile) reads(ctx context.Context, c *candidate) {
	for ctx.Err() == nil {
		called, known := time.Now(), h.known()
		l, err := c.Leader(ctx)
		h.check(l, err, called, known)
		time.Sleep(137 * time.Millisecond)
	}
}

// known returns how many values of each leader are confirmed at this moment.
func (h *hostile) known() map[uint64]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[uint64]int)
	for _, r := range h.reigns {
		known[r.token] = r.known
	}
	return known
}

// check checks the result of a call at that time, and whether its value was confirmed, if that is
// known.
func (h *hostile) check(l election.Leader, err error, called time.Time, known map[uint64]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || !l.Sure {
		h.unsure++
		if l.Sure {
			h.Errorf("seed %d: sure, but %v", h.seed, err)
		}
		return
	}
	h.sure++
	var of *reign
	for _, r := range h.reigns {
		if r.token == l.Token {
			of = r
		}
		if !called.IsZero() && r.token > l.Token && r.began.Before(called) {
			h.Errorf("seed %d: sure of %v, though token %d led before the call", h.seed, l, r.token)
		}
	}
	if of == nil { // at a quorum before its Campaign returned, or its campaign was cancelled then
		return
	}
	at := slices.Index(of.values, l.Value)
	if at < 0 {
		h.Errorf("seed %d: sure of %v, who proclaimed %q", h.seed, l, of.values)
	}
	if at+1 < known[l.Token] {
		h.Errorf("seed %d: sure of %v, though a later value was confirmed before the call: %q", h.seed, l, of.values[:known[l.Token]])
	}
	if called.IsZero() {
		return
	}
	// Renewals are under way to the nodes for a while; the nodes count from when they come.
	if !of.ended.IsZero() && errors.Is(of.cause, quorumlock.ErrLost) && called.Sub(of.ended) > longestHalt {
		h.Errorf("seed %d: sure of %v, who was lost %v before the call", h.seed, l, called.Sub(of.ended))
	}
}

// settled checks that observers and readers know the truth after all faults.
func (h *hostile) settled(ctx context.Context) {
	// There is a leader for longer than a moment: another schedule step would change it.
	for range 100 {
		synctest.Wait()
		h.mu.Lock()
		var now *reign
		value := ""
		for _, r := range h.reigns {
			if r.ctx.Err() == nil && r.left.IsZero() {
				now, value = r, r.values[len(r.values)-1]
			}
		}
		steady := now != nil && now.known == len(now.values) && time.Since(now.began) > 200*time.Millisecond
		h.mu.Unlock()
		if !steady {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		l, err := h.all[3].Leader(ctx)
		if err != nil || !l.Sure || l.Token != now.token || l.Value != value {
			h.Errorf("seed %d: at the end: %v, %v; want %q, token %d", h.seed, l, err, value, now.token)
		}
		for i, o := range h.observers {
			o.mu.Lock()
			if len(o.all) == 0 || o.all[len(o.all)-1] != value {
				h.Errorf("seed %d: observer %d has told %q at last, want %q: %q", h.seed, i, o.all[max(len(o.all)-1, 0):], value, o.all)
			}
			o.mu.Unlock()
		}
		return
	}
	h.Errorf("seed %d: nobody leads for long once nothing is wrong", h.seed)
}

// fault breaks a node, or a candidate's path to it. No path is slow: when a node freezes, go-redis
// would complete a half-made connection with a mutex held.
func (h *hostile) fault() {
	from, what := h.servers, "node"
	if h.roll(2) == 0 {
		from, what = h.all[h.roll(4)].paths, "path"
	}
	some := from[h.roll(5)]
	halt := time.Duration(h.roll(int(longestHalt)))
	switch h.roll(11) {
	case 0:
		some.Kill()
		time.AfterFunc(halt, func() { some.Restart(true) })
	case 1:
		some.Stall()
		time.AfterFunc(halt, some.Resume)
	case 2:
		some.Mute()
		time.AfterFunc(halt, some.Resume)
	case 3, 4:
		some.LoseReplies(1 + h.roll(3))
	case 5:
		some.LoseMessages(true)
		time.AfterFunc(halt, func() { some.LoseMessages(false) })
	case 6, 9, 10: // a candidate is cut off from all nodes, like a stopped process
		for _, p := range h.all[h.roll(3)].paths {
			p.Stall()
			time.AfterFunc(longestHalt, p.Resume)
		}
	case 7:
		if h.forgets() {
			h.servers[h.roll(2)].StepClock(time.Hour)
		}
	case 8:
		if h.forgets() && what == "node" {
			forgetful := h.servers[h.roll(2)]
			forgetful.Kill()
			time.AfterFunc(halt, func() { forgetful.Restart(false) })
		}
	}
}

// heal ends all faults.
func (h *hostile) heal() {
	time.Sleep(longestHalt)
	fix := func(s *embedded.Server) {
		s.Resume()
		s.LoseReplies(0)
		s.LoseMessages(false)
	}
	testkit.Each(h.servers, fix)
	for _, c := range h.all {
		testkit.Each(c.paths, fix)
	}
}
