package redlock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// Inspection is the state of a lock as the quorum sees it, and node by node.
type Inspection struct {
	// State is what a quorum of the nodes agrees on: its owner is empty if no owner has a quorum, its readers are those that
	// have one, its TTL is how long they keep it if they do not renew, and its token is the highest. Its queue has the
	// waiters that are queued at a quorum, in the order of their tickets.
	State quorumlock.State
	Nodes []NodeState // in the order of the client's nodes
}

// NodeState is what one node knows of a lock, or why it could not be asked.
type NodeState struct {
	Node  string
	State quorumlock.State
	Err   error // a *quorumlock.NodeError, or nil
}

// Inspect asks all nodes who holds the lock, how often, for how long yet, and for the last fencing
// token. It waits for each node until ctx is done, for the node's timeout at most. It returns a
// *[quorumlock.QuorumError] along with the inspection if fewer nodes answered than the quorum.
func (m *Mutex) Inspect(ctx context.Context) (Inspection, error) {
	if m.err != nil {
		return Inspection{}, m.err
	}
	in := Inspection{Nodes: make([]NodeState, len(m.client.nodes))}
	err := m.client.askAll(m.quorum, func(i int, n *node.Node) error {
		inspect := transport.Of(n).Inspect
		if m.permits > 0 {
			inspect = transport.Of(n).InspectSemaphore
		}
		s, err := inspect(ctx, m.key)
		in.Nodes[i] = NodeState{Node: n.String(), State: s, Err: err}
		return err
	})
	in.State = agreed(in.Nodes, m.quorum)
	return in, err
}

// Inspect is [Mutex.Inspect] for the lock of that name, with the client's options.
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	return c.Mutex(name).Inspect(ctx)
}

// agreed returns the state of the owner who holds at a quorum of the nodes.
func agreed(nodes []NodeState, quorum int) quorumlock.State {
	var s quorumlock.State
	for _, n := range nodes {
		s.Token, s.Permits = max(s.Token, n.State.Token), max(s.Permits, n.State.Permits)
		count, hold := 0, 0
		for _, other := range nodes {
			if n.State.Owner != "" && other.State.Owner == n.State.Owner {
				count, hold = count+1, max(hold, other.State.HoldCount)
			}
		}
		if count >= quorum {
			s.Owner, s.HoldCount = n.State.Owner, hold
		}
	}
	switch {
	case slices.ContainsFunc(nodes, func(n NodeState) bool { return len(n.State.Slots) > 0 }):
		s.Slots = quorumSlots(nodes, quorum)
		for _, slot := range s.Slots {
			s.TTL = max(s.TTL, slot.TTL)
		}
	case s.Owner != "":
		var ttls []time.Duration
		for _, n := range nodes {
			if n.State.Owner == s.Owner {
				ttls = append(ttls, n.State.TTL)
			}
		}
		s.TTL = quorumTTL(ttls, quorum)
	default:
		s.Readers = quorumReaders(nodes, quorum)
		for _, r := range s.Readers {
			s.TTL = max(s.TTL, r.TTL)
		}
	}
	s.Queue = quorumQueue(nodes, quorum)
	s.Waiting = quorumWaiting(nodes, quorum)
	return s
}

// quorumQueue returns those that are queued at a quorum of the nodes.
func quorumQueue(nodes []NodeState, quorum int) []quorumlock.Waiter {
	count := make(map[quorumlock.Owner]int)
	waiters := make(map[quorumlock.Owner]quorumlock.Waiter)
	for _, n := range nodes {
		for _, w := range n.State.Queue {
			count[w.Owner]++
			w.Callers = max(w.Callers, waiters[w.Owner].Callers)
			waiters[w.Owner] = w
		}
	}
	var queue []quorumlock.Waiter
	for o, w := range waiters {
		if count[o] >= quorum {
			queue = append(queue, w)
		}
	}
	slices.SortFunc(queue, func(a, b quorumlock.Waiter) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner))
	})
	return queue
}

// quorumWaiting returns the greatest length that the queues of a quorum of the nodes have at least.
func quorumWaiting(nodes []NodeState, quorum int) int {
	lengths := make([]int, len(nodes))
	for i, n := range nodes {
		lengths[i] = n.State.Waiting
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-quorum]
}

