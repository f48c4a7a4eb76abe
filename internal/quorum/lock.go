package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
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
	tree   Tree
	cells  []Cell
	parts  []part // the cells by node: what goes to one node goes in one round trip
	set    quorumlock.Settings
	err    error // what is wrong with the lock's name or options: its calls return it

	seenMu sync.Mutex
	seen   uint64    // the highest token seen
	seenAt time.Time // when it was seen first
}

// part is what one node has to do with a lock.
type part struct {
	node  Node
	cells []int
}

// New returns a lock over cells. A non-nil err is returned by every call on it.
func New(client *Client, name string, tree Tree, cells []Cell, set quorumlock.Settings, err error) *Lock {
	l := &Lock{client: client, name: name, tree: tree, cells: cells, set: set, err: err}
	for i := 0; i < len(cells) && l.err == nil; i++ {
		l.err = quorumlock.CheckName(cells[i].Name)
		if n, ok := cells[i].Node.(interface{ CheckName(string) error }); ok && l.err == nil {
			l.err = n.CheckName(cells[i].Name)
		}
	}
	for i, c := range cells {
		l.addTo(c.Node, i)
	}
	for _, p := range l.parts {
		if n, ok := p.node.(interface{ Guardable() error }); ok && set.MaxTTL > 0 && l.err == nil {
			l.err = n.Guardable()
		}
	}
	return l
}

func (l *Lock) addTo(n Node, cell int) {
	for i := range l.parts {
		if l.parts[i].node == n {
			l.parts[i].cells = append(l.parts[i].cells, cell)
			return
		}
	}
	l.parts = append(l.parts, part{n, []int{cell}})
}

// All returns the lock that holds all of the members, at the client of the first.
func All(name string, members []*Lock, set quorumlock.Settings) (*Lock, error) {
	trees := make([]Tree, len(members))
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
	l := New(members[0].client, name, Every(trees), cells, set, nil)
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
	if len(l.cells) != len(m.cells) || !l.tree.equal(m.tree) {
		return false
	}
	for i := range l.cells {
		if l.cells[i] != m.cells[i] {
			return false
		}
	}
	return true
}

// slack is how much earlier than due a lease is renewed, if there is a round to join.
func (l *Lock) slack() time.Duration { return l.set.TTL / 20 }

// hint is the least token that an attempt asks for: the wall clock in µs, or the highest token seen of this lock, which
// goes on from then as time does, if that is higher. With it the nodes mostly agree at once. One more than the token seen
// would not do: if the nodes forget their counters, somebody else may have been granted that token since. A node takes no
// hint that is far from its own clock.
func (l *Lock) hint() uint64 {
	now := l.client.now()
	l.seenMu.Lock()
	defer l.seenMu.Unlock()
	clock := uint64(max(now.UnixMicro(), 0))
	if l.seen == 0 {
		return clock
	}
	return max(clock, l.seen+1+uint64(max(now.Sub(l.seenAt).Microseconds(), 0)))
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
	defer l.client.end()
	if lease, err := l.reenter(ctx); lease != nil || err != nil {
		return lease, err
	}
	w := newWaiter(l, l.client.nextTicket(), func() int { return 1 })
	w.tries = true
	l.client.trying(w.id, true)
	defer l.client.trying(w.id, false)
	defer w.finish()
	start := time.Now()
	for {
		lease, err := l.attempt(ctx, ctx, w)
		if err == nil {
			return lease, nil
		}
		undecided, met := w.undecided()
		if time.Since(start) > l.set.NodeTimeout || !undecided || errors.Is(err, quorumlock.ErrClosed) {
			w.leave(ctx)
			return nil, err
		}
		w.met = met
		pause := time.NewTimer(time.Millisecond) // for the others to give up what they have
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-l.client.stopping:
		}
		pause.Stop()
		if err := ctx.Err(); err != nil {
			w.leave(ctx)
			return nil, err
		}
	}
}

// Lock is quorumlock.Locker's.
func (l *Lock) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.end()
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

	w := newWaiter(l, turn.ticket, func() int { return l.client.callers(turn) })
	w.register()
	defer w.close()
	var last error // why the last whole attempt failed
	for {
		if l.set.Owner != "" { // another call may have acquired for the same owner meanwhile
			if lease, err := l.reenter(ctx); lease != nil || err != nil {
				w.leave(ctx)
				return lease, err
			}
		}
		if lease := l.inherit(ctx, waiting, w); lease != nil {
			return lease, nil
		}
		if err := waiting.Err(); err != nil {
			w.leave(ctx)
			return nil, errors.Join(err, last)
		}
		lease, err := l.attempt(ctx, waiting, w)
		if err == nil {
			return lease, nil
		}
		if _, hopeless := errors.AsType[*notALock](err); hopeless || errors.Is(err, quorumlock.ErrClosed) {
			w.leave(ctx)
			return nil, err
		}
		if gone := waiting.Err(); gone == nil || !errors.Is(err, gone) {
			last = err
		}
		if err := w.wait(waiting, last); err != nil {
			w.leave(ctx)
			return nil, errors.Join(err, last)
		}
	}
}

// start refuses what cannot work before anything is sent.
func (l *Lock) start(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-l.client.stopping:
		return quorumlock.ErrClosed
	default:
		return l.client.begin()
	}
}

// heldKey finds the tenures in a context that descends from their leases.
type heldKey struct{}

// holds is a list of tenures, the innermost first.
type holds struct {
	tenure *tenure
	outer  *holds
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
		if !h.tenure.alive() {
			continue
		}
		if l.set.Owner == "" && h.tenure.lock.same(l) {
			return enterAgain(ctx, h.tenure)
		}
		for _, c := range l.cells {
			if indexOf(h.tenure.lock.cells, c) >= 0 {
				return nil, fmt.Errorf("%w: by this very context, whose lease of %q has %q at node %s, so that %q would wait for itself: take both with one MultiLock, or use a context that does not descend from the lease",
					&quorumlock.HeldError{Name: l.name, Holder: h.tenure.owner}, h.tenure.lock.name, c.Name, c.Node, l.name)
			}
		}
	}
	return nil, nil
}

// enterAgain enters a hold. If the hold ends meanwhile, it returns no lease and no error, as if the call had come a
// moment later.
func enterAgain(ctx context.Context, t *tenure) (*quorumlock.Lease, error) {
	lease, err := t.reenter(ctx)
	if errors.Is(err, quorumlock.ErrLost) && ctx.Err() == nil {
		return nil, nil
	}
	return lease, err
}
