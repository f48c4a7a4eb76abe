package quorum

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// health records which nodes are up, and their round trips. The zero value is ready to use.
type health struct {
	mu    sync.Mutex
	nodes map[Node]*nodeHealth
}

type nodeHealth struct {
	trip   time.Duration // average of the recent round trips; 0 before the first
	best   time.Duration // shortest round trip after since; 0 before the first
	before time.Duration // shortest in the period before since, at least bestFor long; 0 if unknown
	failed bool          // the last round trip has failed
	at     time.Time     // time of the last failure
	since  time.Time     // start of the period of best
	down   bool          // logged as down; a success upAfter after the last failure resets it
}

// upAfter is the time without a failure after which a node is reported as up. A server without
// memory refuses acquires, but runs releases. Without this pause, each lock would log two lines.
const upAfter = time.Second

// bestFor is the least time for which the shortest round trip to a node counts.
const bestFor = time.Minute

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

// answered records the outcome of a round trip. A success sends the node's pending releases.
func (c *Client) answered(n Node, replies []wire.Reply, took time.Duration, set *options.Settings) {
	var err error
	for _, r := range replies {
		if r.Err != nil && isDown(r.Err) && !isOvertaken(r.Err) {
			err = r.Err
		}
	}
	observer, logger := c.listeners(set)
	if observer != nil {
		observer.Observe(context.Background(), quorumlock.Event{Kind: quorumlock.NodeAsked, Node: n.String(), Took: took, Err: err})
	}
	if up, down := c.health.change(n, err, took); up || down {
		// A slow log, or one that uses a lock, must not delay the node's replies.
		c.start(func() {
			kind := quorumlock.NodeUp
			if up {
				logger.Info("quorumlock: node up", "node", n)
			} else {
				kind = quorumlock.NodeDown
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

// change records a round trip, and reports whether the node is newly up or down.
func (h *health) change(n Node, err error, took time.Duration) (up, down bool) {
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
	if err == nil {
		if s.trip == 0 {
			s.trip = took
		}
		s.trip += (took - s.trip) / 4
		if now := time.Now(); now.Sub(s.since) > bestFor {
			s.before, s.best, s.since = s.best, took, now
		}
		s.best = min(s.best, took)
		s.failed = false
		up = s.down && time.Since(s.at) >= upAfter
		s.down = s.down && !up
		return up, false
	}
	down = !s.down
	s.failed, s.at, s.down = true, time.Now(), true
	return false, down
}

// roundTrip returns the recent round trip to a node: 0 if all have failed, unasked without any.
func (h *health) roundTrip(n Node, unasked time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	if s == nil {
		return unasked
	}
	return s.trip
}

// nearest returns the recent and the shortest round trip to the nearest majority of the nodes. Both
// are 0 if unknown.
func (h *health) nearest(nodes []Node) (trip, best time.Duration) {
	var trips, bests []time.Duration
	h.mu.Lock()
	for _, n := range nodes {
		s := h.nodes[n]
		if s == nil || s.trip == 0 {
			continue
		}
		trips, bests = append(trips, s.trip), append(bests, s.best)
		if s.before > 0 {
			bests[len(bests)-1] = min(s.best, s.before)
		}
	}
	h.mu.Unlock()
	majority := len(nodes) / 2
	if len(trips) <= majority {
		return 0, 0
	}
	slices.Sort(trips)
	slices.Sort(bests)
	return trips[majority], bests[majority]
}

// answers reports whether the last round trip to a node succeeded; false if there was none.
func (h *health) answers(n Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	return s != nil && !s.failed
}

// isDown reports whether a call failed because the node does not serve: the same call may succeed
// later. Otherwise the node refused this call.
func isDown(err error) bool {
	if errors.Is(err, quorumlock.ErrClosed) || errors.Is(err, quorumlock.ErrNotALock) {
		return false
	}
	said, ok := errors.AsType[interface { // go-redis's form of a server's error
		error
		RedisError()
	}](err)
	if !ok {
		return true
	}
	return passing.MatchString(said.Error())
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

// passing matches the errors of a temporarily unavailable server, by their codes. The rest of a
// text may contain the name of a lock or a user, and is ignored.
var passing = regexp.MustCompile(`^((LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|BUSY|OOM|MISCONF)\b|ERR max number of clients)`)
