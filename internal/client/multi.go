package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
)

// The limits of a MultiLock. The queue of a node must have room for the requests of several
// MultiLocks, beside other calls.
const (
	MaxLocks = 1000
	MaxNames = 64 << 10 // bytes
)

// perLock is the time that a busy node may take for the call of one lock. The node timeout must
// suffice for all locks of a MultiLock.
const perLock = 100 * time.Microsecond

// All returns the lock of all members, at the client of the first.
func All(name string, members []*Lock, set options.Settings) (*Lock, error) {
	trees := make([]core.Tree, len(members))
	var cells []Cell
	names, locks, size := make([]string, len(members)), 0, 0
	for i, m := range members {
		if m.err != nil {
			return nil, fmt.Errorf("quorumlock: member %d: %w", i+1, m.err)
		}
		if m.set.Data != "" {
			return nil, fmt.Errorf("quorumlock: member %d: %w", i+1, options.NoData("a MultiLock"))
		}
		if guard := m.set.MaxTTL; guard > 0 && guard != set.MaxTTL {
			return nil, errs.Misusef("quorumlock: multilock.New: member %d has WithRestartGuard(%v): give it to multilock.New", i+1, guard)
		}
		locks, size = locks+m.locks, size+m.size
		trees[i], names[i] = m.config.Tree, m.names
		cells = append(cells, m.cells...)
	}
	switch {
	case set.Data != "":
		return nil, options.NoData("a MultiLock")
	case locks > MaxLocks:
		return nil, errs.Misusef("quorumlock: multilock.New: %d locks, those of members included: use at most %d", locks, MaxLocks)
	case size > MaxNames:
		return nil, errs.Misusef("quorumlock: multilock.New: the names of its %d locks have %d bytes with their prefixes: use at most %d", locks, size, MaxNames)
	}
	places, err := eachOnce(members)
	if err != nil {
		return nil, err
	}
	most := int(set.NodeTimeout / perLock)
	for n, many := range perNode(cells) {
		if many > most {
			return nil, errs.Misusef("quorumlock: multilock.New: %d locks at node %s, and WithNodeTimeout(%v), which is TTL/20 by default: use at most %d locks, or a node timeout of %v or more",
				many, n, set.NodeTimeout, most, time.Duration(many)*perLock)
		}
	}
	l := New(members[0].client, name, NewForm(core.Every(trees), set), cells, nil)
	l.names = strings.Join(names, "\n")
	l.locks, l.size, l.clients, l.places = locks, size, ClientsOf(members), places
	l.need = members[0].need
	for _, m := range members[1:] {
		if m.need != l.need || !slices.Equal(m.nodes, members[0].nodes) {
			l.need = 0
		}
	}
	l.config.Slots = nil
	first := 0
	for _, m := range members {
		for _, s := range m.config.Slots {
			s.First += first
			l.config.Slots = append(l.config.Slots, s)
		}
		first += len(m.cells)
	}
	l.terms.Several = true
	return l, l.err
}

// perNode returns the number of cells of each node.
func perNode(cells []Cell) map[Node]int {
	all := make(map[Node]int)
	for _, c := range cells {
		all[c.Node]++
	}
	return all
}

// ClientsOf returns the clients of members, each once, in the order of the members.
func ClientsOf(members []*Lock) []*Client {
	var all []*Client
	for _, m := range members {
		for _, c := range slices.Concat([]*Client{m.client}, m.clients) {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// eachOnce returns the index of each cell. It refuses members with the same name at the same node.
func eachOnce(members []*Lock) (map[Cell]int, error) {
	places := make(map[Cell]int)
	for i, m := range members {
		for _, c := range m.cells {
			if _, taken := places[at(c)]; taken {
				return nil, errs.Misusef("quorumlock: member %d (%q) needs %q at node %s, as an earlier member does: use each lock once", i+1, m.name, c.Name, c.Node)
			}
			places[at(c)] = len(places)
		}
	}
	return places, nil
}
