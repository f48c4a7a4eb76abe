package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// latch is the name of the latch.
const latch = "l"

// retention is how long the nodes keep the latch: by any clock, less than the day without a call.
const retention = 20 * time.Hour

// latches adds callers of a latch to a plan, in one seed of six. Its own generator keeps the other
// seeds unchanged. A latch promises nothing if more nodes forget than the quorum allows for.
func (p *Plan) latches() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x1a7c))}
	if p.Class == beyond || p.Guard || !g.chance(0.22) {
		return
	}
	p.Latch, p.Waiter = 1+g.IntN(5), p.Class == calm || g.chance(0.5)
	calls := 4 + g.IntN(5)
	if p.Class == bounded && g.chance(0.5) {
		p.Latch, calls = 1+g.IntN(2), 14
		g.views(p)
	}
	p.IDs = p.Latch + g.IntN(3)
	callers := len(p.Processes)
	if p.Waiter {
		callers--
	}
	// Mostly one call of a process at a time: two that fail at one instant retry in no order. Plans
	// with a process that is not prompt have no order anyway.
	if slices.ContainsFunc(p.Processes, func(pp ProcessPlan) bool { return !pp.Prompt }) {
		callers += len(p.Processes)
	}
	for i := range callers {
		w := WorkerPlan{Process: i % len(p.Processes)}
		for range calls {
			s := Step{Name: latch, After: g.between(0, 2*p.Length/time.Duration(calls)), Latch: pick(g, waits, counts, counts, adds, adds), ID: g.IntN(p.IDs),
				Limit: g.between(0, 2*p.TTL), Fresh: g.chance(0.5)}
			if g.chance(0.3) {
				s.Limit = g.between(0, 6*p.Latency) // as the replies come
			}
			w.Steps = append(w.Steps, s)
		}
		p.Workers = append(p.Workers, w)
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Keys != "" && f.Keys != "all" && g.chance(0.5) {
			f.Keys = pick(g, "latch", "ids")
		}
	}
}

// views makes the processes see different nodes, and others after a while: one alone, with ids that
// no other node may have; all but one; or all. The nodes that may forget do so now and then.
func (g generator) views(p *Plan) {
	slice := p.Length / 6
	for at := time.Duration(0); at < p.Length-slice; at += slice {
		for process := range p.Processes {
			some, view := g.IntN(p.Nodes), g.IntN(5)
			for node := range p.Nodes {
				if view < 2 && node != some || view >= 2 && view < 4 && node == some {
					p.Faults = append(p.Faults, Fault{Kind: cutBoth, At: at, For: slice - time.Millisecond, Process: process, Node: node})
				}
			}
		}
		if n := p.forgetful(); n > 0 && g.chance(0.5) {
			p.Faults = append(p.Faults, Fault{Kind: pick(g, crashLosing, evict), At: at + g.between(0, slice/2), For: g.between(0, slice/4), Node: g.IntN(n), Keys: pick(g, "latch", "ids", "all")})
		}
	}
}

// latch returns the process's latch, which all of its workers use, or a fresh one.
func (p *process) latch(fresh bool) *redlock.Latch {
	if fresh {
		return p.client.Latch(latch, p.world.plan.Latch, quorumlock.WithRetention(retention))
	}
	return p.shared
}

// askLatch calls the latch, and checks the result.
func (k *worker) askLatch(ctx context.Context, l *redlock.Latch, c latchCall, limit time.Duration) {
	w := k.world
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := w.now()
	w.mu.Lock()
	c.proc = k.proc
	call := w.history.call(&c)
	w.mu.Unlock()
	n, err := 0, error(nil)
	switch c.what {
	case adds:
		err = l.Done(ctx, idOf(c.id))
	case waits:
		err = l.Wait(ctx)
	case counts:
		n, err = l.Count(ctx)
		limit = min(limit, 5*w.plan.NodeTimeout) // a round, and two of each repair
	}
	k.inTime(c.what.String(), began, limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.returned(call, n, err)
	w.trace(fmt.Sprintf("%v: w%d: %v", k.proc, k.number+1, call))
	_, few := errors.AsType[*quorumlock.QuorumError](err)
	switch {
	case err == nil, few && w.plan.Class != calm, ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, quorumlock.ErrLatchForgotten):
		w.violateLocked(notForgotten, "%v", call)
	default:
		w.violateLocked(ridesOut, "%v: %s", call, k.proc.aliased(err))
	}
	if has, need := w.having(c.id), w.plan.Quorum-w.plan.forgetful(); c.what == adds && err == nil && has < need {
		w.violateLocked(quorumHas, "%d nodes have id %d after its Done, not %d", has, c.id, need)
	}
}

// having returns how many nodes have an id, or an open latch. The world's mutex must be held.
func (w *world) having(id int) (n int) {
	for _, node := range w.nodes {
		node.tick()
		ids, _ := node.redis.ZMembers(wire.LatchKey(latch))
		if slices.Contains(ids, idOf(id)) || strings.HasSuffix(node.redis.HGet(latch, "quorumlock_latch"), " open") {
			n++
		}
	}
	return n
}

func idOf(id int) string { return fmt.Sprintf("id-%d", id) }

// waitForLatch has the last process wait for the latch until it is open, or the process is dead.
func (w *world) waitForLatch(ctx context.Context, waiting *sync.WaitGroup) {
	if w.plan.Waiter {
		k := newWorker(w, 40, w.list[len(w.list)-1])
		waiting.Go(func() { k.askLatch(ctx, k.proc.shared, latchCall{what: waits, toTheEnd: true}, time.Hour) })
	}
}

// openLatch adds all ids in a last process, when all is well. Waiters then see the open latch soon.
func (w *world) openLatch(p *process, waiting *sync.WaitGroup, stop context.CancelFunc) {
	if w.plan.Latch == 0 || p == nil {
		return
	}
	k := newWorker(w, 21, p)
	last := func(what ask, id int) {
		k.askLatch(context.Background(), p.latch(what != adds), latchCall{what: what, id: id}, 5*time.Second+2*w.plan.NodeTimeout)
	}
	last(counts, 0)
	for id := range w.plan.IDs {
		last(adds, id)
	}
	last(waits, 0)
	last(counts, 0)
	w.mu.Lock()
	w.history.openAt = time.Now()
	dead := slices.ContainsFunc(w.list, func(p *process) bool { return p.dead })
	w.mu.Unlock()
	if dead { // a waiter of a dead process hears nothing
		time.Sleep(6*time.Second + 2*w.plan.NodeTimeout)
		stop()
	}
	waiting.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkLatch()
	for _, n := range w.nodes {
		n.tick()
		longest := retention // of a clock that goes on from an earlier time, too
		for _, f := range w.plan.Faults {
			if f.Kind == stepBack && w.nodes[f.Node] == n {
				longest += f.By
			}
		}
		for _, key := range []string{latch, wire.LatchKey(latch)} {
			if ttl := n.redis.TTL(key); ttl > longest || ttl <= 0 && n.redis.Exists(key) {
				w.violateLocked(nothingStays, "%v keeps %s for %v", n, key, ttl)
			}
		}
	}
}

// latched records the effect of a script on the latch.
func (t *watch) latched(n *node, m message, reply string) {
	lines := strings.Split(reply, "\r\n")
	if len(lines) > 4 && lines[0] == "*3" {
		lines[3] = "" // the name of the server is random
	}
	t.world.trace(fmt.Sprintf("%v: latch for %v: %s -> %s", n, m.path.proc, m.who, strings.Join(strings.Fields(strings.Join(lines, " ")), " ")))
}
