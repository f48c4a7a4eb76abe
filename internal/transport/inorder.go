package transport

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// single sends calls through the client that New was given. Each call takes its own connection from
// the client's pool, so the calls of one waiter are sent one after the other.
type single struct {
	node *Node

	mu   sync.Mutex
	last map[line]chan struct{} // by line, the end of the latest request: closed when it is over
}

// line is the order of one waiter's calls in one lane.
type line struct {
	lane   quorum.Lane
	waiter string // empty for calls that need no order
}

// do sends the calls once the request before them in their line is over, unless their deadline comes
// first.
func (s *single) do(ctx context.Context, l line, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	over := make(chan struct{})
	before := s.enter(l, over)
	err := s.node.locks.Go(func() {
		defer s.leave(l, over)
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		if before != nil {
			defer func() { <-before }() // the next request waits for this one, too
			select {
			case <-before:
			case <-ctx.Done():
			}
		}
		if deadline.After(time.Now()) {
			answer(s.node.sendAlone(ctx, calls))
		} else {
			answer(unanswered(calls, s.node.unsent))
		}
	})
	if err != nil {
		s.leave(l, over)
		answer(unanswered(calls, s.node.Failure(err, false)))
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

// leave lets the next request of the line go.
func (s *single) leave(l line, over chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[l] == over {
		delete(s.last, l)
	}
	close(over)
}
