package transport

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// single sends calls through the client that New was given. Each call takes its own connection from
// the client's pool. So a request is sent when those before it in its lines are over: calls of one
// waiter run in order, and the first few callers of a local queue join the node's queue in order.
type single struct {
	node *Node

	mu   sync.Mutex
	last map[line]chan struct{} // by line, the end of the latest request: closed when it is over
}

// line identifies a sequence of requests in one lane: those of a waiter, or those with one
// [wire.Entry.Line].
type line struct {
	lane   quorum.Lane
	waiter string
	of     any // the Line; only if waiter is empty
}

// linesOf returns the lines of a request.
func linesOf(lane quorum.Lane, calls []wire.Call) (lines []line) {
	if waiter := calls[0].Waiter(); waiter != "" {
		lines = append(lines, line{lane: lane, waiter: waiter})
	}
	for i := range calls {
		if of := calls[i].Line(); of != nil { // all attempts of a request have the same
			return append(lines, line{lane: lane, of: of})
		}
	}
	return lines
}

// do sends the calls once the requests before them in their lines are over, unless their deadline
// comes first.
func (s *single) do(ctx context.Context, lines []line, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	over := make(chan struct{})
	before := s.enter(lines, over)
	err := s.node.locks.Go(func() {
		defer s.leave(lines, over)
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		for _, b := range before {
			defer func() { <-b }() // the next request waits for this one, too
			select {
			case <-b:
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
		s.leave(lines, over)
		answer(unanswered(calls, s.node.Failure(err, false)))
	}
}

// enter makes a request the latest of its lines, and returns the ends of those before it.
func (s *single) enter(lines []line, over chan struct{}) (before []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[line]chan struct{})
	}
	for _, l := range lines {
		if latest := s.last[l]; latest != nil {
			before = append(before, latest)
		}
		s.last[l] = over
	}
	return before
}

// leave lets the next requests of the lines go.
func (s *single) leave(lines []line, over chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		if s.last[l] == over {
			delete(s.last, l)
		}
	}
	close(over)
}
