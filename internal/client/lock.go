package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Cell is one name at one node.
type Cell struct {
	Node   Node
	Name   string
	Shared bool // the lock is shared

	Permits int // the slots of a semaphore; 0 for other locks
}

// SlotsOf returns a cell of a semaphore, without node and name, or an error for wrong permits.
func SlotsOf(permits int) (Cell, error) {
	if permits < 1 || permits > settings.MaxPermits {
		return Cell{Permits: 1}, errs.Misusef("quorumlock: Semaphore: permits is %d: use 1 to %d", permits, settings.MaxPermits)
	}
	return Cell{Permits: permits}, nil
}

// at returns the cell as the key of a map.
func at(c Cell) Cell { return Cell{Node: c.Node, Name: c.Name} }

// at reports whether two cells have the same name and node.
func (c Cell) at(d Cell) bool { return c.Node == d.Node && c.Name == d.Name }

// Lock is a lock of any kind: its cells, and the tree that decides which of them make a quorum. It
// is safe for concurrent use. Only the fields after err change after New and AllowDetach.
type Lock struct {
	client   *Client
	name     string
	names    string // of its locks, joined; the same for locks with equal cells and trees
	cells    []Cell
	nodes    []Node       // of the cells, each once: the calls to one node go together
	shared   bool         // all cells are shared
	slots    int          // how many callers can hold the lock at one time, unless it is shared
	detaches bool         // leases can be detached
	need     int          // how many of nodes form a quorum; 0 if the members of a MultiLock differ
	locks    int          // number of locks; 1 unless it is a MultiLock
	size     int          // bytes of all their names, with prefixes
	places   map[Cell]int // index of each cell in cells; nil unless it is a MultiLock

	clients []*Client // of its members, each once; nil unless it is a MultiLock
	gate    bool      // of LockN or TryLockN: its holds are no caller's
	*Form

	keys      []Cell // the cells as keys of maps
	ofMutexes []Cell // keys without those of semaphores: Redisson clients can hold these
	err       error  // error of the name or the options; every call returns it

	hintsMu sync.Mutex
	hints   engine.Hints

	metAt time.Duration // last record of Redisson's clients at all cells; guarded by redisson.mu
}

// Form is what locks with the same options and the same tree have in common. It does not change
// once they are in use.
type Form struct {
	set    options.Settings
	terms  wire.Terms
	config core.Config // of calls of Lock; see tries
}

// NewForm returns the form of locks that are neither shared nor semaphores.
func NewForm(tree core.Tree, set options.Settings) *Form {
	f := &Form{set: set, terms: wire.TermsOf(&set)}
	f.config = core.Config{Tree: tree, TTL: set.TTL, HandTTL: f.terms.HandTTL, NodeTimeout: set.NodeTimeout, MaxHold: set.MaxHold, Drift: set.Drift, Renew: set.Renew}
	return f
}

// of returns the form of locks over cells like these.
func (f *Form) of(cells []Cell, shared bool) *Form {
	n := cells[0].Permits
	if n == 0 && (!shared || f.set.Data == "") {
		return f
	}
	g := *f
	if shared {
		g.set.Data = "" // of an RWMutex: its readers have none
	}
	if n > 0 {
		g.config.Slots = []core.Slots{{First: 0, Cells: len(cells), Permits: n}}
	}
	return &g
}

// tries returns the config of a call of TryLock.
func (f *Form) tries() *core.Config {
	c := f.config
	c.Tries = true
	return &c
}

// New returns a lock over cells, all of one kind. If err is not nil, every call on it returns err.
func New(client *Client, name string, form *Form, cells []Cell, err error) *Lock {
	if err == nil {
		err = validateNames(cells)
	}
	return newLock(client, name, form, cells, err)
}

