package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/multilock"
)

// worker takes the steps of a plan.
type worker struct {
	world  *world
	number int
	proc   *process
	follow sync.WaitGroup
}

func newWorker(w *world, number int, p *process) *worker {
	return &worker{world: w, number: number, proc: p}
}

func (k *worker) work(ctx context.Context, steps []Step) {
	defer k.follow.Wait()
	for _, s := range steps {
		if k.world.now() > k.world.plan.Length || !k.rest(ctx, s.After) {
			return
		}
		k.step(ctx, s)
	}
}

// rest sleeps until an instant that is this worker's alone, and while its process is paused. It
// reports whether the process lives.
func (k *worker) rest(ctx context.Context, d time.Duration) bool {
	apart := 64 * time.Microsecond // 2 µs for each of 31 workers
	if k.world.plan.Big {
		apart *= 4
	}
	for range 2 {
		at := (k.world.now() + d).Truncate(apart) + apart + time.Duration(k.number+1)*2*time.Microsecond
		time.Sleep(at - k.world.now())
		if !k.proc.stand(ctx) {
			return false
		}
		d = 0
	}
	return true
}

// options are those of a step's call.
func (k *worker) options(s Step) []quorumlock.Option {
	opts := []quorumlock.Option{quorumlock.WithTTL(k.world.plan.TTL), quorumlock.WithNodeTimeout(k.world.plan.NodeTimeout), quorumlock.WithDrift(k.world.plan.Drift), k.world.plan.guard()}
	if s.NoRenew {
		opts = append(opts, quorumlock.WithoutRenewal())
	}
	if s.Wait {
		opts = append(opts, quorumlock.WithWait(s.Limit))
	}
	return opts
}

func (k *worker) locker(s Step, opts []quorumlock.Option) (quorumlock.Locker, error) {
	names := strings.Split(s.Name, "+")
	if len(names) == 1 {
		return k.member(s, s.Name, opts...), nil
	}
	var members []quorumlock.Locker
	for _, name := range names {
		members = append(members, k.member(s, name))
	}
	return multilock.New(members, opts...)
}

func (k *worker) member(s Step, name string, opts ...quorumlock.Option) quorumlock.Locker {
	switch {
	case name == semaphore:
		return k.proc.client.Semaphore(name, k.world.plan.Permits, opts...)
	case s.reads(name):
		return k.proc.client.RWMutex(name, opts...).RLocker()
	case k.number%2 == 1: // which is the same lock
		return k.proc.client.RWMutex(name, opts...)
	}
	return k.proc.client.Mutex(name, opts...)
}

