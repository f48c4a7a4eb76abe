package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Taker is a caller that tries to attach a detached hold.
type Taker struct {
	Number  int // of the worker
	Process int
	After   time.Duration // the Detach
	Cancel  time.Duration `shrink:"0"` // when the Attach is cancelled; 0: it is not
	Use     time.Duration // how long it holds the lock
	// If set, it detaches the hold for its successors in the list, instead of an Unlock.
	Detach time.Duration `shrink:"0"`
}

// maxTakers is the maximum number of takers in a plan: each has its own instant, see worker.rest.
const maxTakers = 9

// detaches makes some holds of some seeds go on in other processes. Its own generator keeps the
// other seeds unchanged. Package coresim checks who must be able to attach while nothing fails.
func (p *Plan) detaches() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xde7))}
	if p.Class == calm || p.Guard || p.Idle || len(p.Java) > 0 || !g.chance(0.3) {
		return
	}
	p.Orders = g.chance(0.5)
	number := 0
	for i := range p.Workers {
		for j := range p.Workers[i].Steps {
			s := &p.Workers[i].Steps[j]
			if s.Latch != nothing || s.Read != 0 || s.Name != "x" && s.Name != "y" || !g.chance(0.6) ||
				slices.ContainsFunc(s.Hold, func(u Use) bool { return u.What == downgrade || u.What == upgrade || u.What == race }) {
				continue
			}
			s.Detach = g.between(p.TTL/2, 2*p.TTL)
			together := g.between(0, s.Detach*5/4)
			for range 1 + g.IntN(3) {
				if number == maxTakers {
					return
				}
				k := Taker{Number: 21 + number, Process: g.IntN(len(p.Processes)), After: together + g.between(0, 2*p.Latency), Use: g.between(0, p.TTL/2)}
				number++
				if g.chance(0.4) {
					k.After = g.between(0, s.Detach*5/4)
				}
				if g.chance(0.15) {
					k.Cancel = g.between(0, 4*p.Latency)
				}
				if g.chance(0.25) {
					k.Detach = g.between(p.TTL/2, 2*p.TTL)
				}
				s.Takers = append(s.Takers, k)
			}
		}
	}
}

// detach ends a hold, and lets the takers of a step come, from one of them on.
func (k *worker) detach(h *hold, s Step, d time.Duration, from int) {
	w := k.world
	w.watch.releasing(h)
	began := w.now()
	text, err := h.lease.Detach(context.Background(), d)
	k.inTime("Detach", began, w.plan.silence())
	w.watch.over(h, false)
	w.note("%v: w%d has detached: %s", k.proc, k.number+1, sort(err))
	if err != nil {
		if errors.Is(err, quorumlock.ErrMisuse) {
			w.violate(sound, "w%d cannot detach: %v", k.number+1, k.proc.aliased(err))
		}
		return
	}
	taken := new(bool)
	for i, taker := range s.Takers[from:] {
		n := newWorker(w, taker.Number, w.list[taker.Process])
		k.follow.Go(func() { n.take(text, taken, h, s, from+i) })
	}
}

// take is one Attach, and the use of the hold.
func (k *worker) take(text string, taken *bool, from *hold, s Step, i int) {
	defer k.follow.Wait()
	t := s.Takers[i]
	if !k.rest(context.Background(), t.After) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if t.Cancel > 0 {
		defer time.AfterFunc(t.Cancel, cancel).Stop()
	}
	k.world.watch.called(k.proc)
	lease, err := k.proc.client.Attach(ctx, text, k.options(Step{NoRenew: s.NoRenew})...)
	k.world.note("%v: w%d attaches: %s", k.proc, k.number+1, sort(err))
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, quorumlock.ErrLost) && !errors.Is(err, quorumlock.ErrHeld) && !errors.Is(err, quorumlock.ErrNoQuorum) && !errors.Is(err, quorumlock.ErrTooLate) {
			k.world.violate(sound, "w%d cannot attach: %v", k.number+1, k.proc.aliased(err))
		}
		return
	}
	h := k.world.watch.attached(k.proc, lease, s, from, taken)
	k.follow.Go(func() { k.world.watch.follow(h) })
	switch {
	case !k.rest(context.Background(), t.Use):
		k.world.watch.over(h, true)
	case t.Detach > 0:
		k.detach(h, s, t.Detach, i+1)
	default:
		k.world.write(h)
		k.unlock(context.Background(), h)
	}
}

// attached checks a lease when Attach returns it. At most one process goes on with a hold, and none
// after another owner has had the lock.
func (t *watch) attached(p *process, l *quorumlock.Lease, s Step, from *hold, taken *bool) *hold {
	h := t.granted(p, l, s, from)
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	if t.world.plan.Class == beyond {
		return h
	}
	if *taken {
		t.world.violateLocked(attachedOnce, "%s goes on with the hold of %s, as somebody did before", h.owner, from.owner)
	}
	*taken = true
	if l.Token() != from.lease.Token() {
		t.world.violateLocked(attachedOnce, "%s has token %d after %d", h.owner, l.Token(), from.lease.Token())
	}
	for token := range t.names[l.Name()].all {
		if token > l.Token() {
			t.world.violateLocked(tokensRise, "%s goes on with %s with token %d after token %d", h.owner, l.Name(), l.Token(), token)
		}
	}
	return h
}

// passes reports whether a script passes the hold of an owner on, or to him.
func (m *message) passes(who string) bool {
	return m.script == "transfer" && (who == base(m.argv[0]) || who == base(m.argv[1]))
}
