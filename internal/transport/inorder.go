package transport

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// single sends the calls to a client that New was given. Those of one waiter go one after the other, since each takes a
// connection of its own from the client's pool, and must not overtake the one before it.
type single struct {
	node *Node

	mu   sync.Mutex
	last map[line]chan struct{} // of the latest request of a line; closed when it is over
}

// request is what one call of Do asks for.
type request struct {
	ctx      context.Context
	line     line
	deadline time.Time
	calls    []wire.Call
	answer   func([]wire.Reply)
}

// line is where the calls of one waiter go one after the other.
type line struct {
	lane   quorum.Lane
	waiter string // empty for calls that need no order
}

func (s *single) do(r *request) {
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

// run sends a request once the one before it is over, unless its deadline comes first. It returns after that one in any case.
func (s *single) run(r *request, before <-chan struct{}) {
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
