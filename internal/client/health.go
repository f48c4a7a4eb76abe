package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// health records which nodes are up, and their round trips. The zero value is ready to use.
type health struct {
	mu    sync.Mutex
	nodes map[Node]*nodeHealth
}

type nodeHealth struct {
	engine.Health
	err error // of the last round trip; nil if it succeeded
}

// Tell sets the Observer and the Logger for the client's nodes, whichever lock calls them. Without
// one, that of the lock is used. Call Tell before c is used.
func (c *Client) Tell(o quorumlock.Observer, l *slog.Logger) { c.observer, c.logger = o, l }

// listeners returns the Observer and the Logger for a node that a lock with these options called.
func (c *Client) listeners(set *options.Settings) (quorumlock.Observer, *slog.Logger) {
	o, l := c.observer, c.logger
	if o == nil {
		o = set.Observer
	}
	if l == nil || l.Handler() == slog.DiscardHandler {
		l = set.Logger
	}
	return o, l
}

// answered records the outcome of a round trip, that of a first attempt if placed. sent and now are
// by the monotonic clock. A success sends
// the node's pending releases.
func (c *Client) answered(n Node, replies []wire.Reply, sent, now time.Duration, placed bool, set *options.Settings) {
	took, err := now-sent, error(nil)
	for _, r := range replies {
		if r.Err != nil && isDown(r.Err) && !isOvertaken(r.Err) {
			err = r.Err
		}
	}
	up, down, fails := c.health.change(n, err, took, now)
	if placed {
		c.landed(n, replies, took, now)
	}
	if fails { // after a success
		c.refuseTries()
	}
	observer, logger := c.listeners(set)
	if observer != nil {
		e := quorumlock.Event{Kind: quorumlock.EventNodeAsked, Node: n.String(), Took: took, Err: err}
		e.InFlight, e.Limit, e.Unsent = c.admission.at(n)
		observer.Observe(context.Background(), e)
	}
	if up || down {
		c.tell(func() {
			kind := quorumlock.EventNodeUp
			if up {
				logger.Info("quorumlock: node up", "node", n)
			} else {
				kind = quorumlock.EventNodeDown
				logger.Warn("quorumlock: node down", "node", n, "error", err)
			}
			if observer != nil {
				observer.Observe(context.Background(), quorumlock.Event{Kind: kind, Node: n.String(), Err: err})
			}
		})
	}
	if err == nil {
		c.retryNow(n)
	}
}

// change records a round trip, and reports whether the node is newly up or down, and whether it
// fails after a success.
func (h *health) change(n Node, err error, took, now time.Duration) (up, down, fails bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	if s == nil {
		if h.nodes == nil {
			h.nodes = make(map[Node]*nodeHealth)
		}
		s = &nodeHealth{}
		h.nodes[n] = s
	}
	fails = err != nil && s.err == nil
	if s.err = err; err == nil {
		return s.Answered(took, now), false, false
	}
	return false, s.Failed(now), fails
}

// roundTrip returns the recent round trip to a node: 0 if all have failed, unasked without any.
func (h *health) roundTrip(n Node, unasked time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.nodes[n]; s != nil {
		return s.Trip(unasked)
	}
	return unasked
}

// nearest is engine.Nearest.
func (h *health) nearest(nodes []Node) (trip, best time.Duration) {
	all := make([]*engine.Health, len(nodes))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, n := range nodes {
		if s := h.nodes[n]; s != nil {
			all[i] = &s.Health
		}
	}
	return engine.Nearest(all)
}

// failures returns the errors of the nodes whose last round trip has failed.
func (h *health) failures() map[Node]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := make(map[Node]error)
	for n, s := range h.nodes {
		if s.err != nil {
			failed[n] = s.err
		}
	}
	return failed
}

// answers reports whether the last round trip to a node succeeded; false if there was none.
func (h *health) answers(n Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	return s != nil && s.Answers()
}

// isDown reports whether a call failed because the node does not serve, or the connection failed.
// The same call may succeed later. Otherwise the node refused this call.
func isDown(err error) bool {
	if errors.Is(err, quorumlock.ErrClosed) || wire.IsWrongUse(err) {
		return false
	}
	if wire.IsUnsent(err) {
		return true
	}
	r, ok := refusal.Of(err)
	return !ok || r.Kind == refusal.Passing
}

// isFinal reports whether a release that failed would fail again: the key is no lock, or the client
// is closed. Another refusal may be temporary.
func isFinal(err error) bool {
	return errors.Is(err, quorumlock.ErrClosed) || errors.Is(err, quorumlock.ErrNotALock)
}

// IsIncurable reports whether a node's error about the value beside a lock is permanent. The user
// lacks the permission for the key of the value, the server lacks a command, or the key has a value
// of another program.
func IsIncurable(err error) bool {
	r, _ := refusal.Of(err)
	return errors.Is(err, quorumlock.ErrNotALock) || r.Kind == refusal.Permission || r.Kind == refusal.Command
}

// isOvertaken reports whether a call was not run because a later one of its waiter has run. The
// node answered, so it is up. The call may have to be repeated.
func isOvertaken(err error) bool {
	_, ok := errors.AsType[interface {
		error
		Overtaken()
	}](err)
	return ok
}
