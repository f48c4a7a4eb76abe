package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/dialect"
)

// Cell is one name at one node.
type Cell struct {
	Node Node
	Name string
}

// Lock is a lock of any kind: cells, and the tree that says which of them make a quorum. It is
// immutable, but for what it has seen, and safe for concurrent use.
type Lock struct {
	client *Client
	name   string
	tree   core.Tree
	cells  []Cell
	nodes  []Node // of the cells, each once: what goes to one node goes together
	set    quorumlock.Settings

	terms dialect.Terms
	lock  core.Config // of calls of Lock
	try   core.Config // of calls of TryLock

	err error // what is wrong with the lock's name or options: its calls return it

	seenMu sync.Mutex
	seen   uint64    // the highest token seen
	seenAt time.Time // when it was seen first
	hinted uint64    // the last hint
}

// New returns a lock over cells. A non-nil err is returned by every call on it.
func New(client *Client, name string, tree core.Tree, cells []Cell, set quorumlock.Settings, err error) *Lock {
	l := &Lock{client: client, name: name, tree: tree, cells: cells, set: set, err: err}
	for i := 0; i < len(cells) && l.err == nil; i++ {
		l.err = quorumlock.CheckName(cells[i].Name)
		if n, ok := cells[i].Node.(interface{ CheckName(string) error }); ok && l.err == nil {
			l.err = n.CheckName(cells[i].Name)
		}
	}
	l.nodes = make([]Node, 0, len(cells))
	for _, c := range cells {
		if !slices.Contains(l.nodes, c.Node) {
			l.nodes = append(l.nodes, c.Node)
		}
	}
	for _, node := range l.nodes {
		if n, ok := node.(interface{ Guardable() error }); ok && set.MaxTTL > 0 && l.err == nil {
			l.err = n.Guardable()
		}
	}
	l.terms = dialect.TermsOf(&set)
	l.lock = core.Config{Tree: tree, TTL: set.TTL, HandTTL: l.terms.HandTTL, NodeTimeout: set.NodeTimeout, MaxHold: set.MaxHold, Drift: set.Drift, Renew: set.Renew}
	l.try = l.lock
	l.try.Tries = true
	return l
}

// All returns the lock that holds all of the members, at the client of the first.
func All(name string, members []*Lock, set quorumlock.Settings) (*Lock, error) {
	trees := make([]core.Tree, len(members))
	var cells []Cell
	for i, m := range members {
		if m.err != nil {
			return nil, fmt.Errorf("quorumlock: member %d: %w", i+1, m.err)
		}
		for _, c := range m.cells {
			if j := indexOf(cells, c); j >= 0 {
				return nil, fmt.Errorf("quorumlock: member %d (%q) needs %q at node %s, as an earlier member does: use each lock once", i+1, m.name, c.Name, c.Node)
			}
		}
		trees[i] = m.tree
		cells = append(cells, m.cells...)
	}
	l := New(members[0].client, name, core.Every(trees), cells, set, nil)
	return l, l.err
}

func indexOf(cells []Cell, c Cell) int {
	for i, d := range cells {
		if c == d {
			return i
		}
	}
	return -1
}

// Client returns the client that the lock belongs to.
func (l *Lock) Client() *Client { return l.client }

// Err returns what is wrong with the lock's name or options.
func (l *Lock) Err() error { return l.err }

// Name returns the lock's name.
func (l *Lock) Name() string { return l.name }

// same reports whether l and m are one lock: the same names at the same nodes, with the same quorum.
func (l *Lock) same(m *Lock) bool {
	if l == m {
		return true
	}
	if len(l.cells) != len(m.cells) || !l.tree.Equal(m.tree) {
		return false
	}
	for i := range l.cells {
		if l.cells[i] != m.cells[i] {
			return false
		}
	}
	return true
}

// sameHint is how far, in µs, a hint may be below the last one and still go on from it. A hint further below comes from a clock
// that was set back.
const sameHint = 1000

// hint is the least token that an attempt asks for: the wall clock in µs, or the highest token seen of this lock, which
// goes on from then as time does, if that is higher. With it the nodes mostly agree at once. One more than the token seen
// would not do: if the nodes forget their counters, somebody else may have been granted that token since. For the same
// reason, attempts in one microsecond have different hints. A node takes no hint that is far from its own clock.
func (l *Lock) hint() uint64 {
	now := l.client.now()
	l.seenMu.Lock()
	defer l.seenMu.Unlock()
	hint := uint64(max(now.UnixMicro(), 0))
	if l.seen > 0 {
		hint = max(hint, l.seen+1+uint64(max(now.Sub(l.seenAt).Microseconds(), 0)))
	}
	if hint <= l.hinted && l.hinted-hint < sameHint {
		hint = l.hinted + 1
	}
	l.hinted = hint
	return hint
}

