package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Several permits of a semaphore are as many holds of one slot each, and one lease over them. Of
// all calls of LockN for a semaphore, one collects slots at a time: it holds a gate, which is a lock
// beside the semaphore. So two callers never wait for each other's slots. Up to maxCollected slots
// are requested at once, with the ticket of the LockN: later callers wait behind these requests, so
// a large one does not starve.
//
// A TryLockN never waits while it has a slot, so it needs no gate against a deadlock. It has another
// gate, for order: of several calls that compete for slots, the first at the gate gets them.

// maxCollected is the number of slots that a LockN requests at one time.
const maxCollected = 64

// collector is a LockN or a TryLockN.
type collector struct {
	lock   *Lock
	gate   *Lock
	n      int
	try    bool
	over   error // joined to refusals that may end with time
	ticket int64
	began  time.Time
	waited time.Time   // start of the wait for the gate; zero if it did not wait
	config core.Config // of the calls for slots, whose holds are renewed until settle
	again  bool        // it had the gate before

	mu  sync.Mutex // guards all
	all []permit   // the permits so far
}

// permit is a lease of one slot, and its hold.
type permit struct {
	*session
	lease *quorumlock.Lease
}

func permitOf(lease *quorumlock.Lease) permit {
	return permit{lease.Context().Value(settings.HeldKey{}).(*holds).session, lease}
}

// LockN acquires n slots of a semaphore.
func (l *Lock) LockN(ctx context.Context, n int) (*quorumlock.Lease, error) {
	switch {
	case n == 1:
		return l.Lock(ctx)
	case l.set.Wait == 0:
		return l.several(ctx, &collector{lock: l, n: n, try: true, over: context.DeadlineExceeded, config: *l.tries()})
	}
	return l.several(ctx, &collector{lock: l, n: n, config: l.config})
}

// TryLockN is LockN without waiting.
func (l *Lock) TryLockN(ctx context.Context, n int) (*quorumlock.Lease, error) {
	if n == 1 {
		return l.TryLock(ctx)
	}
	return l.several(ctx, &collector{lock: l, n: n, try: true, config: *l.tries()})
}

func (l *Lock) several(ctx context.Context, s *collector) (*quorumlock.Lease, error) {
	switch {
	case l.err != nil:
		return nil, l.err
	case s.n < 1 || s.n > l.slots:
		return nil, errs.Misusef("quorumlock: LockN: n is %d, and the semaphore %q has %d permits: use 1 to %d", s.n, l.name, l.slots, l.slots)
	case l.set.Owner != "":
		return nil, errs.Misusef("quorumlock: LockN: WithOwner names one owner, and %d permits of %q need as many: leave the option out", s.n, l.name)
	}
	var err error
	if s.gate, err = s.gateOf(l); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	waiting, stop := ctx, context.CancelFunc(func() {})
	if !s.try {
		waiting, stop = l.limit(ctx)
	}
	defer stop()
	s.ticket, s.began = l.client.nextTicket(), time.Now()
	s.config.Renew, s.config.MaxHold, s.config.Unclaimed = true, 0, true
	for {
		if all, err := s.enter(ctx); len(all) > 0 || err != nil {
			return leaseOf(ctx, all), err
		}
		if got, err := s.collect(ctx, waiting); got || err != nil {
			return leaseOf(ctx, s.all), err
		}
	}
}

// collect acquires the gate, then n slots. It reports whether it got them. It returns false without
// an error, and keeps no slot, if the gate or a slot was lost meanwhile.
func (s *collector) collect(ctx, waiting context.Context) (got bool, err error) {
	gate, err := s.shut(ctx, waiting)
	if err != nil {
		return false, err
	}
	defer func() { // also if an Observer panics
		var back []permit
		if !got {
			back, s.all = s.all, nil
		}
		if waiting.Err() == nil {
			release(ctx, back)
			back = nil
		}
		s.lock.client.start(func() {
			release(ctx, back)
			if gate != nil { // last, so that the next TryLockN finds the released slots free
				_ = gate.Unlock(context.WithoutCancel(ctx))
			}
		})
	}()
	if s.try {
		err = s.tryEach(ctx)
	} else {
		err = s.lockAll(ctx, waiting, gate.Context())
	}
	switch {
	case err == nil && s.settle(ctx, s.all):
		return true, nil
	case err == nil:
		err = ctx.Err()
	default:
		err = ownCancel(waiting, err)
	}
	return false, s.refusal(waiting, err, s.all)
}

