package client

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// session is the shell of one machine of package core: a session of Lock, TryLock or Attach, and the hold
// that follows. It gives events to the machine, sends the machine's calls, and runs its timer.
//
// Steps may come from any goroutine. One goroutine at a time sends the calls of all steps, in the
// order of the steps and without mu: see flush.
type session struct {
	lock   *Lock
	watch  *watch // nil without an Observer
	number uint64 // in the call's owners
	order  uint64 // position among the client's calls, from 1
	caller wire.Caller
	place  *place        // in the local queue; nil for TryLock and Attach
	waits  chan struct{} // tells run's goroutine to listen; capacity 1; nil without place
	ears   ears          // used by the call's goroutine only
	listed listed        // guarded by Client.mu

	downgraded atomic.Bool  // other owners may share the hold; never reset
	window     atomic.Int64 // of the release for Redisson's clients: see leaveOpen

	mu      sync.Mutex
	machine *core.Machine
	at      core.Time       // of the last event
	ctx     context.Context // of the caller that waits for the replies; Background without one
	end     end
	tries   tries
	outbox  outbox
	alarm   alarmClock
	met     meeting
	taking  taking
	hold    hold
}

// end is how a call ends for its caller.
type end struct {
	decided chan struct{} // closed when outcome is set
	outcome core.Outcome
	fails   bool // flush closes decided
}

// tries is what the attempts of a call leave for the next, and for its error.
type tries struct {
	last     error // error of the last attempt with a known reason
	over     error // joined to refusals that may end with time: DeadlineExceeded for a Lock without time to wait
	failures int   // consecutive attempts without a quorum or too late
	asked    int   // requests with the first attempt, without those that were recalled
	recalls  bool  // some were recalled
	ticket   int64 // of the last attempt: see setTicket
	unsure   bool  // too few node clocks were known for ticket
	verdicts engine.Acceptance
}

// alarmClock wakes a session.
type alarmClock struct {
	timer *time.Timer
	at    time.Duration // when timer or the alarm comes, by the monotonic clock; 0 if not set
	place alarmed       // of a hold, in place of timer
}

// outbox has the calls that a session has yet to send. One goroutine at a time sends them.
type outbox struct {
	todo  []core.Call
	spare []core.Call // memory for later calls; length 0
	busy  bool        // a goroutine is in flush
}

// step gives an event to the machine, and takes the calls of the step.
func (o *outbox) step(m *core.Machine, now core.Time, e core.Event) *core.Effects {
	fx := m.StepAfter(o.todo, now, e)
	o.todo = fx.Calls
	return fx
}

// take empties the outbox.
func (o *outbox) take() []core.Call {
	calls := o.todo
	o.todo = o.spare
	return calls
}

// reuse takes the memory of sent calls back. Most sessions need one buffer.
func (o *outbox) reuse(calls []core.Call) {
	if o.spare = calls[:0]; len(o.todo) == 0 {
		o.todo, o.spare = o.spare, o.todo
	}
}

// newSession returns a session that has not started.
func (l *Lock) newSession(config *core.Config, ticket int64, p *place, w *watch) *session {
	c := &session{lock: l, watch: w, place: p, end: end{decided: make(chan struct{})}}
	if p != nil {
		c.caller.Secret, c.waits = rand.Text(), make(chan struct{}, 1)
	}
	c.order = l.client.calls.Add(1)
	c.number = l.client.newNumber(c.order)
	c.window.Store(engine.Ordinary)
	c.caller.Waiter, c.caller.First = l.client.waiterOf(c.number)
	c.caller.Ticket = ticket
	c.machine = core.New(config, c.trip, l.client.seed())
	return c
}

// trip returns the recent round trip to a cell's node, as health.roundTrip does.
func (c *session) trip(cell int) time.Duration {
	return c.lock.client.health.roundTrip(c.lock.cells[cell].Node, c.lock.set.NodeTimeout/24)
}

// step gives events to the machine, and sends its calls unless another goroutine is in flush.
func (c *session) step(events ...core.Event) {
	c.mu.Lock()
	now := c.lock.client.time()
	for _, e := range events {
		c.applyAt(now, e)
	}
	c.flush()
}

// apply gives one event to the machine. The caller holds mu, and calls flush next.
func (c *session) apply(e core.Event) { c.applyAt(c.lock.client.time(), e) }

