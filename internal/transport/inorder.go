package transport

import (
	"context"
	"slices"
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
	busy map[line][]*errand // where one is under way: those behind it
}

// errand is what one call of Do asks for.
type errand struct {
	ctx      context.Context
	line     line
	deadline time.Time
	calls    []wire.Call
	answer   func([]wire.Reply)
	timer    *time.Timer // answers it at its deadline while it waits
}

// line is where the calls of one waiter go one after the other.
type line struct {
	lane   quorum.Lane
	waiter string // empty for calls that need no order
}

func (s *single) do(e *errand) {
	if e.line.waiter != "" && s.queue(e) {
		return
	}
	if err := s.node.locks.Go(func() { s.run(e) }); err != nil {
		for ; e != nil; e = s.next(e.line) {
			e.answer(s.node.unanswered(len(e.calls), err))
		}
	}
}

// queue puts an errand behind the one that is under way, if there is one.
func (s *single) queue(e *errand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind, busy := s.busy[e.line]
	if !busy {
		if s.busy == nil {
			s.busy = make(map[line][]*errand)
		}
		s.busy[e.line] = nil
		return false
	}
	s.busy[e.line] = append(behind, e)
	e.timer = time.AfterFunc(time.Until(e.deadline), func() { s.expire(e) })
	return true
}

// expire answers an errand that has waited until its deadline.
func (s *single) expire(e *errand) {
	s.mu.Lock()
	behind := s.busy[e.line]
	i := slices.Index(behind, e)
	if i >= 0 {
		s.busy[e.line] = slices.Delete(behind, i, i+1)
	}
	s.mu.Unlock()
	if i >= 0 {
		e.answer(s.late(e))
	}
}

func (s *single) late(e *errand) []wire.Reply {
	replies := make([]wire.Reply, len(e.calls))
	for i := range replies {
		replies[i].Err = s.node.unsent
	}
	return replies
}

// run runs an errand, and those that come behind it.
func (s *single) run(e *errand) {
	for ; e != nil; e = s.next(e.line) {
		if !e.deadline.After(time.Now()) {
			e.answer(s.late(e))
			continue
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(e.ctx), e.deadline)
		replies := s.node.sendAlone(ctx, e.calls)
		cancel()
		e.answer(replies)
	}
}

// next returns the errand that comes next, or nil.
func (s *single) next(l line) *errand {
	if l.waiter == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := s.busy[l]
	if len(behind) == 0 {
		delete(s.busy, l)
		return nil
	}
	e := behind[0]
	s.busy[l] = behind[1:]
	e.timer.Stop()
	return e
}