// ownCancel hides lockAll's own cancellation: it returns the error of waiting instead, or nil if
// waiting goes on.
func ownCancel(waiting context.Context, err error) error {
	if errors.Is(err, context.Canceled) && !errors.Is(waiting.Err(), context.Canceled) {
		return waiting.Err()
	}
	return err
}

// enter enters n holds that ctx has. It returns none if ctx has no hold of the semaphore.
func (s *collector) enter(ctx context.Context) (all []permit, err error) {
	var held []*session
	h, _ := ctx.Value(settings.HeldKey{}).(*holds)
	for ; h != nil; h = h.outer {
		switch {
		case !h.session.alive():
			h.session.noticeLoss()
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
		case h.session.includes(s.lock) && !slices.Contains(held, h.session):
			held = append(held, h.session)
		}
	}
	switch {
	case len(held) == 0:
		_, err := s.lock.reenter(ctx) // it has nothing to enter, but may refuse ctx
		return nil, err
	case s.lock.set.NoReentry:
		return nil, options.Reentry(s.lock.name)
	case len(held) < s.n:
		return nil, fmt.Errorf("%w: the context has %d permits of %q, and LockN(%d) does not add to them: take all of them at once, or use a context that does not descend from their lease",
			quorumlock.ErrDeadlock, len(held), s.lock.name, s.n)
	}
	defer func() {
		if len(all) < s.n { // an error, or an Observer panicked
			release(ctx, all)
		}
	}()
	for _, c := range held[:s.n] {
		lease, err := s.lock.watched(ctx, s.try, func(l *Lock, ctx context.Context, _ *watch) (*quorumlock.Lease, error) { return c.enter(ctx, l) })
		switch {
		case errors.Is(err, quorumlock.ErrLost) && ctx.Err() == nil: // the hold has ended meanwhile
			release(ctx, all)
			return s.enter(ctx)
		case err != nil:
			release(ctx, all)
			return nil, err
		}
		all = append(all, permitOf(lease))
	}
	return all, nil
}

// gateOf returns the lock beside the semaphore.
func (s *collector) gateOf(l *Lock) (*Lock, error) {
	suffix := settings.LockGate
	if s.try {
		suffix = settings.TryGate
	}
	set, cells := l.set, make([]Cell, len(l.cells))
	set.Renew, set.MaxHold, set.Wait, set.Observer = true, 0, -1, unheard{}
	for i, c := range l.cells {
		cells[i] = Cell{Node: c.Node, Name: c.Name + suffix}
	}
	if err := settings.CheckLength(cells[0].Name); err != nil {
		return nil, fmt.Errorf("quorumlock: LockN needs a lock beside the semaphore, with a longer name: %w", err)
	}
	gate := newLock(l.client, l.name, NewForm(l.config.Tree, set), cells, nil)
	gate.gate, gate.config.Unclaimed = true, true // the form is its own
	return gate, nil
}

// unheard is the Observer of a gate: no Observer of a caller gets these events.
type unheard struct{}

func (unheard) Begin(context.Context, string) context.Context { return nil }
func (unheard) Observe(context.Context, quorumlock.Event)     {}

// shut acquires the gate, and notifies the Observer if it fails.
func (s *collector) shut(ctx, waiting context.Context) (*quorumlock.Lease, error) {
	w := &watch{ctx: ctx, waited: s.waited}
	lease, err := s.shutGate(waiting, w)
	if s.waited, s.again = w.waited, true; err == nil {
		return lease, nil
	}
	return s.lock.watchedSince(s.began, s.waited, ctx, s.try, func(*Lock, context.Context, *watch) (*quorumlock.Lease, error) { return nil, err })
}

