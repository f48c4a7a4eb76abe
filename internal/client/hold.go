package client

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// hold is the set of leases that share one acquired lock; guarded by session.mu.
type hold struct {
	leases   []entered
	first    holds // of the first lease; set once
	loss     *quorumlock.LostError
	why      quorumlock.LossReason // of the loss
	over     bool                  // the last lease was unlocked, or the hold was detached or resigned
	ended    time.Duration         // end of the hold by the monotonic clock; valid if isOver
	kept     time.Duration         // by the monotonic clock; the nodes keep the lock until then
	released chan struct{}         // closed when the release is decided; nil until over
	waiting  []extension           // calls of Extend and Downgrade
	extends  int                   // their rounds under way
}

// entered is a lease of a hold, and the function that cancels its context.
type entered struct {
	lease *quorumlock.Lease
	lose  context.CancelCauseFunc
}

// find returns the index of a lease, or -1. Most callers look for the last one.
func (h *hold) find(l *quorumlock.Lease) int {
	for i := len(h.leases) - 1; i >= 0; i-- {
		if *h.leases[i].lease == *l {
			return i
		}
	}
	return -1
}

// extension is a call of Extend or Downgrade that waits for a round.
type extension struct {
	round int32 // nextRound: it has not begun
	ttl   time.Duration
	done  chan core.Round
	ctx   context.Context // of the caller
}

// maxExtends limits the rounds of Extend under way. Further calls share the next one.
const (
	maxExtends = 16
	nextRound  = -1
)

// isOver reports whether the hold was released, detached or lost.
func (h *hold) isOver() bool { return h.over || h.loss != nil }

// note records the time of the end of the hold. The caller sets over or loss next.
func (h *hold) note(now core.Time) {
	if !h.isOver() {
		h.ended = now.Mono
	}
}

// renewed tells the callers that wait for a round.
func (h *hold) renewed(r core.Round) {
	before := len(h.waiting)
	h.waiting = slices.DeleteFunc(h.waiting, func(w extension) bool {
		if w.round == r.ID {
			w.done <- r
		}
		return w.round == r.ID
	})
	if len(h.waiting) < before && r.ID != nextRound {
		h.extends--
	}
}

// extendRest begins the round that further calls of Extend share, after the end of another. The
// caller holds mu, and calls flush next.
func (c *session) extendRest(now core.Time) {
	if !slices.ContainsFunc(c.hold.waiting, func(w extension) bool { return w.round == nextRound }) {
		return
	}
	before, ttl := c.machine.LastRound(), time.Duration(0)
	for _, w := range c.hold.waiting {
		if w.round == nextRound {
			ttl = max(ttl, w.ttl)
		}
	}
	c.applyAt(now, core.Event{Kind: core.Extend, Keep: ttl})
	id := c.machine.LastRound()
	if id == before { // the hold has ended
		c.hold.renewed(core.Round{ID: nextRound})
		return
	}
	c.hold.extends++
	for i := range c.hold.waiting {
		if w := &c.hold.waiting[i]; w.round == nextRound {
			w.round = id
		}
	}
}

var _ quorumlock.Hold = (*session)(nil)

func (c *session) Name() string { return c.lock.name }

func (c *session) Owner() quorumlock.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownerOf(c.machine.Attempt())
}

func (c *session) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Token()
}

// Slot does the work of Lease.Slot.
func (c *session) Slot() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Slot()
}

func (c *session) HoldCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.hold.leases)
}

func (c *session) ValidUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.validUntil()
}

// validUntil is ValidUntil for callers that hold mu.
func (c *session) validUntil() time.Time {
	at, now := c.lock.client.read() // the wall clock may have been set since the hold began
	left := c.machine.Remaining(at)
	if c.hold.isOver() {
		left = min(left, c.hold.ended-at.Mono)
	}
	return now.Add(left)
}

// alive reports whether the lock is held.
func (c *session) alive() bool { return c.aliveAt(c.lock.client.time()) }

// aliveAt is alive for callers that have read the clock.
func (c *session) aliveAt(now core.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isAlive(now)
}

// isAlive is alive for callers that hold mu.
func (c *session) isAlive(now core.Time) bool {
	return c.machine.Phase() == core.Holding && c.machine.Remaining(now) > 0
}

// noticeLoss ends the leases if the validity is over: timers may be late, as after a suspend.
func (c *session) noticeLoss() {
	c.mu.Lock()
	if c.machine.Phase() == core.Holding {
		c.apply(core.Event{Kind: core.Tick})
	}
	c.flush()
}

