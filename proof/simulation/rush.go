package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/quorumlock/quorumlock"
)

// rushes let several callers try to get a free lock at the same time, at the end of a plan in which
// nothing fails: as writers, as readers and writers, and for the last slot of the semaphore. No
// caller waits for the lock, and one must get it.
func (w *world) rushes(last *process) {
	if w.plan.Class != calm || last == nil {
		return
	}
	g := generator{rand.New(rand.NewPCG(w.plan.Seed, 0x4054))}
	w.rush(g, Step{Name: "x"})
	w.rush(g, Step{Name: "x", Read: readsX})
	if w.plan.Permits == 0 {
		return
	}
	k := newWorker(w, 20, last)
	var taken []*hold
	for range w.plan.Permits - 1 {
		if h := k.probes(semaphore, last.client.Semaphore(semaphore, w.plan.Permits)); h != nil {
			taken = append(taken, h)
		}
	}
	w.watch.settled()
	for range 3 {
		w.rush(g, Step{Name: semaphore})
	}
	for _, h := range taken {
		k.unlock(context.Background(), h)
	}
	w.watch.settled()
}

// rush is one of them. If the step reads, about half of its callers do.
func (w *world) rush(g generator, s Step) {
	s.Try = true
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		won  []func()
		came = 2 + g.IntN(5)
	)
	for i := range came {
		s := s
		if g.chance(0.5) {
			s.Read = 0
		}
		k := newWorker(w, 20+i, w.list[i%len(w.list)])
		all.Go(func() {
			if h := k.try(s); h != nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, func() { k.unlock(context.Background(), h) })
			}
		})
	}
	all.Wait()
	if len(won) == 0 {
		w.violate(oneWins, "%d tried to get %s, which was free, and none of them got it", came, s.Name)
	}
	for _, unlock := range won {
		unlock()
	}
	w.watch.settled()
}

// try calls TryLock while nothing fails.
func (k *worker) try(s Step) *hold {
	ctx := context.Background()
	l, err := k.locker(s, k.options(s))
	if err != nil {
		k.world.violate(sound, "%v", err)
		return nil
	}
	k.rest(ctx, 0)
	k.world.watch.called(k.proc)
	began := k.world.now()
	lease, err := l.TryLock(ctx)
	k.inTime("TryLock", began, 3*k.world.plan.NodeTimeout)
	switch {
	case err == nil:
		return k.world.watch.granted(k.proc, lease, s, nil)
	case !errors.Is(err, quorumlock.ErrHeld):
		k.world.violate(nothingFails, "w%d got %v", k.number+1, k.proc.aliased(err))
	}
	return nil
}
