package coresim

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// watch looks at every script that runs and knows every hold.
type watch struct {
	*tier
	grants     int
	ends       int           // of holds, by Unlock
	successors int           // grants to successors
	attempts   int           // by the calls that were granted the lock
	waited     time.Duration // by them
	scripts    int
	was, is    shot
	// The first argument of the running script: the owner, or the waiter that leaves.
	me        []byte
	holds     []*hold
	calls     []*worker // workers in a call, in the order of their calls
	names     [len(names)]granted
	slots     []granted                 // of the semaphore
	lastMoves [len(names)]time.Duration // by name: see progress
	keeps     bool                      // the plan's
	moves     int                       // of peers, at the last audit
	changes   int                       // see paced
	unchecked bool                      // scripts are only counted
	spans     []span
	kept      []span // of locks that Unlock has left for a while
	refused   []span
	waits     []span                      // of waiters for a lock alone
	places    [][len(names)]places        // by node
	taken     [][len(names)]time.Duration // by node: when an audit last found a holder
}

// The keys of a lock.
type keys struct{ lock, queue, entries, token, slots string }

var keysOf = func() (all [len(names)]keys) {
	for i, name := range names {
		all[i] = keys{name, wire.QueueKey(name), wire.EntriesKey(name), wire.TokenKey(name), wire.SlotsKey(name)}
	}
	return all
}()

// shot is a node's state of a lock.
type shot struct {
	holders []scriptmodel.Field // without those of shares that are over
	fields  int                 // of the lock, with those
	slots   []int               // of the holders; empty for a lock that is no semaphore
	tokens  []scriptmodel.Field // of the slots
	shared  bool
	ms      int64 // of the node's clock
	expires int64
	token   string
	queue   []scriptmodel.Member
	entries []scriptmodel.Field
}

// places has the places of a lock's keys at a node.
type places struct{ lock, queue, entries, token, slots scriptmodel.Place }

// read looks at a lock at a node, and returns the time by the node's clock, in ms.
func (s *shot) read(w *watch, node, name int) (ms int64) {
	n, now := w.world.Node(node)
	if w.places == nil {
		w.places = make([][len(names)]places, w.plan.Nodes)
		for i := range w.places {
			n, _ := w.world.Node(i)
			for j := range names {
				k := &keysOf[j]
				w.places[i][j] = places{n.Place(k.lock), n.Place(k.queue), n.Place(k.entries), n.Place(k.token), n.Place(k.slots)}
			}
		}
	}
	p := &w.places[node][name]
	v, _ := n.Look(now, p.queue)
	s.queue = append(s.queue[:0], v.Members...)
	v, _ = n.Look(now, p.entries)
	s.entries = append(s.entries[:0], v.Fields...)
	if s.slots = s.slots[:0]; name == semaphore {
		s.readSlots(n, now, p)
		return s.ms
	}
	v, _ = n.Look(now, p.lock)
	s.holders, s.expires, s.ms, s.shared = s.holders[:0], v.Expires, int64(now/1000), false
	s.fields = len(v.Fields)
	for i := range v.Fields {
		s.shared = s.shared || v.Fields[i].Name == "mode" && v.Fields[i].Value == "shared"
	}
	for i := range v.Fields {
		f := &v.Fields[i]
		if f.Name == "mode" || s.shared && milliseconds(f.Value) < s.ms { // its share is over
			continue
		}
		s.holders = append(s.holders, *f)
	}
	v, _ = n.Look(now, p.token)
	s.token = v.Text
	return s.ms
}

func (s *shot) holder(who []byte) string {
	for i := range s.holders {
		if string(who) == s.holders[i].Name {
			return s.holders[i].Value
		}
	}
	return ""
}

func (s *shot) entry(waiter string) string {
	for i := range s.entries {
		if s.entries[i].Name == waiter {
			return s.entries[i].Value
		}
	}
	return ""
}

// deadline is until when a waiter's entry is kept, ms of the node's clock.
func (s *shot) deadline(waiter string) int64 { return milliseconds(s.entry(waiter)) }

// milliseconds reads the digits with which a text begins.
func milliseconds(s string) (ms int64) {
	for i := 0; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		ms = ms*10 + int64(s[i]-'0')
	}
	return ms
}

// heir is the successor of a waiter in the form that the node stores; empty if there is none.
func (s *shot) heir(waiter string) string {
	f := strings.Fields(s.entry(waiter))
	if len(f) != 7 {
		return ""
	}
	return waiter + "/" + f[5] + "." + f[4]
}

func (s *shot) ticket(waiter string) (float64, bool) {
	for i := range s.queue {
		if s.queue[i].Name == waiter {
			return s.queue[i].Score, true
		}
	}
	return 0, false
}

