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

// health knows which nodes are up and how fast they answer. The zero value is ready to use.
type health struct {
	mu    sync.Mutex
	nodes map[Node]*nodeHealth
}

type nodeHealth struct {
	trip   time.Duration // the round trip, averaged over the last few
	best   time.Duration // the shortest round trip since the time in since; 0 if there was none
	before time.Duration // the shortest in the bestFor before that; 0 if unknown
	failed bool          // the last round trip
	at     time.Time     // when one failed last
	since  time.Time     // when best was last begun
	down   bool          // the node is logged as down: once, however many round trips fail
}

// upAfter is how long a node must not have failed to be said to be up. A server that is out of memory refuses every
// acquire, and does every release: each lock would be two lines.
const upAfter = time.Second

// bestFor is for how long the shortest round trip to a node counts, at least.
const bestFor = time.Minute

// Tell sets who learns of the nodes of the client, whichever lock asks them. It is called before c is used. Without an Observer
// or a Logger that is the one of the lock.
func (c *Client) Tell(o quorumlock.Observer, l *slog.Logger) { c.observer, c.logger = o, l }

// listeners returns who learns of a node that a lock with these options asked.
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

// answered takes the outcome of a round trip: it records the node's health, and sends the pending releases of a node that
// is up.
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
		c.start(func() { // a log that is slow, or that uses a lock itself, must not hold up the answers of a node
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

// change reports whether the node is up, or down, from now on, and was not before.
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

// roundTrip returns how long round trips to a node took lately. It returns 0 if all have failed so far, and unasked if
// there was none.
func (h *health) roundTrip(n Node, unasked time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	if s == nil {
		return unasked
	}
	return s.trip
}

// nearest returns the round trip to the nearest majority of some nodes, as it was lately and at its best. Both are 0 if it is unknown.
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

// answers reports whether there was a round trip to a node, and the last did well.
func (h *health) answers(n Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.nodes[n]
	return s != nil && !s.failed
}

// isDown reports whether a call failed because the node does not serve, rather than for what the call asked: the same
// call may do well later.
func isDown(err error) bool {
	if errors.Is(err, quorumlock.ErrClosed) || errors.Is(err, quorumlock.ErrNotALock) {
		return false
	}
	said, ok := errors.AsType[interface { // what a server answered, as go-redis has it
		error
		RedisError()
	}](err)
	if !ok {
		return true
	}
	return passing.MatchString(said.Error())
}

// isOvertaken reports whether the node refused to run a call after a later one of its waiter. It answered, so it is up; the call may
// have to be repeated all the same.
func isOvertaken(err error) bool {
	_, ok := errors.AsType[interface {
		error
		Overtaken()
	}](err)
	return ok
}

// passing matches the errors of a temporarily unavailable server, by the code at the beginning. The rest of a text may repeat the
// name of a lock or a user, and is ignored.
var passing = regexp.MustCompile(`^((LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|BUSY|OOM|MISCONF)\b|ERR max number of clients)`)