// step is one acquisition.
func (k *worker) step(ctx context.Context, s Step) {
	if s.Latch != nothing {
		k.askLatch(ctx, k.proc.latch(s.Fresh), latchCall{what: s.Latch, id: s.ID}, s.Limit)
		return
	}
	l, err := k.locker(s, k.options(s))
	if err != nil {
		k.world.violate(sound, "%v", err)
		return
	}
	limit := s.Limit
	if s.Cancel > 0 {
		limit = min(limit, s.Cancel)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.Cancel > 0 || !s.Wait && !s.Try {
		timer := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
	}
	if s.Told > 0 {
		k.world.mu.Lock()
		k.proc.turns = append(k.proc.turns, func() {
			time.AfterFunc(s.Told, func() { cancel(context.Canceled) })
		})
		k.world.mu.Unlock()
	}
	call, most := l.Lock, limit
	if s.Try {
		// It may wait for its place first, behind the probe of a silent node.
		call, most = l.TryLock, 3*k.world.plan.NodeTimeout+k.world.plan.silence()
		if s.Cancel > 0 {
			most = min(most, limit)
		}
	}
	began := k.world.now()
	k.world.note("%v: w%d calls for %s, try %v", k.proc, k.number+1, s.Name, s.Try)
	done := func(bool) {}
	if !s.Try {
		done = k.world.watch.waits(k.proc, s, limit)
	}
	k.world.watch.called(k.proc)
	lease, err := call(ctx)
	k.inTime("Lock", began, most)
	if err != nil {
		if s.Try && errors.Is(err, quorumlock.ErrHeld) && ctx.Err() == nil {
			k.world.watch.refused(k, s, began)
		}
		k.failed(ctx, s, err, began)
		done(false)
		return
	}
	h := k.world.watch.granted(k.proc, lease, s, nil)
	done(true)
	k.follow.Go(func() { k.world.watch.follow(h) })
	alive := k.use(ctx, l, h, s)
	if !alive {
		k.world.watch.over(h, true)
		return
	}
	if s.Detach > 0 {
		k.detach(h, s, s.Detach, 0)
		return
	}
	k.unlock(ctx, h)
}

// inTime checks that a call took no longer than it may.
func (k *worker) inTime(call string, began, most time.Duration) {
	const bound = 2 * time.Millisecond
	if took := k.world.now() - began; took > most+bound {
		k.world.violate(inTime, "%s of w%d took %v, and may take %v", call, k.number+1, took, most)
	}
}

// failed checks why a call has failed.
func (k *worker) failed(ctx context.Context, s Step, err error, began time.Duration) {
	k.world.note("%v: w%d fails: %s", k.proc, k.number+1, sort(err))
	_, few := errors.AsType[*quorumlock.QuorumError](err)
	late := k.world.now()-began >= s.Limit
	switch {
	case ctx.Err() != nil, s.Wait && late:
	case s.Try && (errors.Is(err, quorumlock.ErrHeld) || few || k.world.plan.Class != calm):
	default:
		k.world.violate(ridesOut, "w%d got %v", k.number+1, k.proc.aliased(err))
	}
	if k.world.plan.Class == calm && few {
		k.world.violate(nothingFails, "w%d got %v", k.number+1, k.proc.aliased(err))
	}
}

// use runs the actions of a holder. It reports whether the holder lives.
func (k *worker) use(ctx context.Context, l quorumlock.Locker, h *hold, s Step) bool {
	for _, u := range s.Hold {
		if !k.rest(context.Background(), u.After) {
			return false
		}
		if h.lease.Context().Err() != nil {
			return true
		}
		switch u.What {
		case write:
			if u.Lag > 0 && !k.rest(context.Background(), u.Lag) {
				return false
			}
			k.world.write(h)
		case extend:
			began := k.world.now()
			err := h.lease.Extend(ctx)
			k.inTime("Extend", began, k.world.plan.silence())
			k.extended(h, err)
		case race:
			k.follow.Go(func() { _ = h.lease.Extend(ctx) }) // it may come before or after Unlock
		case enter:
			k.enter(l, h)
		case downgrade:
			k.downgrade(ctx, h, s)
			l = k.proc.client.RWMutex(s.Name, k.options(s)...).RLocker()
		case upgrade:
			k.upgrade(h, s)
		}
	}
	return k.rest(context.Background(), 0)
}

func (k *worker) extended(h *hold, err error) {
	w := k.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace(fmt.Sprintf("%v: w%d extended: %s", k.proc, k.number+1, sort(err)))
	if err == nil && h.lease.Context().Err() == nil {
		w.watch.backed(h)
	}
}

// enter enters the hold once more and leaves it: that changes nothing.
func (k *worker) enter(l quorumlock.Locker, h *hold) {
	began := k.world.now()
	count := h.lease.HoldCount()
	inner, err := l.Lock(h.lease.Context())
	most := k.world.plan.silence()
	if k.proc.stepped && !k.proc.boots {
		// Until the client compares its clocks, an expired lease's context is not cancelled.
		most += time.Second
	}
	k.inTime("Lock again", began, most)
	if err != nil {
		if h.lease.Context().Err() == nil {
			k.world.violate(reentrancy, "w%d cannot enter its own hold: %v", k.number+1, k.proc.aliased(err))
		}
		return
	}
	// Its hold was over, and a new share is granted without waiting.
	if k.proc.stepped && !k.proc.boots && inner.Owner() != h.lease.Owner() {
		_ = inner.Unlock(context.Background())
		return
	}
	const rule = reentrancy
	if inner.Owner() != h.lease.Owner() || inner.Token() != h.lease.Token() {
		k.world.violate(rule, "w%d entered another hold", k.number+1)
	}
	if now := inner.HoldCount(); now != count+1 {
		k.world.violate(rule, "w%d has entered %d times, not %d", k.number+1, now, count+1)
	}
	k.rest(context.Background(), 0)
	err = inner.Unlock(context.Background())
	if err != nil && !errors.Is(err, quorumlock.ErrLost) {
		k.world.violate(rule, "w%d cannot leave: %v", k.number+1, err)
	}
	if now := h.lease.HoldCount(); err == nil && now != count {
		k.world.violate(rule, "w%d has %d entries left, not %d", k.number+1, now, count)
	}
	if err == nil && h.lease.Context().Err() == nil {
		k.world.mu.Lock()
		k.world.watch.backed(h)
		k.world.mu.Unlock()
	}
}

func (k *worker) unlock(ctx context.Context, h *hold) {
	live := func() bool { k.world.mu.Lock(); defer k.world.mu.Unlock(); return h.live() }()
	k.world.watch.releasing(h)
	began := k.world.now()
	err := h.lease.Unlock(ctx)
	k.inTime("Unlock", began, k.world.plan.silence())
	k.world.watch.over(h, false)
	k.world.note("%v: w%d unlocked: %s", k.proc, k.number+1, sort(err))
	switch {
	case !live && err == nil:
		k.world.violate(lossTold, "w%d unlocked a lease that was over, without an error", k.number+1)
	case live && k.world.plan.Class == calm && err != nil:
		k.world.violate(nothingFails, "w%d cannot unlock: %v", k.number+1, k.proc.aliased(err))
	}
	if again := h.lease.Unlock(ctx); !errors.Is(again, quorumlock.ErrNotHeld) {
		k.world.violate(reentrancy, "w%d unlocked twice: %v", k.number+1, again)
	}
}

// sort returns the kind of an error, without details: of two nodes, either may fail first.
func sort(err error) string {
	switch {
	case err == nil:
		return "well"
	case errors.Is(err, quorumlock.ErrLost):
		return "lost"
	}
	return "in vain"
}

// note adds to the trace.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace(fmt.Sprintf(format, args...))
}