// validateNames returns the reason why the nodes cannot keep the cells, or nil.
func validateNames(cells []Cell) (err error) {
	for i, c := range cells {
		if i == 0 || c.Name != cells[i-1].Name {
			err = quorumlock.ValidateName(c.Name)
		}
		if n, ok := c.Node.(interface{ OneSlot(string) error }); ok && err == nil {
			err = n.OneSlot(c.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newLock is New for cells with valid names.
func newLock(client *Client, name string, form *Form, cells []Cell, err error) *Lock {
	l := &Lock{client: client, name: name, names: cells[0].Name, cells: cells, need: form.config.Tree.Need(), locks: 1, size: len(cells[0].Name), err: err}
	l.shared = !slices.ContainsFunc(cells, func(c Cell) bool { return !c.Shared })
	l.Form = form.of(cells, l.shared)
	l.slots = settings.MaxPermits
	for _, c := range cells {
		l.slots = min(l.slots, max(c.Permits, 1))
	}
	l.nodes = make([]Node, 0, len(cells))
	l.keys, l.ofMutexes = cells, cells // cells of mutexes are keys as they are
	if slices.ContainsFunc(cells, func(c Cell) bool { return c.Shared || c.Permits > 0 }) {
		l.keys, l.ofMutexes = make([]Cell, 0, len(cells)), nil
		for _, c := range cells {
			l.keys = append(l.keys, at(c))
			if c.Permits == 0 {
				l.ofMutexes = append(l.ofMutexes, at(c))
			}
		}
	}
	for _, c := range cells {
		if !slices.Contains(l.nodes, c.Node) {
			l.nodes = append(l.nodes, c.Node)
		}
	}
	for _, node := range l.nodes {
		if n, ok := node.(interface{ Guardable() error }); ok && l.set.MaxTTL > 0 && l.err == nil {
			l.err = n.Guardable()
		}
	}
	return l
}

// indexOf returns the index of the cell with c's name and node, or -1.
func (l *Lock) indexOf(c Cell) int {
	if l.places == nil {
		return slices.IndexFunc(l.cells, c.at)
	}
	if i, ok := l.places[at(c)]; ok {
		return i
	}
	return -1
}

// Client returns the client of the lock.
func (l *Lock) Client() *Client { return l.client }

// Err returns the error of the lock's name or options, or nil.
func (l *Lock) Err() error { return l.err }

// Cells returns the number of cells.
func (l *Lock) Cells() int { return len(l.cells) }

// NameOf returns the name of a cell.
func (l *Lock) NameOf(cell int) string { return l.cells[cell].Name }

// Shares reports whether the lock is shared at a cell.
func (l *Lock) Shares(cell int) bool { return l.cells[cell].Shared }

// Name returns the lock's name.
func (l *Lock) Name() string { return l.name }

// same reports whether l and m are one lock: the same names at the same nodes, the same quorum, and
// equal sharing and permits.
func (l *Lock) same(m *Lock) bool {
	return l == m || l.over(m) && slices.Equal(l.cells, m.cells)
}

// over is same without the comparison of sharing and permits.
func (l *Lock) over(m *Lock) bool {
	return slices.EqualFunc(l.cells, m.cells, Cell.at) && l.config.Tree.Equal(m.config.Tree)
}

// hint returns the least token that an attempt asks for.
func (l *Lock) hint() uint64 {
	now := l.client.now()
	l.hintsMu.Lock()
	defer l.hintsMu.Unlock()
	return l.hints.Next(now.UnixMicro(), now.Sub(l.client.base))
}

func (l *Lock) saw(now time.Duration, token uint64) {
	l.hintsMu.Lock()
	defer l.hintsMu.Unlock()
	l.hints.Saw(token, now)
}

// TryLock implements [quorumlock.Locker]. A refusal is final if one owner has the lock at a quorum
// of the nodes, or is the first in the queue there. Contenders that each have some nodes release
// these, and are queued by ticket. So one of them wins the next attempt, or one after it.
func (l *Lock) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	return l.watched(ctx, true, (*Lock).tryLock)
}

func (l *Lock) tryLock(ctx context.Context, w *watch) (*quorumlock.Lease, error) {
	return l.tryOnce(ctx, w, l.tries(), nil)
}

// tryOnce is tryLock. A non-nil over is joined to refusals that may end with time.
func (l *Lock) tryOnce(ctx context.Context, w *watch, config *core.Config, over error) (*quorumlock.Lease, error) {
	for again := false; ; {
		if lease, err := l.reenter(ctx); lease != nil || err != nil {
			return w.entered(lease), err
		}
		ticket := l.client.nextTicket()
		if _, err := l.takePlace(ctx, true, w, nil); err != nil {
			return nil, errs.Join(over, err)
		}
		c := l.newSession(config, ticket, nil, w)
		c.tries.over = over
		lease, err := c.run(ctx, ctx, nil)
		if !again && errors.Is(err, quorumlock.ErrNoQuorum) && ctx.Err() == nil && c.wasCutOff() {
			again = true
			continue
		}
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// wasCutOff is core.Machine.WasCutOff.
func (c *session) wasCutOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.WasCutOff()
}

// Lock implements [quorumlock.Locker].
func (l *Lock) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	if l.set.Wait == 0 {
		return l.watched(ctx, true, (*Lock).lockAtOnce)
	}
	return l.watched(ctx, false, (*Lock).waitAndLock)
}

// lockAtOnce is Lock without time to wait: its refusals are timeouts.
func (l *Lock) lockAtOnce(ctx context.Context, w *watch) (*quorumlock.Lease, error) {
	return l.tryOnce(ctx, w, l.tries(), context.DeadlineExceeded)
}

func (l *Lock) waitAndLock(ctx context.Context, w *watch) (*quorumlock.Lease, error) {
	waiting, stop := l.limit(ctx)
	defer stop()
	entered, leave := l.client.awaitOwner(l)
	defer leave()
	var p *place // in the local queue
	for p == nil {
		if lease, err := l.reenter(ctx); lease != nil || err != nil {
			return lease, err
		}
		var err error
		p, err = l.client.enqueue(waiting, l, w, entered)
		switch {
		case errors.Is(err, quorumlock.ErrClosed):
			return nil, err
		case err != nil:
			return nil, errs.Join(err, l.heldHere())
		}
		if p != nil && !l.mayAsk(waiting) {
			l.client.leaveLocalQueue(p)
			p = nil
			if err := l.sitOut(waiting); err != nil {
				return nil, err
			}
		}
	}
	defer l.client.leaveLocalQueue(p)
	for {
		if l.set.Owner != "" { // another call may acquire for the same owner meanwhile
			if lease, err := l.reenter(ctx); lease != nil || err != nil {
				return w.entered(lease), err
			}
		}
		if again, err := l.takePlace(waiting, false, w, entered); again {
			continue
		} else if err != nil {
			return nil, err
		}
		c := l.newSession(&l.config, p.Ticket, p, w)
		lease, err := c.run(ctx, waiting, entered)
		l.asked(waiting, lease, err)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// limit returns a context that is done when a Lock with ctx gives up.
func (l *Lock) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.set.Wait < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.set.Wait)
}

// start refuses calls that cannot succeed, before anything is sent.
func (l *Lock) start(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.client.admit(ctx)
}

// admit begins a call. It refuses a ctx that is nil or done, and calls of a stopped client.
func (c *Client) admit(ctx context.Context) error {
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.beginCall()
}

// holds is the list of a context's holding calls, the innermost first. Leases' contexts carry it.
type holds struct {
	session *session
	outer   *holds
}

// Stopping returns the channel of the innermost hold: see [quorumlock.Stopping].
func (h *holds) Stopping() <-chan struct{} { return h.session.lock.client.stopping }

// reenter enters the hold of l that ctx or the lock's owner already has. It returns no lease and no
// error if there is none. An exclusive hold includes the shared lock, but not the other way round.
func (l *Lock) reenter(ctx context.Context) (*quorumlock.Lease, error) {
	if l.set.Owner != "" {
		if t := l.client.find(l.set.Owner, l); t != nil {
			if lease, err := enterAgain(ctx, l, t); lease != nil || err != nil {
				return lease, err
			}
		}
		if t := l.client.sharer(l.set.Owner, l); t != nil {
			return nil, upgrade(l, t.Owner())
		}
	}
	h, _ := ctx.Value(settings.HeldKey{}).(*holds)
	for ; h != nil; h = h.outer {
		if !h.session.alive() {
			h.session.noticeLoss()
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		if l.set.Owner == "" && h.session.includes(l) {
			if l.set.NoReentry {
				return nil, options.Reentry(l.name)
			}
			return enterAgain(ctx, l, h.session)
		}
		if h.session.shares(l) {
			return nil, upgrade(l, h.session.Owner())
		}
		for _, c := range l.cells {
			if h.session.lock.indexOf(c) >= 0 {
				return nil, fmt.Errorf("%w: the context already holds %q at node %s by its lease of %q: take both with one MultiLock, or use a context that does not descend from the lease",
					quorumlock.ErrDeadlock, c.Name, c.Node, h.session.lock.name)
			}
		}
	}
	return nil, nil
}

// upgrade returns the error of a call for an exclusive hold by an owner that shares the lock.
func upgrade(l *Lock, held quorumlock.Owner) error {
	return fmt.Errorf("%w (lock %q, held as %s)", quorumlock.ErrUpgrade, l.name, held)
}

// shares reports whether other owners may share a cell of the hold that l would hold alone.
func (c *session) shares(l *Lock) bool {
	for _, d := range l.cells {
		if i := c.lock.indexOf(d); i >= 0 && !d.Shared && c.sharesCell(i) {
			return true
		}
	}
	return false
}

// includes reports whether the hold of c includes l.
func (c *session) includes(l *Lock) bool {
	if !c.lock.over(l) {
		return false
	}
	for i := range l.cells {
		if !l.cells[i].Shared && c.sharesCell(i) || l.cells[i].Permits != c.lock.cells[i].Permits {
			return false
		}
	}
	return true
}

// sharesCell reports whether other owners may share a cell of the hold.
func (c *session) sharesCell(i int) bool { return c.lock.cells[i].Shared || c.downgraded.Load() }

// enterAgain enters a hold. If the hold ends meanwhile, it returns no lease and no error, as if the
// call had come a moment later.
func enterAgain(ctx context.Context, l *Lock, c *session) (*quorumlock.Lease, error) {
	lease, err := c.enter(ctx, l)
	if errors.Is(err, quorumlock.ErrLost) && ctx.Err() == nil {
		return nil, nil
	}
	return lease, err
}
