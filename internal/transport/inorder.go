package transport

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// single sends calls through the client that New was given. Each call takes its own connection from
// the client's pool, so the calls of one waiter are sent one after the other. The attempts of one
// local queue are, too, but only while the node is quick.
type single struct {
	node *Node

	mu     sync.Mutex
	last   map[line]chan struct{} // by line, the end of the latest request: closed when it is over
	queued map[any]*attempt       // by local queue, the latest attempt
}

// attempt is a request that may queue a caller of a local queue.
type attempt struct {
	queue   any
	over    chan struct{}   // closed when the request is over
	decided <-chan struct{} // closed when the caller has an outcome
}

// line is the order of one waiter's calls in one lane.
type line struct {
	lane   client.Lane
	waiter string // empty for calls that need no order
}

// do sends the calls once the request before them in their line is over, unless their limit
// ends first.
func (s *single) do(ctx context.Context, l line, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	over, t := make(chan struct{}), s.node.pool.listen(context.WithoutCancel(ctx), limit, calls)
	if t == nil {
		answer(unanswered(calls, s.node.target.Load().recalled))
		return
	}
	before := s.enter(l, over)
	own, ahead := s.join(calls, over)
	wait := patienceOf(ctx, limit)
	err := s.node.locks.Go(func() {
		defer s.leave(l, over, own)
		defer s.node.pool.stop(t)
		if ahead != nil {
			ahead.wait(wait)
		}
		if before != nil {
			defer func() { <-before }() // the next request waits for this one, too
			select {
			case <-before:
			case <-t.Done():
			}
			if t.Err() != nil || t.isOver() {
				answer(unanswered(calls, s.node.unsentNow()))
				return
			}
		}
		// A batch of renewals or releases does not wait for one of them: each has retries of its own.
		answer(s.node.sendAlone(l.lane, t, limit, calls, l.lane == client.Foreground || len(calls) == 1))
	})
	if err != nil {
		s.node.pool.stop(t)
		s.leave(l, over, own)
		answer(unanswered(calls, s.node.Failure(notSent{err}, false)))
	}
}

// enter makes a request the latest of its line, and returns the end of the one before it, or nil.
func (s *single) enter(l line, over chan struct{}) (before <-chan struct{}) {
	if l.waiter == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[line]chan struct{})
	}
	latest := s.last[l]
	s.last[l] = over
	return latest
}

// patience bounds the wait of an attempt for the one before it: at most a sixteenth of its time. If
// the node is slow, the order of the queue matters less than the time: after the wait, a round trip
// may take almost all of the node timeout.
const patience = 16

// patienceOf returns the longest wait of an attempt with this limit for the one before it. If
// ctx ends earlier, the caller has less time.
func patienceOf(ctx context.Context, limit time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	return limit / patience
}

// join makes a request the latest attempt of its local queue, and returns the one before it. Both
// are nil for requests without an order, and ahead is nil for the first attempt.
func (s *single) join(calls []wire.Call, over chan struct{}) (own, ahead *attempt) {
	for i := range calls {
		if queue, decided := calls[i].Queue(); queue != nil && own == nil {
			own = &attempt{queue, over, decided}
		}
	}
	if own == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued == nil {
		s.queued = make(map[any]*attempt)
	}
	ahead = s.queued[own.queue]
	s.queued[own.queue] = own
	return own, ahead
}

// wait returns when the request is over, its caller has an outcome, or the limit has passed.
func (a *attempt) wait(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.over:
	case <-a.decided:
	case <-timer.C:
	}
}

// leave lets the next requests go.
func (s *single) leave(l line, over chan struct{}, own *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own != nil && s.queued[own.queue] == own {
		delete(s.queued, own.queue)
	}
	if s.last[l] == over {
		delete(s.last, l)
	}
	close(over)
}