// probe is a last caller when all is well again. It gets the lock and every slot of the semaphore
// within two seconds, or when the keys of dead processes have expired.
func (w *world) probe() *process {
	p, err := newProcess(w, len(w.list), ProcessPlan{Prompt: true})
	if err != nil {
		w.violate(sound, "%v", err)
		return nil
	}
	w.mu.Lock()
	w.list = append(w.list, p)
	w.mu.Unlock()
	k := newWorker(w, 20, p)
	if h := k.probes("x", p.client.Mutex("x")); h != nil {
		k.unlock(context.Background(), h)
	}
	var all []*hold
	for range w.plan.Permits {
		if h := k.probes(semaphore, p.client.Semaphore(semaphore, w.plan.Permits)); h != nil {
			all = append(all, h)
		}
	}
	for _, h := range all {
		k.unlock(context.Background(), h)
	}
	return p
}

// probes acquires a lock when all nodes are well.
func (k *worker) probes(name string, l quorumlock.Locker) *hold {
	w := k.world
	w.mu.Lock()
	const soon = 2 * time.Second
	limit := soon
	for _, n := range w.nodes {
		n.tick()
		s := n.state(name)
		left := time.Duration(0)
		for who := range s.holders {
			// A failed Attach passes the hold back with its remaining TTL.
			if len(w.parked) > 0 || !w.watch.owners[w.watch.alias(who)].clears() {
				left = max(left, s.left(who))
			}
		}
		for who, at := range s.places {
			if !w.watch.waiters[w.watch.alias(who)].clears() {
				left = max(left, time.Duration(at-n.clock.last.UnixMilli())*time.Millisecond)
			}
		}
		limit = max(limit, soon+time.Duration(float64(max(left, w.plan.quarantine()))/n.clock.rate))
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !k.rest(ctx, 0) {
		return nil
	}
	w.watch.called(k.proc)
	lease, err := l.Lock(ctx)
	if err != nil {
		w.violate(acquires, "when all nodes were well, nobody acquired %s within %v: %v", name, limit, k.proc.aliased(err))
		return nil
	}
	return w.watch.granted(k.proc, lease, Step{Name: name}, nil)
}