// begin returns the first lease of an acquired lock. If the hold is lost already, it returns no
// lease and no error. Without a lease, it releases the hold.
func (c *session) begin(ctx context.Context) (*quorumlock.Lease, error) {
	c.mu.Lock()
	now := c.lock.client.time()
	err := c.lock.client.hold(now, c)
	var lease *quorumlock.Lease
	if err == nil && c.isAlive(now) {
		lease = c.lease(ctx)
		if c.taking.parked != nil { // until the first renewal, the nodes keep the expiry of the Detach
			c.applyAt(now, core.Event{Kind: core.Extend})
		}
	}
	c.flush()
	switch {
	case lease == nil:
		c.giveUp()
	case c.lock.set.Data != "":
		c.writeData(c.lock.set.TTL)
	}
	return lease, err
}

// lease adds a lease to the hold. The caller holds mu.
func (c *session) lease(ctx context.Context) *quorumlock.Lease {
	outer, _ := ctx.Value(settings.HeldKey{}).(*holds)
	in := &c.hold.first
	if in.session != nil {
		in = &holds{}
	}
	in.session, in.outer = c, outer
	lease, lose := quorumlock.NewLease(context.WithValue(ctx, settings.HeldKey{}, in), c)
	c.hold.leases = append(c.hold.leases, entered{lease, lose})
	return lease
}

// enter returns another lease of a hold, and asks no node. It must not prolong the hold, which
// WithMaxHold or WithoutRenewal may be meant to end.
func (c *session) enter(ctx context.Context, l *Lock) (*quorumlock.Lease, error) {
	c.mu.Lock()
	defer c.flush()
	now := c.lock.client.time()
	switch {
	case !c.isAlive(now):
		c.applyAt(now, core.Event{Kind: core.Tick}) // so that the next look does not find this hold again
		return nil, quorumlock.ErrLost
	case c.hold.over:
		return nil, quorumlock.ErrLost
	case !c.includes(l): // it was downgraded a moment ago
		return nil, upgrade(l, c.ownerOf(c.machine.Attempt()))
	}
	return c.lease(ctx), nil
}

// tellLoss ends the leases of a lost hold. The caller holds mu, so it must not block.
func (c *session) tellLoss(now core.Time, why core.Reason) {
	c.tellLossOf(now, c.lostError(why), c.lossReason(why))
}

func (c *session) tellLossOf(now core.Time, loss *quorumlock.LostError, reason quorumlock.LossReason) {
	c.hold.note(now)
	c.hold.loss, c.hold.why = loss, reason
	for _, e := range c.hold.leases {
		e.lose(loss)
	}
	c.lock.client.forget(c)
	if c.lock.gate { // the owner is that of no lease
		return
	}
	c.log(func(log *slog.Logger) {
		log.Warn("quorumlock: lease lost", "lock", c.lock.name, "owner", loss.Owner, "error", loss)
	})
	if len(c.hold.leases) > 0 {
		c.tell(quorumlock.Event{Kind: quorumlock.EventLost, Ended: true, Held: c.machine.Held(now), Reason: reason, Err: loss})
	}
}

// log logs from a goroutine of its own.
func (c *session) log(f func(log *slog.Logger)) {
	c.lock.client.tell(func() { f(c.lock.set.Logger) })
}

// EndLease implements [quorumlock.Hold].
func (c *session) EndLease(ctx context.Context, l *quorumlock.Lease, keep time.Duration) error {
	began := time.Now()
	if c.lock.client.Begin() != nil {
		// Close has cancelled the lease's context.
		return c.released(ctx, l, began, 0, false, quorumlock.ErrLost)
	}
	defer c.lock.client.End()
	held, ended, err := c.endLease(ctx, l, keep)
	return c.released(ctx, l, began, held, ended, err)
}

// released notifies the Observer, if there is one, of the end of an Unlock or a Detach, and returns
// err.
func (c *session) released(ctx context.Context, l *quorumlock.Lease, began time.Time, held time.Duration, ended bool, err error) error {
	if c.watch != nil {
		c.lock.set.Observer.Observe(ctx, quorumlock.Event{Kind: quorumlock.EventReleased, Lock: c.lock.name, Took: time.Since(began),
			Lease: l, Ended: ended, Held: held, Err: err})
	}
	return err
}

