package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock"
)

// How a worker behaves with a lease.
const (
	brief    = iota // is done long before the TTL
	lasting         // works on, renewed by the watchdog
	careless        // does not renew, and writes when it has long lost the lease
)

// turn is one critical section of a worker.
func (w *workload) turn(worker int) {
	name, how := w.locks[rand.N(len(w.locks))], brief
	if rand.N(50) == 0 {
		how = lasting
	} else if rand.N(80) == 0 {
		how = careless
	}
	wait := 200*time.Millisecond + rand.N(2*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	opts := []quorumlock.Option{quorumlock.WithWait(wait)}
	if how == brief && rand.N(2) == 0 { // the lease's context ends with this one, too
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), wait)
		opts = nil
	}
	defer cancel()
	if how == careless {
		opts = append(opts, quorumlock.WithoutRenewal(), quorumlock.WithTTL(workTTL/2), quorumlock.WithNodeTimeout(workTimeout))
	}
	called := time.Now()
	lease, err := w.clients[worker].Mutex(name, opts...).Lock(ctx)
	if late := time.Since(called) - wait; late > margin+machine.since(called) {
		w.t.Errorf("Lock returned %v after its deadline", late)
	}
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			w.t.Errorf("Lock: %v, want a lease or context.DeadlineExceeded", err)
		}
		w.history.refused(worker, refusal{called: called, err: err})
		return
	}
	g := &grant{worker: worker, lock: name, how: "Mutex", token: lease.Token(), called: called, granted: time.Now()}
	w.history.granted(g)
	stopTold := context.AfterFunc(lease.Context(), func() {
		if cause := context.Cause(lease.Context()); errors.Is(cause, quorumlock.ErrLost) {
			w.history.told(g)
		}
	})
	w.work(worker, lease, how)
	stopTold()
	leaving := time.Now()
	err = lease.Unlock(ctx)
	left := time.Now()
	if took := left.Sub(leaving); took > 2*workTimeout+margin+machine.between(leaving, left) {
		w.t.Errorf("Unlock took %v", took)
	}
	if _, ok := errors.AsType[*quorumlock.QuorumError](err); err != nil && !ok && !errors.Is(err, quorumlock.ErrLost) {
		w.t.Errorf("Unlock: %v, want nil, ErrLost or a *QuorumError", err)
	}
	w.history.ended(g, leaving, left, lease.ValidUntil(), err)
}

// work is the work under the lock: a read, and a write that depends on it.
func (w *workload) work(worker int, lease *quorumlock.Lease, how int) {
	s, now := w.stores[lease.Name()], func() int64 { return w.history.at(time.Now()) }
	value, ok := s.read(worker, lease.Token(), now)
	if !ok {
		return
	}
	switch how {
	case brief:
		time.Sleep(rand.N(3 * time.Millisecond))
	case lasting:
		select {
		case <-lease.Context().Done():
		case <-time.After(workTTL/2 + rand.N(workTTL/2)):
		case <-w.stop:
		}
	case careless:
		select {
		case <-lease.Context().Done():
			time.Sleep(rand.N(100 * time.Millisecond)) // it does not look
		case <-time.After(time.Until(lease.ValidUntil()) + margin):
			if past(time.Now(), lease.ValidUntil()) {
				w.t.Errorf("a holder was not told of its loss until %v after its deadline", margin)
			}
		case <-w.stop:
		}
	}
	s.write(worker, lease.Token(), value+1, now)
}