// applyAt is apply for callers that have read the clock. Another event may have come since.
func (c *session) applyAt(now core.Time, e core.Event) {
	now = now.Latest(c.at)
	attempt, _ := c.machine.Attempt()
	fx := c.outbox.step(c.machine, now, e)
	c.at = now
	if c.watch != nil && c.end.outcome == core.Undecided {
		if n, _ := c.machine.Attempt(); n > attempt {
			c.watch.note(quorumlock.StepAttempt, nil)
		}
	}
	if fx.Listen {
		c.wantListen()
	}
	if fx.Late && !c.lock.gate {
		owner, until, err := c.ownerOf(c.machine.Attempt()), c.validUntil(), c.quorumError(fx.Won)
		c.log(func(log *slog.Logger) {
			log.Warn("quorumlock: renewal late, trying again until the lease ends",
				"lock", c.lock.name, "owner", owner, "until", until, "error", err)
		})
		c.tell(quorumlock.Event{Kind: quorumlock.EventRenewalLate, Err: err})
	}
	if fx.Waiting {
		c.failed(fx.Reason)
	}
	if bug := fx.Bug; bug != "" {
		c.log(func(log *slog.Logger) {
			log.Error("quorumlock: please report this bug", "lock", c.lock.name, "bug", bug)
		})
	}
	if fx.Lost != core.NoReason {
		c.tellLoss(now, fx.Lost)
	}
	for _, r := range fx.Rounds {
		c.hold.renewed(r)
		if r.Won && c.lock.set.Renew {
			c.tell(quorumlock.Event{Kind: quorumlock.EventRenewed, Lag: r.Lag})
		}
	}
	if fx.Released {
		close(c.hold.released)
	}
	if fx.Outcome != core.Undecided {
		c.end.outcome, c.ctx = fx.Outcome, context.Background()
		if fx.Outcome == core.Acquired {
			c.grantedBeside()
		}
		if _, handed := c.machine.Attempt(); c.watch != nil && handed && fx.Outcome == core.Acquired {
			c.watch.handed = true
		}
		if fx.Outcome == core.Failed && fx.Reason != core.Cancelled {
			c.tries.last = c.failure(fx.Reason)
			if c.tries.over != nil && fx.Reason != core.WrongUse {
				c.tries.last = errs.Join(c.tries.over, c.tries.last)
			}
		}
		if fx.Outcome == core.Acquired {
			close(c.end.decided)
		} else { // flush does: see notSent
			c.end.fails = true
		}
	}
	c.arm()
	if len(fx.Rounds) > 0 { // last, since the machine's next step overwrites fx
		c.extendRest(now)
	}
}

// failed records the reason of a failed attempt. HeldOrNone and NoToken leave the previous reason.
func (c *session) failed(why core.Reason) {
	if why == core.HeldOrNone || why == core.NoToken {
		c.watch.note(quorumlock.StepWaiting, nil)
		return
	}
	c.tries.last = c.failure(why)
	c.watch.note(quorumlock.StepWaiting, c.tries.last)
	message := "quorumlock: no quorum, trying again until there is one"
	switch why {
	case core.Held:
		c.tries.failures = 0
		return
	case core.TooLate:
		message = "quorumlock: granted too late, trying again"
	}
	if c.tries.failures++; c.tries.failures == 1 {
		err := c.failure(why) // not c.tries.last, to which the caller may add data: see withData
		c.log(func(log *slog.Logger) { log.Warn(message, "lock", c.lock.name, "error", err) })
	}
}

// arm sets the timer to the machine's next wake-up. The timer may fire early, but not late.
func (c *session) arm() {
	wake := c.machine.Wake()
	if wake == 0 || c.alarm.at != 0 && c.alarm.at <= wake {
		return
	}
	c.alarm.at = wake
	if c.machine.Phase() == core.Holding {
		c.lock.client.wakeAt(c, wake)
		return
	}
	in := wake - c.lock.client.mono()
	if c.alarm.timer == nil {
		c.alarm.timer = time.AfterFunc(in, c.timeout)
	} else {
		c.alarm.timer.Reset(in)
	}
}

func (c *session) timeout() {
	if c.lock.client.Begin() != nil {
		return
	}
	defer c.lock.client.End()
	if c.place == nil {
		// Go runs the function of a timer at once. If goroutines compute, the readers of a TryLock's
		// answers wait for their turn. This lets them go first, and measures the delay.
		runtime.Gosched()
	}
	c.tick(c.lock.client.time())
}

func (c *session) tick(now core.Time) {
	c.mu.Lock()
	c.alarm.at = 0
	c.applyAt(now, core.Event{Kind: core.Tick})
	c.flush()
}