// quorumReaders returns those that share the lock at a quorum of the nodes.
func quorumReaders(nodes []NodeState, quorum int) (readers []quorumlock.Reader) {
	ttls := make(map[quorumlock.Owner][]time.Duration)
	for _, n := range nodes {
		for _, r := range n.State.Readers {
			ttls[r.Owner] = append(ttls[r.Owner], r.TTL)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(ttls)) {
		if ttl := quorumTTL(ttls[o], quorum); ttl > 0 {
			readers = append(readers, quorumlock.Reader{Owner: o, TTL: ttl})
		}
	}
	return readers
}

// quorumSlots returns the slots that somebody has at a quorum of the nodes.
func quorumSlots(nodes []NodeState, quorum int) (slots []quorumlock.Slot) {
	tokens := make(map[quorumlock.Slot]uint64) // the highest of each slot and owner
	ttls := make(map[quorumlock.Slot][]time.Duration)
	for _, n := range nodes {
		for _, s := range n.State.Slots {
			key := quorumlock.Slot{Number: s.Number, Owner: s.Owner}
			tokens[key] = max(tokens[key], s.Token)
			ttls[key] = append(ttls[key], s.TTL)
		}
	}
	for s, token := range tokens {
		s.TTL = quorumTTL(ttls[s], quorum)
		if s.Token = token; s.TTL > 0 {
			slots = append(slots, s)
		}
	}
	slices.SortFunc(slots, func(a, b quorumlock.Slot) int { return cmp.Compare(a.Number, b.Number) })
	return slots
}

// quorumTTL is the longest time for which a quorum of the nodes keeps what these have; 0 if fewer have it.
func quorumTTL(ttls []time.Duration, quorum int) time.Duration {
	if len(ttls) < quorum {
		return 0
	}
	slices.Sort(ttls)
	return ttls[len(ttls)-quorum]
}

// ForceUnlock frees the lock at every node, whoever holds it. The holder learns of it when it next
// renews, and may be at work until then: what it writes is stopped by its fencing token only. It returns
// a *[quorumlock.QuorumError] if fewer nodes confirmed than the quorum.
func (m *Mutex) ForceUnlock(ctx context.Context) error {
	if m.err != nil {
		return m.err
	}
	return m.client.askAll(m.quorum, func(_ int, n *node.Node) error {
		force := transport.Of(n).ForceRelease
		if m.permits > 0 {
			force = transport.Of(n).ForceReleaseSemaphore
		}
		_, err := force(ctx, m.key)
		return err
	})
}

// ForceUnlockOwner frees the lock at every node, but only what that owner has of it, as [Mutex.Inspect] shows the owner: the holder, one
// reader, or one slot. The owner of a hold is used once, so a late call frees nobody else's hold: it returns
// [quorumlock.ErrNotHeld] if the owner has the lock at none of the nodes that answered. (A thread of Redisson's keeps its owner from hold
// to hold: of these, the call frees the current one.) The holder learns of it as ForceUnlock says. It returns a
// *[quorumlock.QuorumError] if fewer nodes answered than the quorum; those that did have freed it.
func (m *Mutex) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	if m.err != nil {
		return m.err
	}
	found := make([]bool, len(m.client.nodes))
	err := m.client.askAll(m.quorum, func(i int, n *node.Node) (err error) {
		found[i], err = transport.Of(n).ReleaseOwner(ctx, m.key, owner, m.permits > 0)
		return err
	})
	if err == nil && !slices.Contains(found, true) {
		return quorumlock.ErrNotHeld
	}
	return err
}

// askAll calls ask for all nodes at once, waits for all, and returns an error if fewer than needed
// succeeded.
func (c *Client) askAll(needed int, ask func(i int, n *node.Node) error) error {
	errs := make([]error, len(c.nodes))
	var g errgroup.Group
	for i, n := range c.nodes {
		g.Go(func() error {
			errs[i] = ask(i, n)
			return nil // one node's failure stops none of the others
		})
	}
	_ = g.Wait()
	e := &quorumlock.QuorumError{Granted: len(c.nodes), Needed: needed}
	for _, err := range errs {
		if err == nil {
			continue
		}
		e.Granted--
		n, ok := errors.AsType[*quorumlock.NodeError](err)
		if !ok {
			return err // wrong at every node alike, such as an empty name
		}
		e.Nodes = append(e.Nodes, n)
	}
	if e.Granted < needed {
		return e
	}
	return nil
}
