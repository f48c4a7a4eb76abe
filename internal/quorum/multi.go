package quorum

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
)

// The limits of a MultiLock. Its simultaneous requests to a node must fit into the node's queue several times, beside
// other calls.
const (
	MaxLocks = 1000
	MaxNames = 64 << 10 // bytes
)

// All returns the lock that holds all of the members, at the client of the first.
func All(name string, members []*Lock, set options.Settings) (*Lock, error) {
	trees := make([]core.Tree, len(members))
	var cells []Cell
	locks, size := 0, 0
	for i, m := range members {
		if m.err != nil {
			return nil, fmt.Errorf("quorumlock: member %d: %w", i+1, m.err)
		}
		if guard := m.set.MaxTTL; guard > 0 && guard != set.MaxTTL {
			return nil, errs.Misusef("quorumlock: multilock.New: member %d has WithRestartGuard(%v): give it to multilock.New", i+1, guard)
		}
		locks, size = locks+m.locks, size+m.size
		trees[i] = m.tree
		cells = append(cells, m.cells...)
	}
	switch {
	case locks > MaxLocks:
		return nil, errs.Misusef("quorumlock: multilock.New: %d locks, those of members included: use at most %d", locks, MaxLocks)
	case size > MaxNames:
		return nil, errs.Misusef("quorumlock: multilock.New: the names of its %d locks have %d bytes with their prefixes: use at most %d", locks, size, MaxNames)
	}
	if err := eachOnce(members); err != nil {
		return nil, err
	}
	l := New(members[0].client, name, core.Every(trees), cells, set, nil)
	l.locks, l.size, l.clients = locks, size, ClientsOf(members)
	l.lock.Slots = nil
	first := 0
	for _, m := range members {
		for _, s := range m.lock.Slots {
			s.First += first
			l.lock.Slots = append(l.lock.Slots, s)
		}
		first += len(m.cells)
	}
	l.try.Slots, l.terms.Several = l.lock.Slots, true
	return l, l.err
}

// ClientsOf returns the clients of members, each once, that of the first member first.
func ClientsOf(members []*Lock) []*Client {
	var all []*Client
	for _, m := range members {
		for _, c := range m.clients {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// eachOnce refuses members with the same name at the same node.
func eachOnce(members []*Lock) error {
	type place struct {
		node Node
		name string
	}
	taken := make(map[place]bool)
	for i, m := range members {
		for _, c := range m.cells {
			p := place{c.Node, c.Name}
			if taken[p] {
				return errs.Misusef("quorumlock: member %d (%q) needs %q at node %s, as an earlier member does: use each lock once", i+1, m.name, c.Name, c.Node)
			}
			taken[p] = true
		}
	}
	return nil
}