// flush sends the calls in todo until none is left. If another goroutine does so already, flush
// returns at once. The caller holds mu; flush releases it.
func (c *session) flush() {
	if c.outbox.busy {
		c.mu.Unlock()
		return
	}
	c.outbox.busy = true
	for len(c.outbox.todo) > 0 {
		calls, ctx := c.outbox.take(), c.ctx
		c.mu.Unlock()
		c.send(ctx, calls)
		c.mu.Lock()
		c.outbox.reuse(calls)
	}
	if c.outbox.busy = false; c.end.fails {
		c.end.fails = false
		if c.notSent() {
			c.tries.last = errs.Join(c.tries.over, quorumlock.ErrUnsent)
		}
		close(c.end.decided)
	}
	c.mu.Unlock()
}

// notSent reports whether a TryLock has failed without a quorum, and all its requests were recalled
// before they were sent. The caller holds c.mu, and has sent the releases, which recall the
// requests.
func (c *session) notSent() bool {
	attempts, _ := c.machine.Attempt()
	return c.place == nil && attempts == 1 && c.tries.recalls && c.tries.asked == 0 && errors.Is(c.tries.last, quorumlock.ErrNoQuorum)
}

// send sends calls, grouped by node. ctx belongs to the caller that waits for the replies. Renewals
// have another: see extension.
func (c *session) send(ctx context.Context, calls []core.Call) {
	m, asked := newEncoder(c), core.Time{}
	defer m.free()
	renews, asks := false, slices.ContainsFunc(calls, func(k core.Call) bool { return k.Do == core.Acquire })
	for i := range calls {
		renews = renews || calls[i].Do.Renews()
		if calls[i].Do.Queues() && m.entry.Waiter == "" {
			m.hint = c.lock.hint()
			m.entry, asked = c.entry(asks)
		}
	}
	if renews {
		c.mu.Lock()
		left := c.machine.Remaining(c.at)
		extends, urgent := context.Background(), len(c.hold.waiting) > 0
		if urgent {
			extends = c.hold.waiting[0].ctx
		}
		c.mu.Unlock()
		c.lock.client.renew(extends, c, calls, left, urgent)
		if c.lock.set.Data != "" {
			c.renewData(calls)
		}
	}
	now := c.lock.client.mono()
	for _, n := range c.lock.nodes {
		b := newRequest(c, n, now)
		b.asked, b.ticket, b.unsure, b.placed, b.frees = asked, m.entry.Ticket, m.entry.Unsure, false, true
		for i := range calls {
			if k := &calls[i]; !k.Do.Renews() && c.lock.cells[k.Cell].Node == n {
				b.calls = append(b.calls, *k)
				b.placed, b.frees = b.placed || k.Do == core.Acquire && k.Attempt == 1, b.frees && k.Do.Frees()
				m.scripts = append(m.scripts, m.script(k))
			}
		}
		if len(b.calls) == 0 {
			b.free()
			continue
		}
		c.lock.client.send(ctx, n, Foreground, c.lock.set.NodeTimeout, m.scripts, b.answered)
		m.forget()
	}
	if asks && !m.entry.Unsure {
		c.settle(m.entry.Ticket)
	}
}

// entry returns the waiter's entry for the queues of the nodes, and the time of the last event,
// which is before the entry is sent. asks reports that an attempt begins, which needs a ticket.
func (c *session) entry(asks bool) (wire.Entry, core.Time) {
	c.mu.Lock()
	life := c.machine.Life()
	if asks {
		attempt, _ := c.machine.Attempt()
		if attempt == 1 {
			c.tries.asked = len(c.lock.nodes)
		}
		c.setTicket(attempt)
	}
	ticket, unsure, at := c.tries.ticket, c.tries.unsure, c.at
	c.mu.Unlock()
	e := wire.Entry{Waiter: c.caller.Waiter, Ticket: ticket, Unsure: unsure, TTL: life, Callers: c.callers()}
	if c.place != nil && c.place.queue.InOrder() {
		e.Queue, e.Decided = c.place.queue, c.end.decided
	}
	return e, at
}

// encoder makes scripts of a machine's calls.
type encoder struct {
	session *session
	hint    uint64
	entry   wire.Entry  // the waiter's entry, to which scripts refer
	scripts []wire.Call // of one request; kept for the next

	owner     quorumlock.Owner // of the last script, as the next two fields
	attempt   int32
	successor bool
}