func (l *Lock) saw(token uint64) {
	now := l.client.now()
	l.seenMu.Lock()
	defer l.seenMu.Unlock()
	if token > l.seen {
		l.seen, l.seenAt = token, now
	}
}

// TryLock is quorumlock.Locker's. A refusal is final if somebody has the lock at a quorum of the nodes, or is the first
// in the queue there. If several contenders have some nodes each, they all give these up and are queued by ticket. So
// one of them wins the next attempt, or the one after it.
func (l *Lock) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	for {
		if lease, err := l.reenter(ctx); lease != nil || err != nil {
			return lease, err
		}
		c := l.newCall(&l.try, l.client.nextTicket(), nil)
		if lease, err := c.run(ctx, ctx, nil); lease != nil || err != nil {
			return lease, err
		}
	}
}

// Lock is quorumlock.Locker's.
func (l *Lock) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	waiting, stop := ctx, context.CancelFunc(func() {})
	if l.set.Wait > 0 {
		waiting, stop = context.WithTimeout(ctx, l.set.Wait)
	}
	defer stop()
	var turn *turn // in the local queue
	for turn == nil {
		if lease, err := l.reenter(ctx); lease != nil || err != nil {
			return lease, err
		}
		var err error
		turn, err = l.client.enqueue(waiting, l)
		switch {
		case errors.Is(err, quorumlock.ErrClosed):
			return nil, err
		case err != nil:
			return nil, errors.Join(err, &quorumlock.HeldError{Name: l.name, Holder: l.client.holderOf(l)})
		}
	}
	defer l.client.endTurn(turn)
	for {
		var entered <-chan struct{}
		if l.set.Owner != "" { // another call may acquire for the same owner meanwhile
			_, entered = l.client.enters(l)
			if lease, err := l.reenter(ctx); lease != nil || err != nil {
				return lease, err
			}
		}
		c := l.newCall(&l.lock, turn.ticket, turn)
		if lease, err := c.run(ctx, waiting, entered); lease != nil || err != nil {
			return lease, err
		}
	}
}

// start refuses what cannot work before anything is sent.
func (l *Lock) start(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.client.admit(ctx)
}

// admit begins a call, unless it cannot work: its ctx is nil or done, or the client has been stopped.
func (c *Client) admit(ctx context.Context) error {
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.beginCall()
}

// heldKey finds the holds in a context that descends from their leases.
type heldKey struct{}

// holds is a list of calls that hold, the innermost first.
type holds struct {
	call  *call
	outer *holds
}

// reenter enters the hold of the lock that ctx or the lock's owner already has. It returns no lease and
// no error if there is none.
func (l *Lock) reenter(ctx context.Context) (*quorumlock.Lease, error) {
	if l.set.Owner != "" {
		if t := l.client.find(l.set.Owner, l); t != nil {
			if lease, err := enterAgain(ctx, t); lease != nil || err != nil {
				return lease, err
			}
		}
	}
	h, _ := ctx.Value(heldKey{}).(*holds)
	for ; h != nil; h = h.outer {
		if !h.call.alive() {
			continue
		}
		if l.set.Owner == "" && h.call.lock.same(l) {
			return enterAgain(ctx, h.call)
		}
		for _, c := range l.cells {
			if indexOf(h.call.lock.cells, c) >= 0 {
				return nil, fmt.Errorf("%w: by this very context, whose lease of %q has %q at node %s, so that %q would wait for itself: take both with one MultiLock, or use a context that does not descend from the lease",
					&quorumlock.HeldError{Name: l.name, Holder: h.call.Owner()}, h.call.lock.name, c.Name, c.Node, l.name)
			}
		}
	}
	return nil, nil
}

// enterAgain enters a hold. If the hold ends meanwhile, it returns no lease and no error, as if the call had come a
// moment later.
func enterAgain(ctx context.Context, c *call) (*quorumlock.Lease, error) {
	lease, err := c.enter(ctx)
	if errors.Is(err, quorumlock.ErrLost) && ctx.Err() == nil {
		return nil, nil
	}
	return lease, err
}