// endLease does the work of EndLease. ended reports whether this call ended a hold that was not
// lost; held is then the length of the hold.
func (c *session) endLease(ctx context.Context, l *quorumlock.Lease, keep time.Duration) (held time.Duration, ended bool, err error) {
	client := c.lock.client
	c.mu.Lock()
	if i := c.hold.find(l); i >= 0 {
		c.hold.leases = slices.Delete(c.hold.leases, i, i+1)
	}
	now := client.time()
	if keep > 0 { // another lease may have set a later time
		c.hold.kept = max(c.hold.kept, now.Mono+min(keep, math.MaxInt64-now.Mono))
	}
	c.applyAt(now, core.Event{Kind: core.Tick}) // the deadline may have passed
	last := len(c.hold.leases) == 0 && !c.hold.over
	if last { // with mu still held: no caller may enter a hold that is about to end
		if ended = c.hold.loss == nil; ended {
			held = c.machine.Held(now)
		}
		c.ctx = ctx
		c.unlock(now)
	}
	c.flush()
	if last {
		err = c.confirmed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold.loss != nil {
		err = c.hold.loss
	}
	return held, ended, err
}

// giveUp releases a hold that no caller has. The hold of an Attach goes back to the parked owner.
func (c *session) giveUp() {
	c.mu.Lock()
	if c.hold.over {
		c.mu.Unlock()
		return
	}
	now := c.lock.client.time()
	if c.taking.parked != nil {
		c.endHold(now, core.Event{Kind: core.GiveBack})
	} else {
		c.unlock(now)
	}
	c.flush()
	_ = c.confirmed()
}

// resign releases the hold. Leases that were not unlocked are lost, for a reason.
func (c *session) resign(ctx context.Context, reason string, why quorumlock.LossReason) error {
	c.mu.Lock()
	if c.hold.over {
		c.mu.Unlock()
		return c.confirmed()
	}
	now := c.lock.client.time()
	if c.hold.loss == nil && len(c.hold.leases) > 0 {
		c.tellLossOf(now, &quorumlock.LostError{Name: c.lock.name, Owner: c.ownerOf(c.machine.Attempt()), Reason: reason}, why)
	}
	c.ctx = ctx
	c.unlock(now)
	c.flush()
	return c.confirmed()
}

// close ends the call for a Close. The caller holds mu, and calls flush next.
func (c *session) close() {
	if !c.machine.Unclaimed() {
		c.apply(core.Event{Kind: core.Close})
		return
	}
	now := c.lock.client.time()
	c.tellLoss(now, core.Closed)
	c.ctx = context.Background()
	c.unlock(now)
}

// Resign releases the hold of a lease for an election. Leases that were not unlocked are lost.
func Resign(lease *quorumlock.Lease) error {
	in, _ := lease.Context().Value(settings.HeldKey{}).(*holds)
	if in == nil {
		return nil
	}
	if in.session.lock.client.Begin() != nil {
		return quorumlock.ErrLost // Close has cancelled their contexts
	}
	defer in.session.lock.client.End()
	return in.session.resign(lease.Context(), "the leadership under which it was entered again has ended", quorumlock.LossResigned)
}

// unlock ends and releases the hold. The key stays until hold.kept. The caller holds mu, and calls
// flush next.
func (c *session) unlock(now core.Time) {
	keep := max(c.hold.kept-now.Mono, 0)
	if keep > 0 {
		c.lock.client.keeps(c.number, keep)
	}
	c.endHold(now, core.Event{Kind: core.Unlock, Keep: keep})
}

// endHold ends the hold by an Unlock, a Detach or a GiveBack. The caller holds mu, and calls flush
// next.
func (c *session) endHold(now core.Time, e core.Event) {
	c.hold.note(now)
	c.hold.over = true
	c.hold.released = make(chan struct{})
	// Before the release is sent: refusals in favor of this hold then count as about to end.
	c.lock.client.forget(c)
	if e.Keep == 0 && !c.lock.shared && !c.downgraded.Load() {
		c.window.Store(c.leaveOpen(now))
	}
	c.applyAt(now, e)
	c.lock.client.cancelAlarm(c)
	if c.alarm.timer != nil {
		c.alarm.timer.Stop()
	}
}

// confirmed waits until the release is decided. It returns an error unless a quorum of each member
// has confirmed. No ctx ends the wait: every node answers within its timeout.
func (c *session) confirmed() error {
	if c.lock.set.Data != "" {
		c.endData()
	}
	<-c.hold.released
	c.mu.Lock()
	defer c.mu.Unlock()
	confirmed, broken := c.machine.Released()
	switch {
	case broken: // the keys were gone, so another owner could have held the lock
		return c.lostError(core.Gone)
	case !confirmed:
		return c.quorumError(c.machine.Confirmed())
	}
	return nil
}

// Extend implements [quorumlock.Hold].
func (c *session) Extend(ctx context.Context, ttl time.Duration) error {
	if set := &c.lock.set; set.MaxTTL > 0 && ttl > set.MaxTTL {
		return errs.Misusef("quorumlock: ExtendTo: %v is longer than WithRestartGuard(%v) expects of any client: use a shorter time, or a longer guard at all clients", ttl, set.MaxTTL)
	}
	if c.lock.client.Begin() != nil {
		return quorumlock.ErrLost // Close has cancelled the lease's context
	}
	defer c.lock.client.End()
	return c.extend(ctx, ttl)
}

// extend renews at once, independently of the watchdog.
func (c *session) extend(ctx context.Context, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	return c.renewNow(ctx, core.Event{Kind: core.Extend, Keep: ttl})
}

// Downgrade lets other owners share the hold of a lease of l.
func (l *Lock) Downgrade(ctx context.Context, lease *quorumlock.Lease) error {
	switch {
	case ctx == nil:
		return fmt.Errorf("quorumlock: Downgrade: %w", quorumlock.ErrNilContext)
	case ctx.Err() != nil:
		return ctx.Err()
	case lease == nil:
		return errs.Misuse("quorumlock: Downgrade: the lease is nil: use the one that Lock has returned")
	case l.err != nil:
		return l.err
	}
	in, _ := lease.Context().Value(settings.HeldKey{}).(*holds)
	if in == nil || !in.session.lock.over(l) {
		if lease.Name() == l.name {
			return errs.Misusef("quorumlock: Downgrade: the lease of %q is of another client, or of another kind of lock: use the RWMutex that has returned it", l.name)
		}
		return errs.Misusef("quorumlock: Downgrade: the lease is of the lock %q, not of %q", lease.Name(), l.name)
	}
	c := in.session
	if c.lock.client.Begin() != nil {
		return quorumlock.ErrLost // Close has cancelled the lease's context
	}
	defer c.lock.client.End()
	c.mu.Lock()
	c.apply(core.Event{Kind: core.Tick}) // the deadline may have passed
	var err error
	switch loss := c.hold.loss; {
	case loss != nil:
		err = loss
	case c.hold.find(lease) < 0:
		err = quorumlock.ErrNotHeld
	case c.lock.cells[0].Permits > 0:
		err = errs.Misusef("quorumlock: Downgrade: the lease of %q is a semaphore's: only the lease of a writer can be downgraded", l.name)
	case c.sharesCell(0):
		err = errs.Misusef("quorumlock: Downgrade: the lease of %q is a reader's: only the lease of a writer can be downgraded", l.name)
	case len(c.hold.leases) > 1:
		err = errs.Misusef("quorumlock: Downgrade: %d leases of this hold of %q are entered: unlock the others first, they may count on being alone", len(c.hold.leases), l.name)
	}
	if err != nil {
		c.flush()
		return err
	}
	c.downgraded.Store(true)
	c.lock.client.share(c)
	return c.renewNow(ctx, core.Event{Kind: core.Downgrade})
}

// renewNow makes the machine renew, and waits for the outcome or the end of ctx. The caller holds
// mu; renewNow releases it.
func (c *session) renewNow(ctx context.Context, e core.Event) error {
	done := make(chan core.Round, 1)
	before, id := c.machine.LastRound(), int32(nextRound)
	if e.Kind == core.Downgrade || c.hold.extends < maxExtends {
		c.apply(e)
		if id = c.machine.LastRound(); id != before {
			c.hold.extends++
		}
	}
	if id != before {
		c.hold.waiting = append(c.hold.waiting, extension{id, e.Keep, done, ctx})
	}
	c.flush()
	var r core.Round
	if id != before {
		select {
		case r = <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hold.loss != nil:
		return c.hold.loss
	case c.hold.over:
		return quorumlock.ErrNotHeld
	case !c.isAlive(c.lock.client.time()):
		return quorumlock.ErrLost
	case !r.Won:
		return c.quorumError(r.Members)
	}
	return nil
}