// shutGate acquires the gate. A TryLockN goes on without one, with a nil lease, if others keep it
// for longer than a TryLockN takes: it needs the gate for order alone.
// A LockN that has lost its gate comes before all later calls.
func (s *collector) shutGate(waiting context.Context, w *watch) (*quorumlock.Lease, error) {
	switch {
	case !s.try && s.again:
		lease, err := s.gate.lockPlaced(waiting, waiting, waiting, &s.gate.config, s.ticket, w)
		return lease, s.ofGate(waiting, err)
	case !s.try:
		lease, err := s.gate.waitAndLock(waiting, w)
		return lease, s.ofGate(waiting, err)
	}
	lease, err := s.gate.tryOnce(waiting, w, s.gate.tries(), s.over)
	if !errors.Is(err, quorumlock.ErrHeld) {
		return lease, err
	}
	// The other TryLockN does not wait. It may fail, and leave its slots.
	limit, stop := context.WithTimeout(waiting, 3*s.lock.set.NodeTimeout)
	defer stop()
	lease, late := s.gate.waitAndLock(limit, w)
	if late != nil && waiting.Err() == nil && !errors.Is(late, quorumlock.ErrClosed) {
		return nil, nil
	}
	return lease, s.ofGate(waiting, late)
}

// ofGate returns the error of a wait for the gate. Its holder and its queue are not those of the
// semaphore.
func (s *collector) ofGate(waiting context.Context, err error) error {
	if _, ok := errors.AsType[*quorumlock.HeldError](err); !ok {
		return err
	}
	return errs.Join(s.over, waiting.Err(), &quorumlock.HeldError{Name: s.lock.name})
}

// lockAll acquires n slots in the order of the queue. The loss of a slot or of the gate cancels the
// waiting requests.
func (s *collector) lockAll(ctx, waiting, behind context.Context) (err error) {
	collecting, cancel := context.WithCancel(behind)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(maxCollected)
	var panicked any // what an Observer panicked with
	for range s.n {
		g.Go(func() error {
			got := false
			defer func() {
				if !got {
					if p := recover(); p != nil {
						s.mu.Lock()
						panicked = p
						s.mu.Unlock()
					}
					cancel()
				}
			}()
			lease, failed := s.lock.watchedSince(s.began, s.waited, ctx, false, func(l *Lock, ctx context.Context, w *watch) (*quorumlock.Lease, error) {
				if err := collecting.Err(); err != nil {
					return nil, err
				}
				return l.lockPlaced(ctx, collecting, waiting, &s.config, s.ticket, w)
			})
			s.mu.Lock()
			defer s.mu.Unlock()
			if failed != nil {
				err = cmp.Or(err, failed)
				return nil
			}
			got, s.all = true, append(s.all, permitOf(lease))
			context.AfterFunc(lease.Context(), cancel)
			return nil
		})
	}
	_ = g.Wait() // its functions return no error
	if panicked != nil {
		panic(panicked) // where the caller can recover
	}
	return err
}

