package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/misuse"
	"github.com/quorumlock/quorumlock/internal/oneline"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Latch is a set of ids that only grows, on a quorum of cells. It is open once it has n ids. It is safe for concurrent
// use.
//
// Every call takes up to two rounds: see look. It is the algorithm by which Attiya, Bar-Noy and Dolev make an atomic
// register of servers that may fail ("Sharing memory robustly in message-passing systems", 1995), with the union of two
// sets in the place of the later of two values.
type Latch struct {
	client *Client
	name   string
	n      int
	need   int // how many cells are a quorum
	cells  []Cell
	set    options.Settings
	err    error // what is wrong with the latch's name, n or options: its calls return it

	found atomic.Int64 // 0 until a quorum had it; then one more than the most ids that a quorum had
	open  atomic.Bool  // a quorum had n ids
}

// The limits of a latch. A call reads all ids that a node has, so they must fit into one reply.
const (
	maxLatchIDs = 4096
	maxLatchID  = 200 // bytes
)

// latchRefresh is how often Wait looks, on average, though no node has told it anything: a message may be lost.
const latchRefresh = 3 * time.Second

// NewLatch returns a latch over cells. A non-nil err is returned by every call on it.
func NewLatch(client *Client, name string, n, need int, cells []Cell, set options.Settings, err error) *Latch {
	l := &Latch{client: client, name: name, n: n, need: need, cells: cells, set: set, err: err}
	if l.err == nil && (n < 1 || n > maxLatchIDs) {
		l.err = misuse.Errorf("quorumlock: Latch(%.80q, %d): n is how many ids open the latch: use 1 to %d", name, n, maxLatchIDs)
	}
	for i := 0; i < len(cells) && l.err == nil; i++ {
		l.err = quorumlock.CheckName(cells[i].Name)
		if c, ok := cells[i].Node.(interface{ CheckName(string) error }); ok && l.err == nil {
			l.err = c.CheckName(cells[i].Name)
		}
	}
	return l
}

// Name returns the latch's name.
func (l *Latch) Name() string { return l.name }

// Done adds an id. It asks again until a quorum has the id, or the latch is open.
func (l *Latch) Done(ctx context.Context, id string) error {
	if size := len(id); l.err == nil && (size == 0 || size > maxLatchID) {
		return misuse.Errorf("quorumlock: Done of the latch %.80q: the id has %d bytes: use 1 to %d", l.name, size, maxLatchID)
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	defer l.client.End()
	return l.ask(ctx, id)
}

// Wait returns when the latch is open. It subscribes before it looks for good, so that it misses no message.
func (l *Latch) Wait(ctx context.Context) error {
	if err := l.start(ctx); err != nil {
		return err
	}
	defer l.client.End()
	if l.open.Load() {
		return nil
	}
	return l.ask(ctx, "")
}

// Count returns how many ids a quorum has, at most n.
func (l *Latch) Count(ctx context.Context) (int, error) {
	if err := l.start(ctx); err != nil {
		return 0, err
	}
	defer l.client.End()
	if l.open.Load() {
		return l.n, nil
	}
	u, err := l.look(ctx, wire.ReadLatch, "")
	if err != nil {
		return 0, err
	}
	return u.size(l.n), nil
}

// start refuses what cannot work before anything is sent.
func (l *Latch) start(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.client.admit(ctx)
}

// ask looks, and adds the id unless it is empty, until that has succeeded; without an id, until the latch is open.
func (l *Latch) ask(ctx context.Context, id string) error {
	if l.set.Wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, l.set.Wait)
		defer stop()
	}
	told := make(chan struct{}, 1)
	var deafen func() // ends the subscription
	var last error    // what the last look met
	pause, failures := firstTry, 0
	for {
		u, err := l.look(ctx, wire.MakeLatch, id)
		var wait time.Duration
		switch {
		case err == nil && (id != "" || u.open):
			return nil
		case err == nil:
			last = fmt.Errorf("quorumlock: the latch %q has %d of %d ids", l.name, u.size(l.n), l.n)
			pause, failures = firstTry, 0
			wait = l.client.around(latchRefresh)
		case l.isFinal(err):
			return err
		case ctx.Err() == nil:
			last = err
			if failures++; failures == 1 {
				l.logNoQuorum(err)
			}
			wait, pause = l.client.around(pause), min(2*pause, time.Second)
		}
		if l.set.Wait == 0 {
			return oneline.Join(cmp.Or(ctx.Err(), context.DeadlineExceeded), last)
		}
		if id == "" && deafen == nil {
			deafen = l.listen(told)
			defer deafen()
		}
		again := time.NewTimer(wait)
		select {
		case <-told:
		case <-again.C:
		case <-ctx.Done():
		case <-l.client.stopping:
			return quorumlock.ErrClosed
		}
		again.Stop()
		if err := ctx.Err(); err != nil {
			return oneline.Join(err, last)
		}
	}
}