// granted has the grants of a lock.
type granted struct {
	tokens []token
	count  int
	alone  int // exclusive ones among them
}

type token struct {
	token  uint64
	began  time.Duration // of the first attempt of its call
	at     time.Duration // the grant
	shares bool
}

// activity is the activity for a call.
type activity struct {
	first    time.Duration
	last     time.Duration // when a script of it was last sent, ran or was answered
	finished bool
	// Nodes at which a script ran after its connection had been abandoned, as bits.
	late     uint64
	ran      map[int64]bool
	promises [][2]promise // of each cell, to the attempt's owner and to its successor
}

// promise is a TTL that a node gave a lock.
type promise struct {
	attempt int32
	at      time.Duration // by the monotonic clock of the process
	ttl     time.Duration
	slot    int // of a semaphore
}

func (a *activity) begin(t *tier, c *call) {
	a.first, a.last = t.world.Now(), t.world.Now()
	a.promises = make([][2]promise, c.lock.Cells())
}

// finish notes that nothing more is asked for the call.
func (a *activity) finish(t *tier) { a.finished, a.last = true, t.world.Now() }

func (w *watch) begin(t *tier) {
	w.tier, w.taken, w.slots = t, make([][len(names)]time.Duration, t.plan.Nodes), make([]granted, t.plan.Permits)
	w.keeps = t.plan.keeps()
}

// before is called before a script runs.
func (w *watch) before(node, number int) {
	if w.unchecked {
		return
	}
	it := w.sent[number].item
	if it.call == nil { // of the latch
		return
	}
	w.was.read(w, node, it.call.lock.nameNumber(int(it.k.Cell)))
}

// after is called after a script ran, and checks its effects.
func (w *watch) after(_, node, number int, s *wire.Call, reply wire.Reply) {
	w.scripts++
	if w.unchecked {
		return
	}
	l, it := w.sent[number].lane, w.sent[number].item
	c, k := it.call, &it.k
	if c == nil {
		if w.traces {
			w.note("n%d: latch: %v -> %v %v", node+1, s.Args(), reply.Value, reply.Err)
		}
		return
	}
	name := c.lock.nameNumber(int(k.Cell))
	ms := w.is.read(w, node, name)
	w.me = s.AppendArg(w.me[:0], 0)
	c.last = w.world.Now()
	if it.flight != l.flights || it.batch.answered || c.process.dead {
		c.late |= 1 << node
	}
	if w.traces {
		w.note("n%d: %s attempt %d of %s, cell %d, retried %v: %v -> %v %v", node+1, names[name], k.Attempt, c.caller.Waiter, k.Cell, it.retried, s.Args(), reply.Boxed().Value, reply.Err)
	}
	if reply.Err != nil && w.occupied() {
		w.untouchable(node, name)
		return
	}
	if reply.Err != nil {
		w.violate(yesToHolder, "n%d failed: %v", node+1, reply.Err)
		return
	}
	ok, first, refused := false, false, false
	switch k.Do {
	case core.Acquire, core.Restore:
		a, err := reply.Acquired()
		ok = err == nil && a.Granted
		first = ok && !a.Again
		refused = err == nil && !a.Granted && !a.Free && !a.Elsewhere
	case core.Raise, core.Renew, core.Keep:
		ok, _ = reply.Done()
	case core.Attach:
		a, err := reply.Transferred()
		ok = err == nil && a.OK
	}
	w.keptLate = w.keptLate || ok && k.Do == core.Keep && w.probe != nil
	if ok && w.is.holder(w.me) == "" {
		w.violate(yesToHolder, "n%d said yes to %s, who does not hold", node+1, w.me)
	}
	if ok && k.Do != core.Raise {
		c.promised(w.tier, k.Attempt, k.Successor, int(k.Cell), w.is.left(string(w.me)), w.is.slotOf(string(w.me)))
	}
	if name == semaphore {
		_, queued := reply.Clock()
		w.slotted(node, it, ok, refused && !queued)
	} else {
		w.sharing(node, k, refused)
	}
	w.once(node, c, k, name)
	w.untouched(node, ms, c, k)
	w.handed(node, ms, k)
	if first && k.Do == core.Acquire {
		w.inTurn(node, ms, it, c.lock.shares(name))
	}
	if len(w.is.holders) > 0 && w.is.expires == 0 {
		w.violate(nothingStays, "n%d has %s without an expiry", node+1, names[name])
	}
}

// untouchable checks that a key that is no lock stays as it is.
func (w *watch) untouchable(node, name int) {
	n, now := w.world.Node(node)
	if v, ok := n.Peek(now, keysOf[name].lock); ok && v.Text != "mine" {
		w.violate(othersHold, "n%d: a key that is no lock has become %+v", node+1, v)
	}
}

