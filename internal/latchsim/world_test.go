package latchsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
	"github.com/quorumlock/quorumlock/scripts"
)

const name = "x"

var idsKey = scripts.LatchKey(name)

// world is one schedule, and what became of it.
type world struct {
	plan      *plan
	servers   []*embedded.Server
	processes []*process
	history   history
}

// process is a client with paths of its own to the servers.
type process struct {
	number int
	world  *world
	paths  []*embedded.Server // of its calls
	ears   []*embedded.Server // of the messages to it
	client *redlock.Client
	shared *redlock.Latch // used by all of its workers; others make one for each call

	mu   sync.Mutex
	dead bool
}

// play plays a plan, and returns what was wrong.
func play(t *testing.T, p *plan) *history {
	w := &world{plan: p}
	synctest.Test(t, func(t *testing.T) {
		for i := range p.nodes {
			w.servers = append(w.servers, embedded.Start(fmt.Sprintf("node-%d", i+1)))
		}
		for range p.processes + 1 { // the last is there to look at the end
			w.start(t)
		}
		w.run()
		for _, p := range w.processes {
			p.die()
			for _, path := range append(p.paths, p.ears...) {
				path.Close()
			}
		}
		for _, s := range w.servers {
			s.Close()
		}
		time.Sleep(2 * time.Second) // go-redis looks once a second whether its pool is closed
	})
	w.history.check(p)
	return &w.history
}

func (w *world) start(t *testing.T) {
	p := &process{number: len(w.processes), world: w}
	w.processes = append(w.processes, p)
	nodes := w.connect(t, p)
	var err error
	if p.client, err = redlock.New(nodes, quorumlock.WithQuorum(w.plan.quorum)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(w.plan.seed, uint64(100+p.number)))
	var mu sync.Mutex
	p.client.Mutex("any").Member().Client().Simulate(time.Now, func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return upTo(rng, d)
	})
	p.shared = p.client.Latch(name, w.plan.n)
}

func (w *world) connect(t *testing.T, p *process) []*node.Node {
	nodes := make([]*node.Node, len(w.servers))
	for i, s := range w.servers {
		path, ear := s.Path(s.Name), s.Path(s.Name)
		path.Delay(w.trip(p.number, i))
		n, err := path.Node(node.WithDialer(eager(path.DialContext, ear.DialContext)))
		if err != nil {
			t.Fatal(err)
		}
		p.paths, p.ears, nodes[i] = append(p.paths, path), append(p.ears, ear), n
	}
	return nodes
}

// trip is how long a message takes on a path, each way.
func (w *world) trip(process, node int) time.Duration {
	return time.Duration(1+(process*7+node*3)%11)*time.Millisecond + time.Duration(process*100+node)*time.Microsecond
}

// run plays the plan: all work while faults happen; then everything is well, and the last process does what is left.
func (w *world) run() {
	var working, waiting sync.WaitGroup
	for _, p := range w.processes[:w.plan.processes] {
		for i := range 2 {
			working.Go(func() { p.work(rand.New(rand.NewPCG(w.plan.seed, uint64(10*p.number+i)))) })
		}
		if w.plan.waiters {
			waiting.Go(func() { p.wait(context.Background(), p.shared, true) })
		}
	}
	for _, f := range w.plan.faults {
		working.Go(func() {
			time.Sleep(f.at)
			f.happen(w)
		})
	}
	working.Wait()
	w.mend()
	time.Sleep(time.Second)
	last := w.processes[w.plan.processes]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	last.count(ctx, last.shared)
	for id := range w.plan.ids {
		last.done(ctx, last.shared, id)
	}
	last.wait(ctx, last.client.Latch(name, w.plan.n), false)
	last.count(ctx, last.client.Latch(name, w.plan.n))
	w.history.opened()
	waiting.Wait()
}

// work calls this and that, in one goroutine.
func (p *process) work(rng *rand.Rand) {
	plan := p.world.plan
	for range plan.calls {
		time.Sleep(upTo(rng, 2*length/time.Duration(plan.calls)))
		l := p.shared
		if rng.IntN(2) == 0 {
			l = p.client.Latch(name, plan.n)
		}
		limit := upTo(rng, 5*time.Second)
		if rng.IntN(3) == 0 {
			limit = upTo(rng, 40*time.Millisecond) // as the replies come
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		switch rng.IntN(5) {
		case 0:
			p.wait(ctx, l, false)
		case 1, 2:
			p.count(ctx, l)
		default:
			p.done(ctx, l, rng.IntN(plan.ids))
		}
		cancel()
	}
}

func (p *process) done(ctx context.Context, l *redlock.Latch, id int) {
	o := p.world.history.call(p.number, operation{does: adds, id: id})
	err := l.Done(ctx, idOf(id))
	p.world.history.returned(o, 0, err, p.problem(ctx, err))
	if err != nil {
		return
	}
	has := 0
	for _, s := range p.world.servers {
		ids, _ := s.Redis.ZMembers(idsKey)
		if slices.Contains(ids, idOf(id)) || strings.HasSuffix(s.Redis.HGet(name, "quorumlock_latch"), " open") {
			has++
		}
	}
	if need := p.world.plan.quorum - p.world.plan.forgetful; has < need {
		p.world.history.wrong("a quorum has what is done", fmt.Sprintf("%d nodes have id %d after its Done, want %d", has, id, need))
	}
}

func (p *process) wait(ctx context.Context, l *redlock.Latch, untilTheEnd bool) {
	o := p.world.history.call(p.number, operation{does: waits, untilTheEnd: untilTheEnd})
	err := l.Wait(ctx)
	p.world.history.returned(o, 0, err, p.problem(ctx, err))
}

func (p *process) count(ctx context.Context, l *redlock.Latch) {
	o := p.world.history.call(p.number, operation{does: counts})
	n, err := l.Count(ctx)
	p.world.history.returned(o, n, err, p.problem(ctx, err))
}

// problem is what is wrong with the error of a call, if anything.
func (p *process) problem(ctx context.Context, err error) string {
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	_, few := errors.AsType[*quorumlock.QuorumError](err)
	switch {
	case err == nil, few && !p.world.plan.calm:
	case errors.Is(err, quorumlock.ErrLatchForgotten):
		return "nothing is forgotten"
	case errors.Is(err, quorumlock.ErrClosed) && dead:
	case errors.Is(err, ctx.Err()) && ctx.Err() != nil:
	default:
		return "only a ctx, a lack of nodes or Close ends a call"
	}
	return ""
}

func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	_ = p.client.Close()
}

func idOf(id int) string { return fmt.Sprintf("id-%d", id) }