// around returns a pause that differs from one time to the next, by d on average.
func (c *Client) around(d time.Duration) time.Duration {
	if c.jitter != nil {
		return d/2 + c.jitter(d)
	}
	return d/2 + mathrand.N(d)
}

// isFinal reports whether asking again would not change an error of look.
func (l *Latch) isFinal(err error) bool {
	return errors.Is(err, quorumlock.ErrLatchForgotten) || isWrongUse(err) && !errors.Is(err, quorumlock.ErrNoQuorum)
}

// logNoQuorum logs from a goroutine of its own: a log that is slow, or that uses a lock itself, must hold up nothing.
func (l *Latch) logNoQuorum(err error) {
	l.client.start(func() {
		l.set.Logger.Warn("quorumlock: no quorum, trying again until there is one", "latch", l.name, "error", err)
	})
}

// listen subscribes to what the nodes tell of the latch, until stop.
func (l *Latch) listen(told chan struct{}) (stop func()) {
	stops := make([]func(), len(l.cells))
	for i, c := range l.cells {
		stops[i] = c.Node.Listen(wire.LatchKey(c.Name), func(string) { // a hint and no more: whoever may publish can send it
			select {
			case told <- struct{}{}:
			default:
			}
		})
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// look asks all cells, and adds the id unless it is empty. It returns what a quorum of them had together, when a quorum of
// them has all of that: those that lacked something are given it in a second round. So whoever looks later finds it, at
// whichever quorum. Where nothing goes wrong and nobody else adds an id at the same time, there is no second round.
//
// Both rounds also keep the latch for another retention. So a quorum keeps all of it for that long, and not one cell this
// part and another that part.
func (l *Latch) look(ctx context.Context, mode wire.LatchMode, id string) (union, error) {
	before := l.found.Load()
	if mode == wire.MakeLatch && before > 0 {
		mode = wire.KeepLatch
	}
	u := union{ids: make(map[string]struct{})}
	var ids []string
	if id != "" {
		ids = append(ids, id)
	}
	all := make([]int, len(l.cells))
	for i := range all {
		all[i] = i
	}
	first := l.newRound(ctx, all, mode, ids)
	states, err := first.run(ctx, nil)
	if err != nil {
		return u, err
	}
	for _, s := range states {
		u.add(s.LatchState)
	}
	if before > 0 && !u.open && (!u.there || int64(len(u.ids))+1 < before) {
		return u, fmt.Errorf("%w: the latch %q had %d ids, and a quorum has %d", quorumlock.ErrLatchForgotten, l.name, min(before-1, int64(l.n)), len(u.ids))
	}
	if id != "" {
		u.ids[id] = struct{}{}
	}
	u.open = u.open || len(u.ids) >= l.n

	var agree []cellState
	lack := all
	for _, s := range states {
		if u.within(s.LatchState) && (s.There || mode == wire.ReadLatch) {
			agree = append(agree, s)
			lack = slices.DeleteFunc(slices.Clone(lack), func(cell int) bool { return cell == s.cell })
		}
	}
	if len(agree) < l.need {
		mode, ids = wire.RestoreLatch, make([]string, 0, len(u.ids))
		if u.open {
			mode = wire.OpenLatch
		} else {
			for id := range u.ids {
				ids = append(ids, id)
			}
			slices.Sort(ids)
		}
		second := l.newRound(ctx, lack, mode, ids)
		second.states = agree
		if _, err := second.run(ctx, u.within); err != nil {
			return u, err
		}
	}
	if mode != wire.ReadLatch || len(u.ids) > 0 || u.open { // else perhaps fewer than a quorum have the latch
		l.saw(&u)
	}
	return u, nil
}

// saw notes what a quorum has.
func (l *Latch) saw(u *union) {
	if u.open {
		l.open.Store(true)
	}
	for n := int64(u.size(l.n)) + 1; ; {
		found := l.found.Load()
		if n <= found || l.found.CompareAndSwap(found, n) {
			return
		}
	}
}
