package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// Inspection is the state of a lock, at a quorum and at each node.
type Inspection struct {
	// State is the state at a quorum of the nodes. It has the owner, the readers, the slots and the
	// waiters that a quorum has, the permits that most nodes have, the data that most nodes of the
	// owner have, and the highest token. The owner is empty if no owner has a quorum. The TTL is the
	// time for which a quorum keeps the lock without renewal. The queue is in the order of the
	// tickets.
	State quorumlock.State `json:"state"`
	Nodes []NodeState      `json:"nodes"` // in the order of the client's nodes
}

// NodeState is the state of a lock at one node, or the failure of that node.
type NodeState struct {
	Node  string           `json:"node"`
	State quorumlock.State `json:"state"`
	Err   error            `json:"error,omitempty"` // a *quorumlock.NodeError, or nil
}

// Inspect reads the state of a lock from all nodes: its holders, hold count, TTL, last fencing token
// and queue. The lock may be a Mutex, an RWMutex or a Semaphore. Pass the options with which the
// lock was made, such as WithPrefix. Each request to a node ends with ctx, or after the node's
// timeout. Inspect changes nothing on the nodes.
//
// If fewer nodes than the quorum answered, Inspect returns a *[quorumlock.QuorumError] along with
// the inspection. If the name is a semaphore's at some nodes, and held as another kind at others,
// the fewer of them count as failed, with [quorumlock.ErrWrongKind].
func (c *Client) Inspect(ctx context.Context, name string, opts ...quorumlock.Option) (Inspection, error) {
	m := c.Mutex(name, opts...)
	if m.err != nil {
		return Inspection{}, m.err
	}
	return c.inspect(ctx, m)
}

// inspect is Inspect for the lock of any kind with the name of m.
func (c *Client) inspect(ctx context.Context, m *Mutex) (Inspection, error) {
	in, semaphore := Inspection{Nodes: make([]NodeState, len(c.nodes))}, make([]bool, len(c.nodes))
	err := c.askAll(m.quorum, func(i int, n *node.Node) (err error) {
		in.Nodes[i].Node = n.String()
		in.Nodes[i].State, semaphore[i], err = transport.Of(n).InspectKind(ctx, m.key)
		in.Nodes[i].Err = err
		return err
	})
	if differ(in.Nodes, semaphore) && err == nil {
		err = tooFew(in.Nodes, m.quorum)
	}
	in.State = agreed(in.Nodes, m.quorum)
	return in, err
}

// differ makes the states of the fewer nodes failures if a name is a semaphore's at some nodes and
// held as another kind at others.
func differ(nodes []NodeState, semaphore []bool) bool {
	slots, others := 0, 0
	for i, n := range nodes {
		if semaphore[i] {
			slots++
		} else if n.State.Held() {
			others++
		}
	}
	if slots == 0 || others == 0 {
		return false
	}
	for i := range nodes {
		if n := &nodes[i]; semaphore[i] == (slots <= others) && (semaphore[i] || n.State.Held()) {
			n.State = quorumlock.State{}
			n.Err = &quorumlock.NodeError{Node: n.Node, Err: fmt.Errorf("%w: a semaphore at some nodes, and another kind at others: use another name", quorumlock.ErrWrongKind)}
		}
	}
	return true
}

// tooFew returns the error of an inspection if fewer nodes than the quorum have a state.
func tooFew(nodes []NodeState, quorum int) error {
	e := &quorumlock.QuorumError{Granted: len(nodes), Needed: quorum}
	for _, n := range nodes {
		if failed, ok := errors.AsType[*quorumlock.NodeError](n.Err); ok {
			e.Granted--
			e.Nodes = append(e.Nodes, failed)
		}
	}
	if e.Granted >= quorum {
		return nil
	}
	return e
}