// encoders has encoders for reuse.
var encoders = sync.Pool{New: func() any { return &encoder{} }}

func newEncoder(c *session) *encoder {
	m := encoders.Get().(*encoder)
	m.session = c
	return m
}

// forget empties scripts.
func (m *encoder) forget() {
	clear(m.scripts)
	m.scripts = m.scripts[:0]
}

func (m *encoder) free() {
	*m = encoder{scripts: m.scripts[:0]}
	if cap(m.scripts) > maxScripts {
		m.scripts = nil
	}
	encoders.Put(m)
}

// maxScripts limits the memory of an encoder. A MultiLock of many locks has more.
const maxScripts = 64

// script returns the script of a call. That of a call that queues refers to m.entry.
func (m *encoder) script(k *core.Call) wire.Call {
	c := m.session
	if m.owner == "" || k.Attempt != m.attempt || k.Successor != m.successor {
		m.owner, m.attempt, m.successor = c.ownerOf(k.Attempt, k.Successor), k.Attempt, k.Successor
	}
	cell := &c.lock.cells[k.Cell]
	s := c.caller.Script(&c.lock.terms, c.lock, k, m.owner, &m.entry, m.hint)
	switch window := c.window.Load(); {
	case cell.Permits > 0:
		if s = s.OfSemaphore(cell.Permits, int(k.Slot)); k.Other > 0 {
			s = s.Only(int(k.Other) - 1)
		}
		return s
	case window != engine.Ordinary && !cell.Shared && !k.Shared:
		return s.Open(time.Duration(window)*time.Millisecond, c.lock.client.place)
	}
	return s
}

// ownerOf returns the owner of an attempt, or of its successor.
func (c *session) ownerOf(attempt int32, successor bool) quorumlock.Owner {
	return c.caller.Owner(attempt, successor)
}

// request is the set of calls that a session sends to one node at one time.
type request struct {
	session  *session
	node     Node
	calls    []core.Call
	sent     time.Duration // by the monotonic clock
	asked    core.Time     // time of the last event before sent; zero unless calls may queue the waiter
	ticket   int64         // of the waiter's entry, and whether it is unsure: see wire.Entry
	unsure   bool
	placed   bool // a first attempt, which has a place: see takePlace
	frees    bool // see core.Do.Frees
	answered func([]wire.Reply)
}

// requests has finished requests, whose memory is reused.
var requests sync.Pool

func newRequest(c *session, n Node, now time.Duration) *request {
	b, ok := requests.Get().(*request)
	if !ok {
		b = &request{}
		b.answered = b.deliver
	}
	b.session, b.node, b.calls, b.sent = c, n, b.calls[:0], now
	return b
}

func (b *request) free() {
	b.session, b.node = nil, nil
	requests.Put(b)
}

// deliver handles the node's replies.
func (b *request) deliver(replies []wire.Reply) {
	c := b.session
	client := c.lock.client
	defer client.End()
	landed := client.mono()
	if errors.Is(replies[0].Err, wire.ErrRecalled) {
		if b.placed {
			client.returnPlaces(b.node)
		}
		b.recalled()
		return
	}
	client.answered(b.node, replies, b.sent, landed, b.placed, &c.lock.set)
	c.mu.Lock()
	var now core.Time
	if b.frees {
		now = client.lately()
	} else {
		now = client.time()
	}
	client.readClock(b.node, replies, b.asked, now)
	for i := range replies {
		replies[i].Err = c.reply(now, &b.calls[i], replies[i])
	}
	c.judged(now, b, replies)
	// After all replies, because a later one may make a release unnecessary.
	for i := range replies {
		c.keepPending(&b.calls[i], replies[i].Err)
	}
	b.free()
	c.flush()
}

// recalled handles a first attempt and its release that were not sent.
func (b *request) recalled() {
	c := b.session
	answers := c.lock.client.health.answers(b.node)
	c.mu.Lock()
	now := c.lock.client.time()
	if b.placed {
		c.tries.asked--
		c.tries.recalls = true
	}
	for i := range b.calls {
		c.applyAt(now, core.Event{Kind: core.Replied, Call: b.calls[i], Reply: engine.Recalled(b.calls[i].Do, answers)})
	}
	b.free()
	c.flush()
}

// replied is reply, keepPending and flush for a single reply. It takes mu.
func (c *session) replied(now core.Time, k *core.Call, reply wire.Reply) {
	c.mu.Lock()
	c.keepPending(k, c.reply(now, k, reply))
	c.flush()
}