// lockPlaced is Lock with the ticket of an earlier call. It gives up when limit is done, which is at
// the end of waiting or sooner.
func (l *Lock) lockPlaced(ctx, limit, waiting context.Context, config *core.Config, ticket int64, w *watch) (*quorumlock.Lease, error) {
	for !l.mayAsk(waiting) {
		if err := l.sitOut(limit); err != nil {
			return nil, err
		}
	}
	p := l.client.placeOf(l, ticket)
	defer l.client.leaveLocalQueue(p)
	for {
		if _, err := l.takePlace(limit, false, w, nil); err != nil {
			return nil, err
		}
		c := l.newSession(config, p.Ticket, p, w)
		lease, err := c.run(ctx, limit, nil)
		l.asked(waiting, lease, err)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// tryEach acquires n slots that are free, one after the other: several calls of TryLock at once
// would contend.
func (s *collector) tryEach(ctx context.Context) error {
	for range s.n {
		lease, err := s.lock.watchedSince(s.began, s.waited, ctx, true, func(l *Lock, ctx context.Context, w *watch) (*quorumlock.Lease, error) {
			return l.tryOnce(ctx, w, &s.config, s.over)
		})
		if err != nil {
			return err
		}
		s.all = append(s.all, permitOf(lease))
	}
	return nil
}

// settle gives holds that were renewed so far the options of the lock. It reports whether all are
// held, and ctx is not done.
func (s *collector) settle(ctx context.Context, all []permit) bool {
	config := &s.lock.config
	if s.try {
		config = s.lock.tries()
	}
	for _, p := range all {
		p.mu.Lock()
		p.machine.Settle(p.lock.client.time(), config)
		p.mu.Unlock()
	}
	if !s.lock.set.Renew && permits(all).Extend(ctx, 0) != nil { // a hold without renewal begins with its whole TTL
		return false
	}
	slots := make(map[int]bool, len(all)) // a slot that comes twice was lost in between
	for _, p := range all {
		slots[p.Slot()] = true
	}
	return ctx.Err() == nil && len(slots) == s.n && !slices.ContainsFunc(all, func(p permit) bool { return !p.alive() })
}

// refusal returns the error of a call that has released its slots. The error does not name one of
// these as the holder.
func (s *collector) refusal(waiting context.Context, err error, had []permit) error {
	held, ok := errors.AsType[*quorumlock.HeldError](err)
	if !ok || !slices.ContainsFunc(had, func(p permit) bool { return p.Owner() == held.Holder }) {
		return err
	}
	return errs.Join(s.over, waiting.Err(), &quorumlock.HeldError{Name: held.Name, Position: held.Position})
}

// each calls f for all permits at once. It returns a loss, or else the first error.
func each(all []permit, f func(p permit) error) (err error) {
	failed := make([]error, len(all))
	var g errgroup.Group
	for i, p := range all {
		g.Go(func() error {
			failed[i] = f(p)
			return nil // the others go on
		})
	}
	_ = g.Wait()
	for _, e := range failed {
		if errors.Is(e, quorumlock.ErrLost) {
			return e
		}
		err = cmp.Or(err, e)
	}
	return err
}

// release gives back permits that no caller has.
func release(ctx context.Context, all []permit) {
	_ = each(all, func(p permit) error { return p.lease.Unlock(context.WithoutCancel(ctx)) })
}

// permits is the hold of several slots, of one lease. The first has the lowest number.
type permits []permit

var _ quorumlock.Hold = permits(nil)

// leaseOf returns one lease over all permits; nil if there are none. If one of them is lost, all are.
func leaseOf(ctx context.Context, all permits) *quorumlock.Lease {
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b permit) int { return cmp.Compare(a.Slot(), b.Slot()) })
	in, _ := ctx.Value(settings.HeldKey{}).(*holds)
	for _, p := range slices.Backward(all) {
		in = &holds{p.session, in}
	}
	lease, lose := quorumlock.NewLease(context.WithValue(all[0].lease.Context(), settings.HeldKey{}, in), all)
	for _, p := range all {
		context.AfterFunc(p.lease.Context(), func() {
			lose(context.Cause(p.lease.Context()))
			_ = p.lock.client.Go(func() { all.fall(p) }) // once closed, all are lost
		})
	}
	return lease
}

// fall ends all holds if that of p is lost. Nobody would wait for the others' renewals.
func (ps permits) fall(p permit) {
	p.mu.Lock()
	loss, why := p.hold.loss, p.hold.why
	p.mu.Unlock()
	if loss == nil {
		return
	}
	_ = each(ps, func(p permit) error {
		return p.resign(context.Background(), "another permit of its lease was lost: "+loss.Reason, why)
	})
}

func (ps permits) Name() string            { return ps[0].Name() }
func (ps permits) Owner() quorumlock.Owner { return ps[0].Owner() }
func (ps permits) Token() uint64           { return ps[0].Token() }
func (ps permits) Slot() int               { return ps[0].Slot() }

// Slots does the work of Lease.Slots.
func (ps permits) Slots() []quorumlock.Slot {
	all := make([]quorumlock.Slot, len(ps))
	for i, p := range ps {
		all[i] = quorumlock.Slot{Number: p.Slot(), Owner: p.Owner(), TTL: max(time.Until(p.ValidUntil()), 0), Token: p.Token()}
	}
	return all
}

func (ps permits) HoldCount() (most int) {
	for _, p := range ps {
		most = max(most, p.session.HoldCount())
	}
	return most
}

func (ps permits) ValidUntil() (first time.Time) {
	for i, p := range ps {
		if until := p.ValidUntil(); i == 0 || until.Before(first) {
			first = until
		}
	}
	return first
}

func (ps permits) Extend(ctx context.Context, ttl time.Duration) error {
	return each(ps, func(p permit) error { return p.session.Extend(ctx, ttl) })
}

func (ps permits) EndLease(ctx context.Context, _ *quorumlock.Lease, keep time.Duration) error {
	return each(ps, func(p permit) error { return p.lease.UnlockAfter(ctx, keep) })
}