func (c *call) promised(t *tier, attempt int32, successor bool, cell int, ttl time.Duration, slot int) {
	i := 0
	if successor {
		i = 1
	}
	p := &c.promises[cell][i]
	if attempt >= p.attempt {
		*p = promise{attempt, t.now(c.process.number).Mono, ttl, slot}
	}
}

// once checks that a script of which an owner sends one ran once.
func (w *watch) once(node int, c *call, k *core.Call, name int) {
	if k.Do != core.Acquire && k.Do != core.Raise {
		return
	}
	key := int64(k.Attempt)<<20 | int64(k.Cell)<<8 | int64(node)<<2 | int64(k.Do)
	if k.Successor {
		key |= 1 << 60
	}
	if c.ran == nil {
		c.ran = make(map[int64]bool, 8)
	}
	if c.ran[key] {
		w.violate(once, "n%d ran %d of %s for %s again", node+1, k.Do, names[name], w.me)
	}
	c.ran[key] = true
}

// untouched checks that a script has changed nothing of other owners and waiters.
func (w *watch) untouched(node int, now int64, c *call, k *core.Call) {
	waiter := string(c.caller.Waiter)
	others := false
	for i := range w.was.holders {
		h := &w.was.holders[i]
		if passes(c, k, h.Name) && w.is.holder([]byte(h.Name)) == "" {
			continue // passed on
		}
		if string(w.me) == h.Name || (k.Do == core.Acquire || k.Do == core.Restore || k.All) && isSuccessorOf(h.Name, waiter) {
			continue
		}
		others = !w.was.shared // the holders of a shared lock may become more
		if w.is.holder([]byte(h.Name)) != h.Value {
			w.violate(othersHold, "n%d: what %s sent changed the hold of %s", node+1, waiter, h.Name)
		}
	}
	if others && (w.is.expires != w.was.expires || w.is.token != w.was.token || len(w.is.holders) > len(w.was.holders)) {
		w.violate(othersHold, "n%d: what %s sent changed somebody else's hold: %+v, %+v", node+1, waiter, w.was, w.is)
	}
	if len(w.is.token) < len(w.was.token) || len(w.is.token) == len(w.was.token) && w.is.token < w.was.token {
		w.violate(tokensRise, "n%d: what %s sent set the counter from %s to %s", node+1, waiter, w.was.token, w.is.token)
	}
	for i := range w.was.queue {
		who := w.was.queue[i].Name
		if i < len(w.is.queue) && w.is.queue[i].Name == who || who == waiter {
			continue
		}
		served := slices.ContainsFunc(w.is.holders, func(h scriptmodel.Field) bool { return isSuccessorOf(h.Name, who) })
		if _, stays := w.is.ticket(who); !stays && w.was.deadline(who) > now && !served {
			w.violate(othersPlace, "n%d: what %s sent took %s out of the queue", node+1, waiter, who)
		}
	}
}

// passes reports whether an owner is the old or the new one of a call that passes a hold.
func passes(c *call, k *core.Call, who string) bool {
	own, cell := c.caller.Owner(k.Attempt, k.Successor), int(k.Cell)
	switch k.Do {
	case core.Park:
		return who == string(wire.OfCell(own, cell)) || who == string(wire.OfCell(c.caller.Parked, cell))
	case core.Attach, core.Return:
		return who == string(wire.OfCell(own, cell)) || who == string(wire.OfCell(c.caller.Former, int(k.Of)))
	}
	return false
}

func isSuccessorOf(owner, waiter string) bool {
	return len(owner) > len(waiter) && owner[len(waiter)] == '/' && owner[:len(waiter)] == waiter
}

// returned notes that a worker's call has returned.
func (w *watch) returned(k *worker) {
	w.calls = slices.DeleteFunc(w.calls, func(o *worker) bool { return o == k })
	w.changes++
	if k.hold == nil && w.plan.Class == calm {
		w.gaveUp(k)
	}
}

// inCallOrder checks the order of grants while nothing fails. When a call gets the lock, no earlier
// call of the same process for the same lock may still wait. Locks that several callers can have at
// one time are exempt: they share it, or find free slots in any order.
func (w *watch) inCallOrder(k *worker) {
	if w.plan.Class != calm || k.place == nil || !k.lock.isAlone() {
		return
	}
	for _, o := range w.calls {
		if o == k {
			return
		}
		if o.process == k.process && o.place != nil && o.localQueue() == k.localQueue() {
			w.violate(callOrder, "the call of w%d was granted past that of w%d", k.number+1, o.number+1)
		}
	}
}

