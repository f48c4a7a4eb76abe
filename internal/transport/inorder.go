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

// singleRequest is a set of calls with one deadline and one answer.
type singleRequest struct {
	ctx      context.Context
	line     line
	deadline time.Time
	calls    []wire.Call
	answer   func([]wire.Reply)
}

// line is the order of one waiter's calls in one lane.
type line struct {
	lane   quorum.Lane
	waiter string // empty for calls that need no order
}

func (s *single) do(r *singleRequest) {
	over := make(chan struct{})
	before := s.enter(r.line, over)
	err := s.node.locks.Go(func() {
		s.run(r, before)
		s.leave(r.line, over)
	})
	if err != nil {
		s.leave(r.line, over)
		r.answer(s.node.unanswered(len(r.calls), err))
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

// run sends a request once the one before it is over, unless its deadline comes first. In both
// cases it returns after the one before.
func (s *single) run(r *singleRequest, before <-chan struct{}) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), r.deadline)
	defer cancel()
	if before != nil {
		defer func() { <-before }()
		select {
		case <-before:
		case <-ctx.Done():
		}
	}
	if !r.deadline.After(time.Now()) {
		replies := make([]wire.Reply, len(r.calls))
		for i := range replies {
			replies[i].Err = s.node.unsent
		}
		r.answer(replies)
		return
	}
	r.answer(s.node.sendAlone(ctx, r.calls))
}
