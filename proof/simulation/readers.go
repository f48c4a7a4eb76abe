package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

// The names that a step reads, as bits.
const (
	readsX = 1 << iota
	readsY
)

// reads reports whether the step shares a name with others.
func (s Step) reads(name string) bool {
	return s.Read&(map[string]int{"x": readsX, "y": readsY}[name]) != 0
}

// readers turns some callers of a plan into readers, in one seed of four. Its own generator keeps
// the other seeds unchanged.
func (p *Plan) readers() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x4ead))}
	if p.Readers = g.chance(0.25); !p.Readers {
		return
	}
	names := []string{"x"}
	for _, w := range p.Workers {
		for _, s := range w.Steps {
			if s.Name != "x" {
				names = []string{"x", "y", "x+y"}
			}
		}
	}
	for range g.IntN(4) {
		p.Workers = append(p.Workers, g.worker(p, len(p.Workers), names))
	}
	for _, w := range p.Workers {
		for i := range w.Steps {
			g.shares(p, &w.Steps[i])
		}
	}
}

// shares turns a step into a reader's, perhaps, or adds a downgrade to its hold.
func (g generator) shares(p *Plan, s *Step) {
	all := map[string]int{"x": readsX, "y": readsY, "x+y": readsX | readsY}[s.Name]
	what := use(-1)
	if g.chance(0.6) {
		if s.Read = all; s.Name == "x+y" {
			s.Read = pick(g, readsX, readsY, all)
		}
		if g.chance(0.2) {
			what = upgrade
		}
	} else if s.Name != "x+y" && g.chance(0.5) {
		what = downgrade
	}
	if what >= 0 {
		s.Hold = slices.Insert(slices.Clone(s.Hold), g.IntN(len(s.Hold)+1), Use{After: g.between(0, p.TTL/8), What: what})
	}
}

// left returns how long a node keeps the lock for one of its holders.
func (s *state) left(who string) time.Duration {
	if s.ends != nil {
		return time.Duration(s.ends[who]-s.now) * time.Millisecond
	}
	if !s.shared {
		return s.ttl
	}
	until, _ := strconv.ParseInt(s.holders[who], 10, 64)
	return time.Duration(until-s.now) * time.Millisecond
}

// sharing checks the state of a lock after a script: an exclusive holder is alone, the key lasts as
// long as every share, and no call is refused for a share that is over.
func (t *watch) sharing(n *node, m message, name string, was, is state, reply string) {
	if name == semaphore {
		return
	}
	if !is.shared && len(is.holders) > 1 {
		t.world.violateLocked(mutualExclusion, "%v has %s for %v at the same time, after %s for %s", n, name, is.holders, m.script, m.owner)
	}
	for who := range is.holders {
		if is.shared && is.ttl+time.Millisecond < is.left(who) { // a share ends with a whole ms
			t.world.violateLocked(othersHold, "%v keeps %s for %v, and for %s for %v, after %s for %s", n, name, is.ttl, t.alias(who), is.left(who), m.script, m.owner)
		}
	}
	if m.script == "acquire" && strings.HasPrefix(reply, "*4\r\n:0\r\n") && len(was.holders) == 0 {
		t.world.violateLocked(overIsOver, "%v refused %s to %s, and nobody has it", n, name, m.owner)
	}
}

// ordered checks a token granted to a caller that first asked at a given time. Shares have tokens
// in no order among themselves. Without bound, the clocks order only callers that asked one after
// the other: nodes that forget may grant two concurrent callers in turn, the second with the lower
// token. Shares then have that token.
func (t *watch) ordered(h *hold, name string, first time.Time, bound bool) {
	g, own := t.names[name], h.lease.Token()
	var last time.Time // before first
	for _, at := range g.all {
		if at.Before(first) && at.After(last) {
			last = at
		}
	}
	for token, at := range g.all {
		switch {
		case token == own && !h.reads[name]:
			t.world.violateLocked(tokensUnique, "%s was granted %s with token %d, as somebody was %v before", h.owner, name, own, time.Since(at))
		case token > own && (bound || at.Before(first) && (!h.reads[name] || at.Equal(last))):
			t.world.violateLocked(tokensRise, "%s was granted %s with token %d after token %d", h.owner, name, own, token)
		}
	}
	if h.reads[name] {
		g.read[own] = time.Now()
		return
	}
	for token, at := range g.read {
		if token >= own && (bound || at.Before(first)) {
			t.world.violateLocked(tokensRise, "%s was granted %s with token %d after somebody shared it with token %d", h.owner, name, own, token)
		}
	}
	g.all[own] = time.Now()
}

// shares records that a holder begins to share its locks.
func (t *watch) shares(h *hold) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	for _, name := range h.names {
		h.reads[name] = true
	}
	t.moved(setOf(h.locks...))
}

// downgrade turns the worker's hold into a share.
func (k *worker) downgrade(ctx context.Context, h *hold, s Step) {
	k.world.mu.Lock()
	live := h.live() && h.left() > 4*k.world.plan.Latency // a request and its answer, with other calls before them
	k.world.mu.Unlock()
	if h.reads[s.Name] {
		return
	}
	k.world.watch.shares(h)
	began := k.world.now()
	err := k.proc.client.RWMutex(s.Name, k.options(s)...).Downgrade(ctx, h.lease)
	k.inTime("Downgrade", began, k.world.plan.silence())
	k.extended(h, err)
	if live && err != nil && k.world.plan.Class == calm && ctx.Err() == nil {
		k.world.violate(nothingFails, "w%d cannot downgrade: %v", k.number+1, k.proc.aliased(err))
	}
	if err == nil {
		k.world.mu.Lock()
		k.world.watch.handoff(s.Name)
		k.world.mu.Unlock()
	}
}

// upgrade tries to hold a shared lock alone. It would wait for itself, so it is refused at once.
func (k *worker) upgrade(h *hold, s Step) {
	if s.Read == 0 {
		return
	}
	l, err := k.locker(Step{Name: s.Name}, k.options(s))
	if err != nil {
		k.world.violate(sound, "%v", err)
		return
	}
	began := k.world.now()
	_, err = l.Lock(h.lease.Context())
	k.inTime("Lock of what it shares", began, 0)
	if h.lease.Context().Err() == nil && !errors.Is(err, quorumlock.ErrUpgrade) {
		k.world.violate(noUpgrade, "w%d was not refused: %v", k.number+1, k.proc.aliased(err))
	}
}

// read is a read of the store by a holder, which may have been paused since it looked at its lease.
// The store refuses a reader with a token lower than that of an accepted write. It is called with
// the world's mutex held.
func (w *world) read(h *hold, name string, s *store) {
	shown := h.lease.Token() >= s.token
	if w.plan.Class == beyond {
		return
	}
	if shown && h.order[name] < s.order {
		w.violateLocked(noOldWrite, "%s, the grant number %d of %s, may read after the write of one of %d", h.owner, h.order[name], name, s.order)
	}
	if !shown && h.live() {
		w.violateLocked(holderWrite, "it refused that %s reads %s with token %d after %d", h.owner, name, h.lease.Token(), s.token)
	}
}