// inTurn checks that no call is granted a lock past its waiters.
func (w *watch) inTurn(node int, now int64, it *item, shares bool) {
	waiter, ticket := string(it.entry.Waiter), nodeTicket(&it.entry, now)
	if joined, stands := w.was.ticket(waiter); stands {
		ticket = min(ticket, joined)
	}
	for i := range w.was.holders {
		if isSuccessorOf(w.was.holders[i].Name, waiter) {
			return // it was granted before, in turn
		}
	}
	if it.call.lock.permits(int(it.k.Cell)) > 0 {
		if before := w.was.before(waiter, ticket, now); before+len(w.was.holders) >= w.plan.Permits {
			w.violate(ticketOrder, "n%d granted a slot to %s past %d earlier waiters, with %d slots taken", node+1, w.me, before, len(w.was.holders))
		}
		return
	}
	for _, m := range w.was.queue {
		if m.Name != waiter && m.Score < ticket && w.was.deadline(m.Name) > now && !(shares && w.was.isPassed(m.Name)) {
			w.violate(ticketOrder, "n%d granted the lock to %s past %s", node+1, w.me, m.Name)
		}
	}
}

// handed checks that the lock is granted only to the owner that asks, or by a handoff. A handoff
// goes to the successor of the first in the queue, or to those of its first sharers.
func (w *watch) handed(node int, now int64, k *core.Call) {
	for i := range w.is.holders {
		who := w.is.holders[i].Name
		if c := w.callOf(string(w.me)); c != nil && len(w.was.holders) == 1 && len(w.is.holders) == 1 && passes(c, k, w.was.holders[0].Name) && passes(c, k, who) {
			continue // passed on
		}
		if w.was.holder([]byte(who)) != "" || (k.Do == core.Acquire || k.Do == core.Restore) && bytes.Equal(w.me, []byte(who)) {
			continue
		}
		to, ticket := "", math.Inf(1)
		for _, m := range w.was.queue {
			if w.was.heir(m.Name) == who {
				to, ticket = m.Name, m.Score
			}
		}
		if to == "" || k.Do != core.Release && k.Do != core.ReleaseAndLeave && k.Do != core.Yield && !(k.Do == core.Renew && k.Shared) {
			w.violate(othersHold, "n%d granted the lock to %s", node+1, who)
			continue
		}
		if len(w.is.slots) > 0 {
			if before := w.is.before(to, ticket, now); before+len(w.is.holders) > w.plan.Permits {
				w.violate(ticketOrder, "n%d handed a slot to %s past %d earlier waiters, with %d slots taken", node+1, to, before, len(w.is.holders))
			}
		}
		for i := 0; i < len(w.was.queue) && len(w.is.slots) == 0; i++ {
			m := w.was.queue[i]
			if w.was.wantsShare(to) && (w.was.isPassed(m.Name) || w.isMine(m.Name) && w.is.isPassed(m.Name)) {
				// This may be the waiter's own yield, after which it only tries: readers may pass
				// it.
				continue
			}
			// This call may be the waiter's own yield, with a better ticket.
			if s, stands := w.is.ticket(m.Name); stands && w.isMine(m.Name) {
				m.Score = s
			}
			if m.Name != to && m.Score < ticket && w.was.deadline(m.Name) > now && !bytes.Equal([]byte(m.Name), []byte(waiterOf(k, w))) {
				w.violate(ticketOrder, "n%d handed the lock to %s past %s", node+1, to, m.Name)
			}
		}
		if c := w.callOf(to); c != nil {
			var attempt, cell int
			_, _ = fmt.Sscanf(who[len(to):], "/%d.%d", &attempt, &cell)
			c.promised(w.tier, int32(attempt), true, cell, w.is.left(who), w.is.slotOf(who))
			c.last = w.world.Now()
		}
	}
}

// isMine reports whether the call that has just run came from this waiter.
func (w *watch) isMine(waiter string) bool {
	c := w.callOf(string(w.me))
	return c != nil && string(c.caller.Waiter) == waiter
}

// waiterOf returns the waiter of the call that ran, if the call removes it from the queue.
func waiterOf(k *core.Call, w *watch) string {
	if k.Do != core.ReleaseAndLeave {
		return ""
	}
	c := w.callOf(string(w.me))
	if c == nil {
		return ""
	}
	return string(c.caller.Waiter)
}

func (w *watch) live(h *hold) bool {
	c := h.call
	return !h.released && c.machine.Phase() == core.Holding && c.machine.Remaining(w.now(c.process.number)) > 0
}

func (w *watch) drop(h *hold) {
	w.holds = slices.DeleteFunc(w.holds, func(o *hold) bool { return o == h })
}