// agreed returns the state at a quorum of the nodes.
func agreed(nodes []NodeState, quorum int) quorumlock.State {
	var s quorumlock.State
	most := 0 // nodes with the same number of permits
	for _, n := range nodes {
		s.Token = max(s.Token, n.State.Token)
		count, hold, same := 0, 0, 0
		for _, other := range nodes {
			if other.State.Permits == n.State.Permits {
				same++
			}
			if n.State.Owner != "" && other.State.Owner == n.State.Owner {
				count, hold = count+1, max(hold, other.State.HoldCount)
			}
		}
		if count >= quorum {
			s.Owner, s.HoldCount = n.State.Owner, hold
		}
		if n.State.Permits > 0 && same > most {
			s.Permits, most = n.State.Permits, same
		}
	}
	s.Data = mostData(nodes, s.Owner)
	s.Slots = quorumSlots(nodes, quorum)
	switch {
	case len(s.Slots) > 0:
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

// mostData returns the data that most of the nodes have for the owner. A node may lack it for a
// moment after a grant, or have the former value of a leader.
func mostData(nodes []NodeState, owner quorumlock.Owner) (data string) {
	count := make(map[string]int)
	for _, n := range nodes {
		if d := n.State.Data; owner != "" && n.State.Owner == owner && d != "" {
			if count[d]++; count[d] > count[data] {
				data = d
			}
		}
	}
	return data
}

// quorumQueue returns the waiters that are queued at a quorum of the nodes.
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

// quorumWaiting returns the greatest length that the queues of a quorum of the nodes reach.
func quorumWaiting(nodes []NodeState, quorum int) int {
	lengths := make([]int, len(nodes))
	for i, n := range nodes {
		lengths[i] = n.State.Waiting
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-quorum]
}

// quorumReaders returns the owners that share the lock at a quorum of the nodes.
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

// quorumSlots returns the slots that one owner has at a quorum of the nodes.
func quorumSlots(nodes []NodeState, quorum int) (slots []quorumlock.Slot) {
	tokens := make(map[quorumlock.Slot]uint64) // the highest token of each slot and owner
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

// quorumTTL returns the longest time for which a quorum of the nodes keeps a key with these TTLs.
// It returns 0 if there are fewer TTLs than the quorum.
func quorumTTL(ttls []time.Duration, quorum int) time.Duration {
	if len(ttls) < quorum {
		return 0
	}
	slices.Sort(ttls)
	return ttls[len(ttls)-quorum]
}

// ForceUnlock frees the lock of that name at every node, whoever holds it. It frees all readers of
// an RWMutex, and all slots of a Semaphore. The holder learns of it at its next renewal, and may
// continue its work until then: only the fencing token stops its writes. Pass the options with
// which the lock was made, such as WithPrefix.
//
// Each request to a node ends with ctx, or after the node's timeout. ForceUnlock returns a
// *[quorumlock.QuorumError] if fewer nodes than the quorum confirmed; the others have freed the
// lock.
func (c *Client) ForceUnlock(ctx context.Context, name string, opts ...quorumlock.Option) error {
	m := c.Mutex(name, opts...)
	if m.err != nil {
		return m.err
	}
	return c.askAll(m.quorum, func(_ int, n *node.Node) error {
		_, err := transport.Of(n).ForceRelease(ctx, m.key)
		return err
	})
}

// ForceUnlockOwner frees the share of one owner at every node: the holder, one reader, or one slot.
// The owner is as in [Client.Inspect]. It returns [quorumlock.ErrNotHeld] if no node that answered
// has the owner. It returns a *[quorumlock.QuorumError] if fewer nodes than the quorum answered;
// the others have freed the owner's share. The holder learns of it as after [Client.ForceUnlock].
//
// An owner is used for one hold, so a late call ends no other hold. (A thread of Redisson keeps its
// owner from hold to hold: the call frees the current hold.)
func (c *Client) ForceUnlockOwner(ctx context.Context, name string, owner quorumlock.Owner, opts ...quorumlock.Option) error {
	m := c.Mutex(name, opts...)
	if m.err != nil {
		return m.err
	}
	found := make([]bool, len(c.nodes))
	err := c.askAll(m.quorum, func(i int, n *node.Node) (err error) {
		found[i], err = transport.Of(n).ReleaseOwner(ctx, m.key, owner)
		return err
	})
	if err == nil && !slices.Contains(found, true) {
		return quorumlock.ErrNotHeld
	}
	return err
}

// askAll calls ask for all nodes at once and waits for all. It returns an error if fewer than
// needed succeeded.
func (c *Client) askAll(needed int, ask func(i int, n *node.Node) error) error {
	errs := make([]error, len(c.nodes))
	var g errgroup.Group
	for i, n := range c.nodes {
		g.Go(func() error {
			errs[i] = ask(i, n)
			return nil // one node's failure must not stop the others
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