// reply gives a reply to the machine, and returns the error of a failed call. The caller holds mu,
// and calls keepPending and flush next.
func (c *session) reply(now core.Time, k *core.Call, reply wire.Reply) error {
	r := c.read(now, k, reply)
	c.applyAt(now, core.Event{Kind: core.Replied, Call: *k, Reply: r})
	return r.Err
}

// read converts a reply for the machine, and records the token of a grant and a Redisson holder.
func (c *session) read(now core.Time, k *core.Call, reply wire.Reply) core.Reply {
	r := c.caller.Read(k, reply, c.lock.client.ended)
	if k.Do == core.Acquire && r.OK {
		c.lock.saw(now.Mono, r.Token)
	}
	if k.Do == core.Acquire && !r.OK && !r.Free && wire.IsRedisson(r.Holder) {
		c.meetRedisson(int(k.Cell), r)
	}
	return r
}

// keepPending makes a release or leave pending if it has failed, but not for good, or if an earlier
// call may still run. The caller holds mu.
func (c *session) keepPending(k *core.Call, err error) {
	again, twice, is := engine.Pending(c.machine, k, err, err != nil && !isFinal(err))
	if !is {
		return
	}
	l := c.lock
	life := max(l.set.TTL, c.machine.Life(), c.machine.Promised()-c.at.Mono)
	p := pendingRelease{call: (&encoder{session: c}).script(&again), life: life, until: time.Now().Add(life)}
	l.client.addPending(pendingAt{l.cells[k.Cell].Node, err != nil && !isDown(err)}, p, twice, err == nil)
}

// callers returns how many calls of this process the waiter's entry stands for.
func (c *session) callers() int {
	if c.place == nil {
		return 1
	}
	return c.lock.client.callers(c.place)
}

// run starts the call, and returns the result of await.
func (c *session) run(ctx, waiting context.Context, entered <-chan struct{}) (*quorumlock.Lease, error) {
	c.ctx = ctx
	c.lock.client.enlist(c)
	defer c.unlisten()
	if c.waits != nil && c.lock.client.redisson.some.Load() > 0 {
		c.joinRedisson()
	}
	c.step(core.Event{Kind: core.Start})
	return c.await(ctx, waiting, entered)
}

// await returns a lease when the call has the lock, and an error when it has failed. It gives up
// when waiting is done, or the client stops. Without a lease and an error, the caller looks again
// for a hold to enter.
func (c *session) await(ctx, waiting context.Context, entered <-chan struct{}) (*quorumlock.Lease, error) {
	client := c.lock.client
	var why error
	var long <-chan time.Time
	var own quorumlock.Owner // the hold of this client that the call began to wait for
	again := false
	for wait := true; wait; {
		wait = false
		select {
		case <-c.end.decided:
		case <-c.waits:
			if own == "" && len(c.lock.ofMutexes) > 0 && !c.lock.gate {
				if own = client.holderOf(c.lock); own != "" {
					long = time.After(c.lock.set.TTL)
				}
			}
			c.listen()
			wait = true
		case <-long:
			if client.holderOf(c.lock) == own {
				c.waitsForOwn(own)
			}
			wait = true
		case <-waiting.Done():
			why = waiting.Err()
		case <-client.stopping:
			why = quorumlock.ErrClosed
		case <-entered: // the hold may have ended since
			again = client.enters(c.lock)
			wait = !again
		}
	}
	if why != nil || again {
		c.step(core.Event{Kind: core.Cancel})
		<-c.end.decided
	}
	c.mu.Lock()
	acquired := c.end.outcome == core.Acquired
	c.mu.Unlock()
	if acquired {
		return c.begin(ctx)
	}
	client.forget(c)
	switch {
	case again:
		return nil, nil
	case errors.Is(why, quorumlock.ErrClosed), why != nil && c.place == nil:
		return nil, why
	case why != nil:
		if held := c.lock.heldHere(); c.tries.last == nil && held.Own {
			return nil, errs.Join(why, held)
		}
		return nil, errs.Join(why, c.tries.last)
	}
	return nil, c.tries.last
}

// waitsForOwn logs that the call may be within the hold that it waits for, without its context.
func (c *session) waitsForOwn(holder quorumlock.Owner) {
	c.log(func(log *slog.Logger) {
		log.Warn("quorumlock: a Lock has waited a whole TTL for one lease of its own process", "lock", c.lock.name, "owner", holder)
	})
}
